"""What does a traffic file say: which sources of requests are there, and what does each send?

One mapping of sources by name. The name makes a source's dice, so that another source in the file moves
nobody's arrivals. Laws and bursts are `workload`'s; here they get the form in which people write them.
"""

from __future__ import annotations

from math import inf
from typing import Literal

import msgspec

from tidegate.core.errors import ConfigurationError
from tidegate.core.records import Budgets
from tidegate.workload.laws.arrivals import Arrivals, Constant, Poisson, Renewal
from tidegate.workload.laws.gaps import Even, Gamma, Gaps, Memoryless, Weibull
from tidegate.workload.laws.lengths import LengthLaw, Lengths, Pairs
from tidegate.workload.laws.numbers import Empirical, Exponential, Fixed, Law, Lognormal, Quantiles
from tidegate.workload.laws.rates import Diurnal, Piecewise, Rate, Steady
from tidegate.workload.requests import Sender
from tidegate.workload.sources.client_pools import ClientPoolSettings
from tidegate.workload.sources.closed_loop import ClosedLoopSettings
from tidegate.workload.sources.sessions import SessionSettings

BURSTY = ("gamma", "weibull")
DEFAULT_CLASS = "default"
"""Of a source that names none, as `plan` calls it."""


class RatePoint(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A rate from an instant on."""

    at_s: float
    per_s: float


class ArrivalConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When something comes. One of `rate_per_s`, `points` and `daily`."""

    rate_per_s: float | None = None
    points: tuple[RatePoint, ...] | None = None
    """The first at 0 s."""
    linear: bool = False
    """Points are joined by straight lines; else each holds until the next."""
    period_s: float | None = None
    """Points come again and again."""
    daily: Diurnal | None = None
    gaps: Literal["poisson", "even", "gamma", "weibull"] = "poisson"
    cv: float | None = None
    """Of the gaps, for gamma and weibull."""

    def __post_init__(self) -> None:
        rates = [name for name in ("rate_per_s", "points", "daily") if getattr(self, name) is not None]
        if len(rates) != 1:
            has = ", ".join(rates) or "none of them"
            raise ConfigurationError([f"needs one of rate_per_s, points and daily; it has {has}"])
        if (self.cv is not None) != (self.gaps in BURSTY):
            raise ConfigurationError(["cv belongs to gaps: gamma or weibull, and both need it"])
        if self.points is None and (self.linear or self.period_s is not None):
            raise ConfigurationError(["linear and period_s belong to points; remove them, or write points"])
        self.arrivals()

    def arrivals(self) -> Arrivals:
        """As the workload has them."""
        rate, gaps = self._rate(), self._gaps()
        if isinstance(rate, Steady) and isinstance(gaps, Memoryless):
            return Poisson(rate.rate_per_s)
        if isinstance(rate, Steady) and isinstance(gaps, Even):
            return Constant(rate.rate_per_s)
        return Renewal(rate, gaps)

    def _rate(self) -> Rate:
        if self.points is not None:
            points = tuple((point.at_s, point.per_s) for point in self.points)
            return Piecewise(points, self.linear, self.period_s)
        return self.daily or Steady(self.rate_per_s or 0.0)

    def _gaps(self) -> Gaps:
        if self.cv is None:
            return Memoryless() if self.gaps == "poisson" else Even()
        return Gamma(self.cv) if self.gaps == "gamma" else Weibull(self.cv)


class QuantileConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="quantiles"):
    """A table of quantiles, with straight lines between."""

    shares: tuple[float, ...]
    """Of all that lies below, from 0 to 1."""
    values: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.shares) != len(self.values):
            counts = f"{len(self.shares)} shares and {len(self.values)} values"
            raise ConfigurationError([f"quantiles: {counts}; write as many of both"])
        self.law()

    def law(self) -> Quantiles:
        """As the workload has it."""
        return Quantiles(tuple(zip(self.shares, self.values, strict=True)))


LawConfig = Fixed | Exponential | Lognormal | Empirical | QuantileConfig


def law_of(config: LawConfig) -> Law:
    """As the workload has it."""
    return config.law() if isinstance(config, QuantileConfig) else config


class LengthConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long prompts and answers are: two laws, or pairs drawn from a trace."""

    prompt_tokens: LawConfig | None = None
    output_tokens: LawConfig | None = None
    trace: str | None = None
    """A trace, or a list of lengths; relative to the file, or one that ships."""

    def __post_init__(self) -> None:
        laws = [self.prompt_tokens is not None, self.output_tokens is not None]
        if not (all(laws) if self.trace is None else not any(laws)):
            raise ConfigurationError(["needs prompt_tokens and output_tokens, or trace alone"])


class SourceConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind"):
    """What every source has: who asks, and for what."""

    tenant: str = "default"
    class_: str | None = msgspec.field(default=None, name="class")
    """null: the tenant's own."""
    model: str | None = None
    """null: the usual one."""
    max_tokens: int | None = None
    """What clients say is the most they want; null: nothing."""
    streams: bool = True

    def __post_init__(self) -> None:
        self.sender()

    def sender(self) -> Sender:
        """As the workload has it."""
        return Sender(
            tenant=self.tenant,
            priority=self.class_ or "",
            model=self.model or "",
            max_tokens=self.max_tokens,
            streams=self.streams,
        )


