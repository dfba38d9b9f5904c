"""What does a pool of clients look like: how much load, how bursty, whose?"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tidegate.core.records import Distribution
from tidegate.workload.traces.servegen import WINDOW_S, ClientWindow

DAY_S = 86_400.0


class PoolStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Rates of a pool, summed over its clients, in figures."""

    clients: int
    client_windows: int
    """In which a client asked for anything."""
    windows: int
    """From the first to the last, those without any traffic included."""
    days: float
    rate_per_s: Distribution
    """Over all windows."""
    least_rate_per_s: float
    empty_windows: int
    top_client_share: float
    """Of all requests, 0..1."""
    top_ten_share: float
    cv: Distribution
    """Of gaps between a client's arrivals, over client windows."""
    patterns: dict[str, int]
    """Client windows by the law that fitted."""


def pool_statistics(windows: Iterable[ClientWindow]) -> PoolStatistics:
    """Figures of a pool; readers give at least one window."""
    by_window: dict[int, float] = {}
    by_client: dict[int, float] = {}
    patterns: dict[str, int] = {}
    cvs: list[float] = []
    for each in windows:
        window = int(each.start_s // WINDOW_S)
        by_window[window] = by_window.get(window, 0.0) + each.rate_per_s
        by_client[each.client] = by_client.get(each.client, 0.0) + each.rate_per_s
        patterns[each.pattern] = patterns.get(each.pattern, 0) + 1
        cvs.append(each.cv)
    first, last = min(by_window), max(by_window)
    rates = [by_window.get(window, 0.0) for window in range(first, last + 1)]
    loads = sorted(by_client.values(), reverse=True)
    return PoolStatistics(
        clients=len(by_client),
        client_windows=len(cvs),
        windows=len(rates),
        days=len(rates) * WINDOW_S / DAY_S,
        rate_per_s=Distribution.of(rates),
        least_rate_per_s=min(rates),
        empty_windows=sum(rate == 0 for rate in rates),
        top_client_share=loads[0] / sum(loads),
        top_ten_share=sum(loads[:10]) / sum(loads),
        cv=Distribution.of(cvs),
        patterns=dict(sorted(patterns.items())),
    )
