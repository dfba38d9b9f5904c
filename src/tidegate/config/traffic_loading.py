"""How does a traffic file become a workload?

The file is judged whole before anything runs, the traces that it names included.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from math import inf
from pathlib import Path

from tidegate.config.decoding import INVALID, Decoder, of_type
from tidegate.config.documents import compose, read
from tidegate.config.model import Config
from tidegate.config.problems import Mark, Problem, Where, dotted, quoted, report, unknown
from tidegate.config.simulation_checks import class_problems
from tidegate.config.traces import SHIPPED, known_pairs, known_trace, open_lines
from tidegate.config.traffic import (
    DEFAULT_CLASS,
    ClientSource,
    LengthConfig,
    OpenSource,
    PoolSource,
    RecordedSource,
    SessionSource,
    Source,
    TraceSource,
    TrafficConfig,
    law_of,
)
from tidegate.core.errors import ConfigurationError
from tidegate.core.records import Budgets
from tidegate.workload.dice import dice
from tidegate.workload.laws.lengths import Independent, LengthLaw
from tidegate.workload.requests import OpenLoop, PlannedRequest, Workload, replayed, sent
from tidegate.workload.sources.client_pools import ClientPool
from tidegate.workload.sources.closed_loop import ClosedLoop
from tidegate.workload.sources.mixes import Mix
from tidegate.workload.sources.recorded import SessionReplay
from tidegate.workload.sources.sessions import Sessions
from tidegate.workload.traces.agentic import RecordedSession, read_sessions
from tidegate.workload.traces.scaling import at_rate, part_of
from tidegate.workload.traces.servegen import ClientLengths, ClientWindow, read_lengths, read_rates


class Traffic:
    """What a traffic file describes; makes the workload of any number of runs."""

    def __init__(self, config: TrafficConfig, name: str, base: Path, marks: dict[Where, Mark]) -> None:
        """`name` and `marks` place problems; relative paths start at `base`."""
        self.config = config
        self._name, self._base, self._marks = name, base, marks

    def workload(self, seed: int) -> Workload:
        """Of one run; the same for the same seed. Raises ConfigurationError for a trace that is not sound."""
        return Mix([self._named(name, source, seed) for name, source in self.config.sources.items()])

    def only(self, name: str) -> Traffic:
        """One of its sources, by itself."""
        return Traffic(
            TrafficConfig(sources={name: self.config.sources[name]}), self._name, self._base, self._marks
        )

    def check(self, config: Config) -> None:
        """Raises ConfigurationError if a source asks for what the configuration does not have.

        Where that names no tenants, anybody may ask.
        """
        tenants = {**config.tenants, **config.simulation.tenants}
        problems: list[Problem] = []
        for name, source in self.config.sources.items():
            where = ("sources", name)
            if tenants:
                problems += unknown((*where, "tenant"), source.tenant, tenants, "tenant")
            if source.class_ is not None:
                problems += unknown((*where, "class"), source.class_, config.classes, "class")
            if source.model is not None:
                problems += unknown((*where, "model"), source.model, config.models(), "model")
            problems += _refused(where, config, source)
        if problems:
            raise ConfigurationError(report(self._name, problems, self._marks))

    def budgets(self, config: Config) -> dict[str, Budgets]:
        """By class of the configuration, where a source that says none asks in its tenant's."""
        found: dict[str, Budgets] = {}
        for source in self.config.sources.values():
            tenant = config.tenants.get(source.tenant)
            own = (tenant.class_ if tenant else None) or config.usual_class
            if source.class_ is None and DEFAULT_CLASS in self.config.classes:
                found[own] = self.config.classes[DEFAULT_CLASS].budgets
        named = {name: each.budgets for name, each in self.config.classes.items() if name in config.classes}
        return found | named

    def _named(self, name: str, source: Source, seed: int) -> Workload:
        try:
            return self._source(name, source, seed)
        except ConfigurationError as error:
            where = dotted(("sources", name))
            raise ConfigurationError([f"{where}: {problem}" for problem in error.problems]) from None

    def _source(self, name: str, source: Source, seed: int) -> Workload:
        match source:
            case OpenSource():
                lengths = self._lengths(source.lengths).lengths(dice(seed, name, "lengths"))
                arrivals = source.arrivals.arrivals()
                return OpenLoop(sent(source.sender(), arrivals, lengths, dice(seed, name, "arrivals")))
            case ClientSource():
                return ClosedLoop(source.settings(self._lengths(source.lengths)), seed, name)
            case SessionSource():
                return Sessions(source.settings(), seed, name)
            case TraceSource():
                return OpenLoop(self._replayed(name, source, seed))
            case RecordedSource():
                return SessionReplay(
                    _sessions(self._located(source.trace)),
                    source.starts.arrivals(),
                    seed,
                    sender=source.sender(),
                    name=name,
                    share_heads=source.share_heads,
                    outlives_refusals=source.outlives_refusals,
                )
            case PoolSource():
                windows, tables = _pool(self._located(source.rates), self._located(source.lengths))
                return ClientPool(windows, tables, source.settings(), seed, name=name)

    def _lengths(self, config: LengthConfig) -> LengthLaw:
        if config.trace is not None:
            return known_pairs(self._located(config.trace))
        assert config.prompt_tokens is not None
        assert config.output_tokens is not None
        return Independent(law_of(config.prompt_tokens), law_of(config.output_tokens))

    def _replayed(self, name: str, source: TraceSource, seed: int) -> Iterator[PlannedRequest]:
        trace = self._located(source.trace)
        for_s = inf if source.for_s is None else source.for_s
        step_rng = dice(seed, name, "spread") if source.spread else None
        part = part_of(known_trace(trace), source.from_s, for_s, source.time_scale, step_rng)
        found = at_rate(part, source.rate_factor, dice(seed, name, "rate").getrandbits(63))
        if not found:
            raise ConfigurationError([f"{trace}: nothing arrives where from_s and for_s point"])
        return replayed(found, dice(seed, name), sender=source.sender(), name=name)

    def _located(self, name: str) -> str:
        return name if name in SHIPPED else str(self._base / name)


