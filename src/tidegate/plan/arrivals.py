"""What do many requests come to, as a load: which kinds are there, and how busy is the busiest minute?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise, zip_longest
from math import ceil, isnan, sqrt

import msgspec

from tidegate.core.errors import ConfigurationError
from tidegate.plan.ask import Kind, Load
from tidegate.workload.statistics.counting import Moments

WINDOW_S = 60
"""Of what is planned for: shorter bursts are met by the queue, longer ones by replicas."""
HOUR_S = 3600.0
CELLS = 5
"""Prompt lengths, and output lengths of each, that are told apart: equally many requests in each."""
FEW_GAPS = 100
"""Below, the burstiness inside a minute is taken for that of Poisson arrivals."""


class Arrival(msgspec.Struct, frozen=True, gc=False):
    """One request."""

    at_s: float
    prompt_tokens: int
    output_tokens: int
    tenant: str = ""
    class_: str = ""


class Hour(msgspec.Struct, frozen=True, kw_only=True):
    """How busy an hour of the day is."""

    hour: int
    """From 0, of the load's own clock."""
    requests_per_s: float
    """In its busiest minute."""


class Stream(msgspec.Struct, frozen=True, kw_only=True):
    """Requests of one source over a stretch of time."""

    per_minute: tuple[float, ...]
    """How many come, or are expected, in each minute from the start on."""
    sample: tuple[Arrival, ...]
    """Some of them, or all, from which lengths are taken."""
    gap_cv: float = 1.0

    @property
    def requests(self) -> float:
        """All of them."""
        return sum(self.per_minute)


def stream_of(arrivals: Sequence[Arrival]) -> Stream:
    """Of arrivals, ascending; the last minute counts though the arrivals end in it."""
    if not arrivals:
        raise ConfigurationError(["nothing arrives; give a load with at least one request"])
    start_s = arrivals[0].at_s
    counts = [0] * (int((arrivals[-1].at_s - start_s) / WINDOW_S) + 1)
    for arrival in arrivals:
        counts[int((arrival.at_s - start_s) / WINDOW_S)] += 1
    return Stream(per_minute=tuple(counts), sample=tuple(arrivals), gap_cv=_gap_cv(arrivals))


def load_of_streams(streams: Sequence[Stream], prefix_hit_ratio: float = 0.0) -> Load:
    """All of them together, in their busiest minute."""
    counts = _together(streams)
    requests = sum(counts)
    burstiness = sum(stream.requests * stream.gap_cv**2 for stream in streams) / requests
    return Load(
        kinds=tuple(kind for stream in streams for kind in _kinds(stream)),
        requests_per_s=max(counts) / WINDOW_S,
        peak_ratio=max(1.0, max(counts) * len(counts) / requests),  # of an even load the sums round
        gap_cv=sqrt(burstiness),
        prefix_hit_ratio=prefix_hit_ratio,
    )


def hours_of(streams: Sequence[Stream]) -> list[Hour]:
    """By hour of the day; of several days each hour is as busy as in the busiest of them."""
    busiest: dict[int, float] = {}
    for window, count in enumerate(_together(streams)):
        hour = int(window * WINDOW_S / HOUR_S) % 24
        busiest[hour] = max(busiest.get(hour, 0.0), count)
    return [Hour(hour=hour, requests_per_s=busiest[hour] / WINDOW_S) for hour in sorted(busiest)]


def _together(streams: Sequence[Stream]) -> list[float]:
    """Requests of each minute; who has ended sends nothing."""
    return [sum(counts) for counts in zip_longest(*(stream.per_minute for stream in streams), fillvalue=0.0)]


def _gap_cv(arrivals: Sequence[Arrival]) -> float:
    """Of the gaps; 1 where a trace has rounded its times, or is too short to tell."""
    gaps = Moments()
    for earlier, later in pairwise(arrivals):
        gaps.add(later.at_s - earlier.at_s)
    instants = len({arrival.at_s for arrival in arrivals})
    told = gaps.count >= FEW_GAPS and instants > 0.9 * len(arrivals)
    return gaps.cv if told and not isnan(gaps.cv) else 1.0


def _kinds(stream: Stream) -> Iterator[Kind]:
    """Of each tenant and class, cells of similar lengths, which keep the means exact."""

    def asker(arrival: Arrival) -> tuple[str, str]:
        return arrival.tenant, arrival.class_

    for (tenant, class_), own in groupby(sorted(stream.sample, key=asker), key=asker):
        for cell in _cells(list(own)):
            yield Kind(
                prompt_tokens=sum(each.prompt_tokens for each in cell) / len(cell),
                output_tokens=sum(max(1, each.output_tokens) for each in cell) / len(cell),
                share=len(cell) * stream.requests / len(stream.sample),
                tenant=tenant,
                class_=class_,
            )


def _cells(arrivals: list[Arrival]) -> Iterator[list[Arrival]]:
    for column in _parts(sorted(arrivals, key=lambda each: each.prompt_tokens)):
        yield from _parts(sorted(column, key=lambda each: each.output_tokens))


def _parts(ordered: list[Arrival]) -> Iterator[list[Arrival]]:
    size = ceil(len(ordered) / CELLS)
    for start in range(0, len(ordered), size):
        yield ordered[start : start + size]
