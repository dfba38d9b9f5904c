"""What does the planner answer?

Every figure that is printed or written as JSON is in an `Answer`; whoever shows it computes nothing. What
does not apply is None. Keys of the JSON are these names.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from tidegate.core.records import Budgets
from tidegate.plan.advised import Advice
from tidegate.plan.alternatives import Apart, Found
from tidegate.plan.keeping import Fleet
from tidegate.plan.offload import Offload
from tidegate.plan.residence import Residence
from tidegate.plan.speculated import Speculated

Binding = Literal["compute", "bandwidth", "kv_memory", "batch", "link", "queueing", "latency_budget"]
"""What keeps a replica from more: its arithmetic, its memory's speed, room for KV cache, the limit on
sequences, its link, the wait for a turn, a latency budget that no more of one of these would help."""


class Definitions(msgspec.Struct, frozen=True, kw_only=True):
    """What the words of an answer mean, for whoever reads only that."""

    ttft: str = "arrival to the end of the step that finishes prefill, plus delivery"
    tpot: str = "(E2E - TTFT) / (output tokens - 1), over requests of two or more"
    utilisation: str = "rate of the busiest minute / rate sustained at the gate, never busy time"
    replicas: str = "spare ones included, which may be lost while budgets hold"
    percentiles: str = "over requests"


class Percentiles(msgspec.Struct, frozen=True, kw_only=True):
    """Of requests."""

    mean: float
    p50: float
    p95: float
    p99: float
    at_percentile: float
    """At the percentile that was asked for."""

    @classmethod
    def of(cls, value: float) -> Percentiles:
        """The same of every request."""
        return cls(mean=value, p50=value, p95=value, p99=value, at_percentile=value)

    def plus(self, value: float) -> Percentiles:
        """All of them later by `value`."""
        return Percentiles(
            mean=self.mean + value,
            p50=self.p50 + value,
            p95=self.p95 + value,
            p99=self.p99 + value,
            at_percentile=self.at_percentile + value,
        )


class Gates(msgspec.Struct, frozen=True, kw_only=True):
    """Requests that a replica may have at once, by what bounds them; None: that does not bound."""

    kv: int | None = None
    """So many fit into its KV cache, each at its longest."""
    batch: int | None = None
    """`max_num_seqs`."""
    tpot: int | None = None
    """With one more, TPOT is over its budget."""

    @property
    def least(self) -> int:
        """The one that binds."""
        return min(gate for gate in (self.kv, self.batch, self.tpot) if gate is not None)


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """What requests meet at one utilisation, at the percentile that was asked for: a load-latency curve."""

    utilisation: float
    isolated_s: float
    """Each replica has a queue of its own, and requests are dealt out blindly."""
    pooled_s: float
    """One queue before all replicas but the spare ones, as `tidegate serve` keeps it."""
    pooled_replicas: int
    ttft_s: float
    """Of these, the wait included."""
    tpot_s: float
    users: int | None = None
    """Who meet that, where users who wait for their answers are the load: it is told by their number then."""


Marking = Literal["asked", "knee", "budgets"]
"""What is at a point of a curve: the load of the answer, the knee, the highest rate within every budget."""


class Opening(msgspec.Struct, frozen=True, kw_only=True):
    """What users meet who all ask in the same instant: a benchmark's clients do, people hardly ever."""

    last_ttft_s: float
    """Of the last of their first requests, about."""
    ttft_s: Percentiles | None = None
    """Of a benchmark's run of ten requests each, the first ones among them; None: they think in between."""
    words: str


class Afterwards(msgspec.Struct, frozen=True, kw_only=True):
    """What users meet once their opening is past, where an answer's own latencies are a benchmark's run."""

    wait_s: Percentiles
    ttft_s: Percentiles
    tpot_s: Percentiles
    e2e_s: Percentiles


class ClassAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What the requests of one class meet, which has budgets of its own."""

    name: str
    share: float
    """Of all requests, 0..1."""
    budgets: Budgets
    ttft_s: Percentiles
    tpot_s: Percentiles
    e2e_s: Percentiles
    held: bool
    """Whether it is within its budgets, at the percentile that was asked for."""


class CurvePoint(msgspec.Struct, frozen=True, kw_only=True):
    """What requests that come by themselves meet at one rate."""

    utilisation: float
    requests_per_s: float
    """By all replicas."""
    wait_s: Percentiles
    ttft_s: Percentiles
    tpot_s: Percentiles
    e2e_s: Percentiles
    users: int | None = None
    """Who come to send that, where users who wait for their answers are the load."""
    marks: tuple[Marking, ...] = ()


class UsersOfCurve(msgspec.Struct, frozen=True, kw_only=True):
    """The same marks, and the end of the curve, as numbers of users."""

    asked: int
    knee: int | None
    held: int
    most: int


class LoadCurve(msgspec.Struct, frozen=True, kw_only=True):
    """What requests meet from an idle fleet to a full one: the load-latency curve."""

    replicas: int
    """All that there are, and up."""
    percentile: float
    """Share of requests, at which the knee and the budgets are looked for, 0..1."""
    sustained_per_s: float
    asked_per_s: float
    knee_per_s: float | None
    """The last rate before TTFT grows faster than it; None: there is none."""
    held_per_s: float
    """The highest within every budget, or at which nobody waits where no budget says how long; 0: none."""
    budgeted: bool
    """Whether there is a budget."""
    may_wait: bool
    """Whether one says how long requests may wait; else they may not."""
    points: tuple[CurvePoint, ...]
    """By rate, ascending; of users by their number."""
    users: UsersOfCurve | None = None
    """Where users who wait for their answers are the load: then the curve is over them, and rates follow."""


class Room(msgspec.Struct, frozen=True, kw_only=True):
    """One reason to stay below full: what it does to utilisation."""

    reason: Literal["queue", "burst", "lost_replica", "batch"]
    utilisation: float | None
    """Up to which it alone would let a fleet be used, 0..1; None: not known of this replica."""
    words: str


class Offline(msgspec.Struct, frozen=True, kw_only=True):
    """Batch work, and the same rate served to people."""

    requests: int
    within_s: float
    done_s: float
    """When it is, with every replica at its gate."""
    prompt_tokens_per_s: float
    """That the deadline asks for."""
    output_tokens_per_s: float
    cost: float | None
    """US dollars, until it is done."""
    interactive_ttft_s: float | None
    interactive_tpot_s: float | None
    interactive_replicas: int | None
    """That hold these budgets at the same rate, spare ones included; None: none would."""
    interactive_cost_per_hour: float | None
    interactive_impossible: str = ""


class HourAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What one hour of the day needs."""

    hour: int
    """From 0, of the load's own clock."""
    requests_per_s: float
    """In its busiest minute."""
    replicas: int
    """Spare ones included."""
    utilisation: float
    prefill_replicas: int | None = None
    """Of them, for prompts; None: each does both."""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """The answer if one thing were different; figures are None where it would be impossible."""

    what: str
    replicas: int | None = None
    prefill_replicas: int | None = None
    """Of them, for prompts; None: each does both."""
    requests_per_s: float | None = None
    concurrency_per_replica: int | None = None
    requests_per_s_per_replica: float | None = None
    binding: Binding | None = None
    cost_per_hour: float | None = None
    impossible: str = ""
    """Why."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A plan, in figures."""

    summary: str
    """One sentence: how many of what, how full, at which price."""
    replica: str | None
    """What one is, as `4 x H100 SXM`; None: known by two figures only."""
    step_times: str | None = None
    """Where its steps' seconds come from: the roofline as measured deployments meet it, or as operators that
    were measured alone do, or a measurement; None: from two figures, or in two kinds of replicas."""
    replicas: int
    """Spare ones included."""
    spare_replicas: int
    """Those of them that were asked for in case of loss: without them the budgets still hold."""
    may_be_lost: int
    """So many, and the budgets still hold in the busiest window, though above the target."""
    accelerators: int | None
    requests_per_s: float
    """Offered in the busiest window; where the rate was asked for, the highest that the terms allow."""
    peak_ratio: float
    """That rate over the mean rate."""
    prompt_tokens: float
    """Of a request, mean; 0 where nothing was said of prompts."""
    output_tokens: float
    utilisation: float
    """That rate over the sustainable rate of all replicas at the gate."""
    utilisation_one_lost: float | None
    """The same with one replica less; None where there is only one."""
    concurrency_per_replica: int
    """The least of its gates."""
    gates: Gates
    requests_per_s_per_replica: float
    """Sustained at that concurrency."""
    output_tokens_per_s_per_replica: float
    prompt_tokens_per_s_per_replica: float
    binding: Binding
    because: str
    """What binds, in a sentence with its figure."""
    wait_s: Percentiles
    """For a turn, before anything is computed; of disaggregated replicas, before anything is decoded."""
    ttft_s: Percentiles
    tpot_s: Percentiles
    e2e_s: Percentiles
    itl_s: Percentiles | None = None
    """Over gaps between tokens, not over requests; None: not known."""
    classes: tuple[ClassAnswer, ...] = ()
    """Where classes have budgets of their own."""
    binding_class: str | None = None
    """The class that is nearest to a budget of its own with the spare replicas lost; None: none has any."""
    opening: Opening | None = None
    """Of users: what they meet if all ask at once; None: not users, or nothing is known of prompts."""
    afterwards: Afterwards | None = None
    """Of users who never think, before replicas that are there, without a budget: what a benchmark of ten
    requests each would report is asked then, and the latencies are that. None: they have no opening."""
    kv_bytes_per_token: float | None = None
    """Of the whole model, however it is sharded."""
    kv_bytes_per_sequence: float | None = None
    """Of the longest kind of request at its end, in whole blocks."""
    speculation: Speculated | None = None
    """Gaps (`itl_s`) are then those between steps. None: a step makes one token of each sequence, or what it
    makes is part of what was measured."""
    memory: Residence | None = None
    """What requests take of the KV cache; None: nothing is known of one."""
    offload: Offload | None = None
    """What host memory of a replica keeps of sessions between turns; None: none was asked for."""
    fleet: Fleet | None = None
    """Replicas for the sessions of all users, beside it; None: the load is not of users."""
    cost_per_hour: float | None = None
    """US dollars, for all replicas."""
    cost_per_million_output_tokens: float | None = None
    """At the mean rate."""
    price_per_accelerator_hour: float | None = None
    price_source: str = ""
    """Who asks it, and when; prices differ two- to fourfold, and `--price` says another."""
    room: tuple[Room, ...] = ()
    waits: tuple[Wait, ...] = ()
    changes: tuple[Change, ...] = ()
    """What changes it."""
    curve: LoadCurve | None = None
    """None where none was asked for."""
    offline: Offline | None = None
    """Of batch work; latencies other than TPOT are null."""
    hours: tuple[HourAnswer, ...] = ()
    """A schedule; empty where none was asked for."""
    disaggregated: Apart | None = None
    """Of replicas that compute prompts apart from those that decode: the others' figures are of both."""
    search: Found | None = None
    """What else it could be; None where one replica was asked about."""
    advice: Advice | None = None
    """With which limits, queues and gates it should be served."""
    warnings: tuple[str, ...] = ()
    definitions: Definitions = Definitions()

    @property
    def going_on(self) -> Answer | Afterwards:
        """Whose latencies have no opening in them."""
        return self.afterwards or self


class Impossible(msgspec.Struct, frozen=True, kw_only=True):
    """Why there is no answer."""

    problem: str
    """What cannot be, with its figure."""
    remedy: str
    """What would make it possible."""
    binding: Binding
    needed: float | None = None
    available: float | None = None
    unit: str = ""
    """Of both: `bytes`, `tokens`, `s`, `requests_per_s`."""

    def __str__(self) -> str:
        return f"{self.problem}; {self.remedy}"
