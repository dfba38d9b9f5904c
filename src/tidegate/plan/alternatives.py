"""What else could it be: on other accelerators, sharded otherwise, in fewer bits, disaggregated?

Values only: they are part of an `Answer`.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Kind = Literal["aggregated", "disaggregated"]


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """One configuration, sized so that it holds every budget."""

    accelerator: str
    replica: str
    """As `4 x H100 SXM`."""
    kind: Kind
    tp: int
    attention_dp: int
    ep: int
    weights: str
    """Precision."""
    kv: str
    replicas: int
    """Spare ones included; those for prompts too."""
    prefill_replicas: int | None
    """Of them, for prompts; None: each does both."""
    spare_replicas: int
    accelerators: int
    requests_per_s: float
    utilisation: float
    concurrency_per_replica: int
    binding: str
    cost_per_hour: float | None
    """US dollars; None: no price is known."""
    cost_per_million_output_tokens: float | None
    ttft_s: float
    """At the percentile that was asked for, as the next; null for batch work."""
    tpot_s: float
    prefill_accelerator: str | None = None
    """Of those for prompts, where prompts are apart; None: each does both, here and below."""
    prefill_tp: int | None = None
    prefill_accelerators_per_replica: int | None = None
    on_front: bool = False
    """Of all that have a price, nothing is as cheap and as fast, and better in one of the three."""


class Speed(msgspec.Struct, frozen=True, kw_only=True):
    """How fast one sequence alone is decoded, in the fewest accelerators that hold the model."""

    accelerator: str
    replica: str
    tp: int
    weights: str
    weights_bytes: float
    """Read for each token, of all devices together; of experts, those that a token chooses."""
    bandwidth_bytes_per_s: float
    """Of all devices together."""
    most_tokens_per_s: float
    """The one over the other: nothing decodes faster that reads all weights for each token."""
    tokens_per_s: float
    """With the shares of bandwidth that engines reach, overheads, and the KV cache of a mean context."""


class RuledOut(msgspec.Struct, frozen=True, kw_only=True):
    """An accelerator with which nothing holds, and the reason that came nearest."""

    accelerator: str
    because: str


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What a search looked at."""

    points: tuple[Point, ...]
    """Cheapest first: for each accelerator with a price its cheapest, and all that are on the front, up to
    four times what the cheapest costs."""
    unpriced: tuple[Point, ...]
    """Of accelerators of which no price is known, each with the fewest of them; never taken for free."""
    as_published: Point | None
    """The cheapest in the precision of the model's publisher, with a KV cache in 16 bits."""
    speeds: tuple[Speed, ...]
    """The fastest first, whether they hold the budgets or not."""
    ruled_out: tuple[RuledOut, ...]
    deployments: int
    """Looked at."""
    sized: int
    """Of them, in full: the others cannot be among the points."""


class Whole(msgspec.Struct, frozen=True, kw_only=True):
    """Replicas that do both, beside disaggregated ones."""

    replicas: int | None
    """None: they do not hold the budgets."""
    accelerators: int | None
    requests_per_s: float | None
    """That they carry."""
    cost_per_hour: float | None
    ttft_s: float | None
    """At the percentile that was asked for, as the next."""
    tpot_s: float | None
    e2e_s: float | None
    itl_p99_s: float | None
    impossible: str = ""


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the time of a request, in its order."""

    stage: Literal["queue", "prefill", "transfer", "decode"]
    """The wait for the link is in the transfer, that for a place in decoding."""
    mean_s: float
    """Those of all stages sum up to E2E."""
    at_percentile_s: float
    """At the percentile that was asked for; those are large for different requests, and do not sum up."""
    budget_s: float | None
    """What it may take of the budget; None: there is no such budget."""
    of: Literal["ttft_s", "tpot_s"]
    """That budget; of TPOT over all gaps of a request."""


class Apart(msgspec.Struct, frozen=True, kw_only=True):
    """Replicas that compute prompts, others that decode, and the link between them."""

    prefill_replica: str
    prefill_replicas: int
    """Spare ones included."""
    prefill_spare_replicas: int
    prefill_accelerators_per_replica: int
    prefill_price_per_accelerator_hour: float | None
    """US dollars; the answer's own is of those that decode."""
    prefill_requests_per_s_per_replica: float
    prefill_utilisation: float
    decode_replica: str
    decode_replicas: int
    decode_spare_replicas: int
    decode_accelerators_per_replica: int
    decode_requests_per_s_per_replica: float
    decode_utilisation: float
    kv_bytes_per_request: float
    """That travel, mean."""
    link_bytes_per_s: float
    """Of each replica."""
    link_utilisation: float
    """At most 0.7: above it, transfers wait longer for each other than they take."""
    link_needed_bytes_per_s: float
    """Of all links together: rate x bytes / 0.7."""
    transfer_s: float
    """Of one that meets no other."""
    transfer_budget_s: float | None
    """Within it TPOT holds for a request alone; None: there is no TPOT budget."""
    link_needed_for_one_bytes_per_s: float | None
    """So that one transfer is within it."""
    first_gap_s: float
    """From the first token to the second, at the percentile that was asked for: the transfer is in it."""
    stages: tuple[Stage, ...]
    """Where the time goes; empty where more comes than is served."""
    most_requests_per_s: float | None
    """Of what there is, the highest rate that the terms allow; None: as many as it takes were looked for."""
    whole: Whole