def _refused(where: Where, config: Config, source: Source) -> Iterator[Problem]:
    """What the gateway would refuse to its tenant, or would not give it."""
    tenant = config.tenants.get(source.tenant)
    pool = next(iter(config.pools)) if source.model is None else config.models().get(source.model)
    if tenant is not None and tenant.pools is not None and pool is not None and pool not in tenant.pools:
        text = (
            f"may not use the pool {quoted(pool)}; name another model here, or add it to the tenant's pools"
        )
        yield Problem((*where, "tenant"), text)
    if source.class_ in config.classes:
        yield from class_problems((*where, "class"), config, source.tenant, source.class_)


def load_traffic(path: Path) -> Traffic:
    """Read and check a file and all that it names. Raises ConfigurationError with every mistake."""
    return parse_traffic(read(path), str(path), base=path.parent)


def parse_traffic(text: str, source: str, *, base: Path = Path()) -> Traffic:
    """The same of YAML text; `source` names it in problems, relative paths start at `base`."""
    decoder = Decoder(base=base)
    config = decoder.decode(compose(text, source, "it needs sources"), of_type(TrafficConfig), ())
    if decoder.problems or config is INVALID:
        raise ConfigurationError(report(source, decoder.problems, decoder.marks))
    assert isinstance(config, TrafficConfig)
    traffic = Traffic(config, source, base, decoder.marks)
    try:
        traffic.workload(seed=0)
    except ConfigurationError as error:
        raise ConfigurationError([f"{source}: {problem}" for problem in error.problems]) from None
    return traffic


# A sweep makes many workloads of the same files: see `traces.known_trace`.


@lru_cache(maxsize=2)
def _sessions(trace: str) -> list[RecordedSession]:
    return list(read_sessions(open_lines(trace), trace))


@lru_cache(maxsize=4)
def _pool(rates: str, lengths: str) -> tuple[list[ClientWindow], list[ClientLengths]]:
    return list(read_rates(open_lines(rates), rates)), list(read_lengths(open_lines(lengths), lengths))
