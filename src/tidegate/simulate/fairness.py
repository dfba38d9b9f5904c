"""Did each tenant get what was its due?"""

from __future__ import annotations

from math import nan

import numpy as np

from tidegate.simulate.columns import Floats


def jain_index(served: Floats, wanted: Floats, weights: Floats) -> float:
    """1 if each tenant got its fair share of what was served, 1/n if one of n got everything; nan of nobody.

    Tokens served and wanted, and weights, per tenant. Who wants little is not wronged by getting little: what
    was served is compared with the max-min fair share. Who wants nothing does not count.
    Source: Jain, Chiu and Hawe (1984), whose index is of allocations relative to the fair ones.
    """
    asked = wanted > 0
    if not asked.any() or not served.any():
        return nan
    fair = fair_shares(float(served.sum()), wanted[asked], weights[asked])
    ratios = served[asked] / fair
    return float(ratios.sum() ** 2 / (len(ratios) * (ratios @ ratios)))


def fair_shares(capacity: float, wanted: Floats, weights: Floats) -> Floats:
    """Max-min fair: nobody gets more than it wants, the others divide what is left by their weights.

    Of `capacity` above 0, at most what is wanted in all; what nobody wants is left over.
    """
    # Water filling: tenants are satisfied in the order of what they want per weight.
    order = np.argsort(wanted / weights, kind="stable")
    shares = np.empty_like(wanted)
    left, weight = capacity, float(weights.sum())
    for place in order:
        shares[place] = min(float(wanted[place]), left * float(weights[place]) / weight)
        left -= float(shares[place])
        weight -= float(weights[place])
    return shares
