"""What is asked of the planner: which load, within which budgets, from which replicas?

An `Ask` is a pure value; `sizing.answer_to` makes an `Answer` of it. Whoever searches makes many asks that
differ in their replica.
"""

from __future__ import annotations

from math import inf, sqrt

import msgspec

from tidegate.core.errors import ConfigurationError
from tidegate.core.records import Budgets
from tidegate.perf.deployment import Deployment
from tidegate.perf.efficiencies import Waiting
from tidegate.perf.memory import Memory
from tidegate.plan.laws.engine import Engine

HIGHEST_PERCENTILE = 0.999
"""Beyond, tails are not known so well that a fleet could be sized by them."""
TARGET_UTILISATION = 0.7
"""Of the rate that is sustained, with every replica up; `Answer.room` says what it leaves room for."""


USERS_CV = 0.1
"""Coefficient of variation of what users send of whom mean lengths are known: if all were equally long, those
who once wait for each other would stay in step for ever."""


class Kind(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Requests that are alike."""

    prompt_tokens: float
    output_tokens: float
    prompt_cv: float = 0.0
    """Coefficient of variation; 0: all of them are as long."""
    output_cv: float = 0.0
    share: float = 1.0
    """Of all requests, beside the shares of other kinds: shares need not sum to 1."""
    tenant: str = ""
    class_: str = ""

    @property
    def name(self) -> str:
        """Who asks, as `tenant/class`; empty where nobody is named."""
        return "/".join(part for part in (self.tenant, self.class_) if part)


class Load(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What comes in the busiest window that is planned for."""

    kinds: tuple[Kind, ...]
    requests_per_s: float | None = None
    """In the busiest window; None: the highest rate within the budgets is asked for."""
    peak_ratio: float = 1.0
    """That rate over the mean rate, at least 1."""
    gap_cv: float = 1.0
    """Coefficient of variation of the gaps between requests inside the window: 1 for Poisson."""
    prefix_hit_ratio: float = 0.0
    """Prompt tokens that come from the prefix cache, 0..1."""
    users: int | None = None
    """People who wait for an answer, think, and ask again, instead of a rate."""
    think_s: float = 0.0

    @property
    def prompt_tokens(self) -> float:
        """The mean."""
        return self._mean([kind.prompt_tokens for kind in self.kinds])

    @property
    def output_tokens(self) -> float:
        """The mean."""
        return self._mean([kind.output_tokens for kind in self.kinds])

    @property
    def output_cv(self) -> float:
        """Coefficient of variation of the output tokens."""
        mean = self.output_tokens
        square = self._mean([kind.output_tokens**2 * (1 + kind.output_cv**2) for kind in self.kinds])
        return sqrt(max(0.0, square - mean * mean)) / mean

    @property
    def resident_tokens(self) -> float:
        """Of a request, on average over the time that it is there: kinds with long outputs stay longer."""
        stays = [kind.share * kind.output_tokens for kind in self.kinds]
        held = [kind.prompt_tokens + kind.output_tokens / 2 for kind in self.kinds]
        return sum(stay * tokens for stay, tokens in zip(stays, held, strict=True)) / sum(stays)

    @property
    def longest_tokens(self) -> float:
        """Prompt and output of the longest kind."""
        return max(kind.prompt_tokens + kind.output_tokens for kind in self.kinds)

    def _mean(self, values: list[float]) -> float:
        weight = sum(kind.share for kind in self.kinds)
        return sum(kind.share * value for kind, value in zip(self.kinds, values, strict=True)) / weight

    def __post_init__(self) -> None:
        """ConfigurationError for what nobody can send."""
        problems = [
            f"a request of {kind.prompt_tokens:g} prompt and {kind.output_tokens:g} output tokens cannot be; "
            "a prompt has 0 or more, an output 1 or more"
            for kind in self.kinds
            if not (1 <= kind.output_tokens < inf and 0 <= kind.prompt_tokens < inf and 0 < kind.share < inf)
        ]
        if not self.kinds:
            problems.append("no kind of request; say how long prompts and outputs are")
        if self.requests_per_s is not None and not 0 < self.requests_per_s < inf:
            problems.append(f"a rate must be above 0 and finite, not {self.requests_per_s:g}")
        if not 1 <= self.peak_ratio < inf:
            problems.append(f"the busiest window is 1 x the mean or more, not {self.peak_ratio:g}")
        if not 0 <= self.prefix_hit_ratio < 1:
            told = f"a prefix hit ratio is 0 or more and below 1, not {self.prefix_hit_ratio:g}"
            problems.append(f"{told}; something of each prompt is new")
        if problems:
            raise ConfigurationError(problems)


class HandFigures(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A replica of which two figures are known: way 1."""

    tokens_per_s: float
    """Output tokens of all requests together, at full batch."""
    tpot_s: float
    """Pace of each request there."""


class Replica(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A replica whose steps are known, computed or measured: ways 2 and 3."""

    name: str
    """As people say it: `4 x H100 SXM`, or a profile's name."""
    engine: Engine
    accelerators: int = 1
    deployment: Deployment | None = None
    """What it was computed from; None for a measured one."""
    memory: Memory | None = None
    """Of the deployment."""
    waiting: Waiting = Waiting()
    """What first tokens wait for, by the engine's software."""

    @property
    def copies(self) -> int:
        """Of attention, each with a KV cache and requests of its own."""
        return 1 if self.deployment is None else self.deployment.attention_dp

    @property
    def longest_tokens(self) -> int:
        """Of a request, that is taken and that fits."""
        return min(self.engine.context_tokens, self.engine.kv_tokens // self.copies)


class ClassBudgets(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a class must hold."""

    name: str
    budgets: Budgets


class Terms(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the answer must hold."""

    budgets: Budgets = Budgets()
    """Of all requests; where classes have their own, the tightest of each figure."""
    classes: tuple[ClassBudgets, ...] = ()
    """All classes, where they have budgets of their own."""
    percentile: float = 0.95
    """Share of requests that hold them, 0..1."""
    target_utilisation: float = TARGET_UTILISATION
    """At most, with every replica up."""
    spare_replicas: int = 1
    """So many may be lost, and the budgets still hold."""
    replicas: int | None = None
    """As many as there are; None: as many as it takes."""
    within_s: float | None = None
    """Batch work: all that comes at this rate for so long is done by then, and no budget counts."""
    per_hour_usd: float | None = None
    """Price of one accelerator for one hour."""

    def budgets_of(self, name: str) -> Budgets:
        """Of a class."""
        return next((each.budgets for each in self.classes if each.name == name), self.budgets)

    @property
    def may_wait(self) -> bool:
        """Whether a budget says how long requests may wait for a turn; where none does, they may not."""
        return self.budgets.ttft_s is not None or self.budgets.e2e_s is not None

    def __post_init__(self) -> None:
        """ConfigurationError for terms that nothing can hold."""
        problems = [
            f"a {name} budget must be above 0 and finite, not {value:g}"
            for name, value in (
                ("TTFT", self.budgets.ttft_s),
                ("TPOT", self.budgets.tpot_s),
                ("E2E", self.budgets.e2e_s),
            )
            if value is not None and not 0 < value < inf
        ]
        if not 0.5 <= self.percentile <= HIGHEST_PERCENTILE:
            most = 100 * HIGHEST_PERCENTILE
            problems.append(f"a percentile is from 50 to {most:g}, not {100 * self.percentile:g}")
        if not 0 < self.target_utilisation <= 1:
            problems.append(f"a target utilisation is above 0 and at most 1, not {self.target_utilisation:g}")
        if self.spare_replicas < 0:
            problems.append(f"spare replicas are 0 or more, not {self.spare_replicas}")
        if self.replicas is not None and self.replicas <= self.spare_replicas:
            problems.append(
                f"of {self.replicas} replicas {self.spare_replicas} cannot be spare: that leaves none; "
                "have more, or write --spare 0"
            )
        if self.within_s is not None and not 0 < self.within_s < inf:
            problems.append(f"a deadline must be above 0 and finite, not {self.within_s:g}")
        if self.per_hour_usd is not None and not 0 <= self.per_hour_usd < inf:
            problems.append(f"a price is 0 or more and finite, not {self.per_hour_usd:g}")
        if problems:
            raise ConfigurationError(problems)


class Ask(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A question to the planner."""

    load: Load
    replica: HandFigures | Replica
    terms: Terms = Terms()
