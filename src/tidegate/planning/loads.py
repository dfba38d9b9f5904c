"""What load do a trace or a traffic file come to?

A day of a traffic file may be a million requests. A source that comes by itself is not played: its rate has
an integral. One that goes on as it began is played until it has settled, and the others all day.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from itertools import count, islice, pairwise
from pathlib import Path

import msgspec

from tidegate.config.traces import known_trace
from tidegate.config.traffic import ClientSource, OpenSource, SessionSource, Source
from tidegate.config.traffic_loading import Traffic, load_traffic
from tidegate.core.errors import ConfigurationError
from tidegate.core.records import Budgets
from tidegate.plan.arrivals import WINDOW_S, Arrival, Stream, stream_of
from tidegate.plan.ask import ClassBudgets, Terms
from tidegate.plan.tenants import DEFAULT
from tidegate.workload.laws.arrivals import Constant, Poisson, Renewal, Replay
from tidegate.workload.requests import PlannedRequest, Workload

SPAN_S = 86_400.0
"""Of a traffic file: a day."""
SETTLED_S = 3600.0
"""After so long a source that goes on as it began is as busy as it will be; so long it is then looked at."""
SAMPLE = 1000
"""Requests of a source that comes by itself, from which its lengths are taken."""
MOST_REQUESTS = 300_000
"""Of one source, played: more would take longer than a plan should."""
ANSWER_S, TOKEN_S = 1.0, 0.05
"""How long answers take where clients wait for them, without a budget that says it: TTFT, and per token."""
SEED = 1


def trace_stream(name: str) -> Stream:
    """All requests of a trace."""
    rows = known_trace(name)
    return stream_of([Arrival(row.arrived_s, row.prompt_tokens, row.output_tokens) for row in rows])


def traffic_streams(path: Path, terms: Terms) -> list[Stream]:
    """A day of each source of a traffic file. Raises ConfigurationError for a file that is none.

    Clients who wait for an answer get it as late as the budgets of their class allow, and then ask again.
    """
    traffic = _traffic(path)
    return [
        _stream(traffic.only(name), source, terms.budgets_of(source.class_ or DEFAULT))
        for name, source in traffic.config.sources.items()
    ]


def classes_of_traffic(path: Path, budgets: Budgets) -> tuple[ClassBudgets, ...]:
    """Of a traffic file, in its order; of figures that one does not name it has those that are given.

    Empty where no class of the file has budgets. Raises ConfigurationError for a file that is none.
    """
    config = _traffic(path).config
    if not config.classes:
        return ()
    asked = dict.fromkeys(source.class_ or DEFAULT for source in config.sources.values())
    given = msgspec.structs.asdict(budgets)
    found = []
    for name in asked:
        own = msgspec.structs.asdict(config.classes[name].budgets) if name in config.classes else {}
        held = {figure: own.get(figure) or value for figure, value in given.items()}
        found.append(ClassBudgets(name=name, budgets=Budgets(**held)))
    return tuple(found)


def tightest(classes: Iterable[ClassBudgets]) -> Budgets:
    """Of each figure the least that any class has."""
    found: dict[str, float] = {}
    for each in classes:
        for figure, value in msgspec.structs.asdict(each.budgets).items():
            if value is not None:
                found[figure] = min(value, found.get(figure, value))
    return Budgets(**found)


def _traffic(path: Path) -> Traffic:
    if not path.exists():
        raise ConfigurationError([f"--traffic {path}: No such file; give a traffic file (YAML)"])
    return load_traffic(path)


def _stream(alone: Traffic, source: Source, budgets: Budgets) -> Stream:
    workload = alone.workload(SEED)
    if isinstance(source, OpenSource):
        sample = tuple(map(_arrival, islice(workload.starts(), SAMPLE)))
        arrivals = source.arrivals.arrivals()
        even = 0.0 if source.arrivals.gaps == "even" else 1.0
        return Stream(per_minute=_expected(arrivals), sample=sample, gap_cv=source.arrivals.cv or even)
    steady = isinstance(source, ClientSource) or (
        isinstance(source, SessionSource) and source.starts.rate_per_s is not None
    )
    span_s = 2 * SETTLED_S if steady else SPAN_S
    ttft_s = budgets.ttft_s if budgets.ttft_s is not None else ANSWER_S
    token_s = budgets.tpot_s if budgets.tpot_s is not None else TOKEN_S
    played = list(map(_arrival, islice(_played(workload, ttft_s, token_s, span_s), MOST_REQUESTS)))
    if not steady:
        return stream_of(played)
    settled = tuple(each for each in played if each.at_s >= SETTLED_S) or tuple(played)
    a_minute = len(settled) / (SETTLED_S / WINDOW_S)
    return Stream(per_minute=(a_minute,) * int(SPAN_S / WINDOW_S), sample=settled)


def _arrival(planned: PlannedRequest) -> Arrival:
    return Arrival(
        planned.at_s, planned.prompt_tokens, planned.output_tokens, planned.tenant, planned.priority
    )


def _expected(arrivals: Poisson | Constant | Renewal | Replay) -> tuple[float, ...]:
    """In each minute of a day."""
    minutes = int(SPAN_S / WINDOW_S)
    if isinstance(arrivals, Renewal):
        until = [arrivals.rate.expected(minute * WINDOW_S) for minute in range(minutes + 1)]
        return tuple(later - earlier for earlier, later in pairwise(until))
    assert isinstance(arrivals, Poisson | Constant)
    return (arrivals.rate_per_s * WINDOW_S,) * minutes


def _played(workload: Workload, ttft_s: float, token_s: float, span_s: float) -> Iterator[PlannedRequest]:
    """Requests in order of arrival, before `span_s`."""
    starts, number = workload.starts(), count()
    waiting: list[tuple[float, int, PlannedRequest]] = []
    coming = next(starts, None)
    while coming is not None or waiting:
        if waiting and (coming is None or waiting[0][0] <= coming.at_s):
            _, _, each = heappop(waiting)
        else:
            assert coming is not None
            each, coming = coming, next(starts, None)
        if each.at_s >= span_s:
            return
        yield each
        ended_at_s = each.at_s + ttft_s + (each.output_tokens - 1) * token_s
        following = workload.after(each, ended_at_s, True)
        if following is not None:
            heappush(waiting, (following.at_s, next(number), following))