class OpenSource(SourceConfig, frozen=True, kw_only=True, tag="open"):
    """Requests that come by themselves."""

    arrivals: ArrivalConfig
    lengths: LengthConfig


class ClientSource(SourceConfig, frozen=True, kw_only=True, tag="clients"):
    """So many clients that each wait, think, and ask again."""

    clients: int
    lengths: LengthConfig
    think_s: LawConfig = Fixed(0.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        # Whatever the lengths will be: the rest is judged before any file is read.
        self.settings(Pairs([Lengths(1, 1)]))

    def settings(self, lengths: LengthLaw) -> ClosedLoopSettings:
        """As the workload has them."""
        return ClosedLoopSettings(
            clients=self.clients, lengths=lengths, think_s=law_of(self.think_s), sender=self.sender()
        )


class SessionSource(SourceConfig, frozen=True, kw_only=True, tag="sessions"):
    """Conversations whose prompts grow."""

    starts: ArrivalConfig
    turns: LawConfig
    new_tokens: LawConfig
    output_tokens: LawConfig
    think_s: LawConfig = Fixed(0.0)
    system_tokens: int = 0
    most_prompt_tokens: int | None = None
    block_tokens: int = 16
    outlives_refusals: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.settings()

    def settings(self) -> SessionSettings:
        """As the workload has them."""
        return SessionSettings(
            starts=self.starts.arrivals(),
            turns=law_of(self.turns),
            new_tokens=law_of(self.new_tokens),
            output_tokens=law_of(self.output_tokens),
            think_s=law_of(self.think_s),
            system_tokens=self.system_tokens,
            most_prompt_tokens=self.most_prompt_tokens,
            block_tokens=self.block_tokens,
            outlives_refusals=self.outlives_refusals,
            sender=self.sender(),
        )


class TraceSource(SourceConfig, frozen=True, kw_only=True, tag="trace"):
    """A log of requests, as it was, or as much of it."""

    trace: str
    from_s: float = 0.0
    for_s: float | None = None
    time_scale: float = 1.0
    rate_factor: float = 1.0
    spread: bool = False
    """Spread what shares an instant because the trace rounds its times."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.from_s < inf:
            raise ConfigurationError([f"from_s is at least 0, not {self.from_s:g}"])
        for name in ("for_s", "time_scale", "rate_factor"):
            value = getattr(self, name)
            if value is not None and not 0 < value < inf:
                raise ConfigurationError([f"{name} is above 0, not {value:g}"])


class RecordedSource(SourceConfig, frozen=True, kw_only=True, tag="recorded-sessions"):
    """Recorded sessions, played by clients who wait."""

    trace: str
    starts: ArrivalConfig
    """Not recorded: a model of yours."""
    share_heads: bool = False
    outlives_refusals: bool = False


class PoolSource(SourceConfig, frozen=True, kw_only=True, tag="client-pool"):
    """ServeGen's clients of one model."""

    rates: str
    lengths: str
    from_s: float = 0.0
    for_s: float | None = None
    rate_factor: float = 1.0
    tenant_per_client: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.settings()

    def settings(self) -> ClientPoolSettings:
        """As the workload has them."""
        return ClientPoolSettings(
            from_s=self.from_s,
            for_s=inf if self.for_s is None else self.for_s,
            rate_factor=self.rate_factor,
            sender=self.sender(),
            tenant_per_client=self.tenant_per_client,
        )


Source = OpenSource | ClientSource | SessionSource | TraceSource | RecordedSource | PoolSource


class TrafficClass(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a class of the sources is to be held to, where it is planned for or simulated."""

    budgets: Budgets = Budgets()


class TrafficConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file."""

    sources: dict[str, Source]
    classes: dict[str, TrafficClass] = {}
    """Of the sources, by name. Plans and simulations are held to them, the gateway to its configuration's."""

    def __post_init__(self) -> None:
        if not self.sources:
            raise ConfigurationError(["needs at least one source"])
        asked = list(dict.fromkeys(source.class_ or DEFAULT_CLASS for source in self.sources.values()))
        if unknown := [name for name in self.classes if name not in asked]:
            there = ", ".join(asked)
            raise ConfigurationError(
                [f"classes: no source asks in class {name}; there are {there}" for name in unknown]
            )
