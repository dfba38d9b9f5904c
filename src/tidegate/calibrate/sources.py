"""Where do the points come from: an engine that is measured, one that is watched, or files?"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic

import msgspec

from tidegate.bench.load import most_open
from tidegate.bench.target import Target
from tidegate.calibrate import records as bench_records
from tidegate.calibrate import scrapes as saved_scrapes
from tidegate.calibrate.live import Experiment, Sender
from tidegate.calibrate.pages import Page
from tidegate.calibrate.points import Point
from tidegate.calibrate.told import MAX_BATCHED_TOKENS, Scraper, Told, listing_of, of_page, told_by
from tidegate.core.errors import ConfigurationError
from tidegate.core.units import format_duration

WATCH_EVERY_S = 1.0
LEAST_PATIENCE_S = 60.0
"""With the answers of one cell."""
FULL_PAGES = 3
"""That show the same number of sequences, and others that wait, before it is taken for all there can be."""
FEWEST_POINTS = 8
"""Of decode steps; with fewer no line is worth writing down."""


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """Points, and what is known of the engine besides."""

    points: list[Point]
    told: Told
    source: str
    missing: tuple[str, ...] = ()
    """What could not be measured, and why."""
    repeated: bool = False
    """Whether points of one name are repeats of one measurement."""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """An engine, and how it is to be measured."""

    url: str
    model: str | None
    api_key: str
    for_s: float
    seed: int | None
    watch: bool = False
    """Only scrape it."""


async def of_engine(asked: Asked, given: Told, on_cell: Callable[[str], None] = lambda _: None) -> Found:
    """Measure a running engine, or watch it. Raises ConfigurationError where that shows too little."""
    listed = await listing_of(asked.url, asked.api_key, asked.model)
    keys = {"default": asked.api_key} if asked.api_key else {}
    target = Target(url=asked.url, model=listed.id, keys=keys)
    told = given.over(await told_by(target, listed))
    source = f"{listed.id} at {asked.url}"
    if asked.watch:
        pages = await _watched(target, asked.for_s, on_cell)
        return _of_pages(pages, told, source)
    return await _measured(target, told, asked, on_cell)


async def _measured(target: Target, told: Told, asked: Asked, on_cell: Callable[[str], None]) -> Found:
    most_open(told.max_num_seqs)
    seed = int.from_bytes(os.urandom(3)) if asked.seed is None else asked.seed
    send = Sender(target, seed=seed, patience_s=max(LEAST_PATIENCE_S, asked.for_s))
    with _interruptible() as stop:
        experiment = Experiment(
            send, told, for_s=asked.for_s, now=monotonic, on_cell=on_cell, stopped=stop.is_set
        )
        try:
            found = await experiment.run()
        except ConfigurationError as error:
            raise ConfigurationError([f"{target.url}: {problem}" for problem in error.problems]) from None
    missing = tuple(f"{name} could not be measured: {why}" for name, why in found.failures.items())
    decoded = sum(not each.prompt_tokens for each in found.points)
    if decoded < FEWEST_POINTS:
        shown = format_duration(asked.for_s)
        problem = f"{decoded} points of decode steps in {shown}: it takes {FEWEST_POINTS}; raise --for"
        raise ConfigurationError([*missing, problem])
    return Found(
        points=found.points,
        told=Told(max_num_seqs=found.seats).over(told) if found.seats else told,
        source=f"{target.model} at {target.url}",
        missing=missing,
        repeated=True,
    )


async def _watched(target: Target, for_s: float, on_cell: Callable[[str], None]) -> list[Page]:
    """Its pages, one a second, until the time is over or Ctrl-C."""
    scraper, ends_at, pages = Scraper(target), monotonic() + for_s, []
    with _interruptible() as stop:
        try:
            while monotonic() < ends_at and not stop.is_set():
                page = await scraper.page(monotonic())
                if page is None:
                    problem = "has no /metrics as vLLM writes them, or SGLang with --enable-metrics"
                    problem += "; without --watch, load measures it"
                    raise ConfigurationError([f"{target.url}: {problem}"])
                pages.append(page)
                on_cell(f"{page['num_requests_running']:.0f} at once")
                with suppress(TimeoutError):
                    async with asyncio.timeout(WATCH_EVERY_S):
                        await stop.wait()
        finally:
            await scraper.close()
    return pages


@contextmanager
def _interruptible() -> Iterator[asyncio.Event]:
    """Set by Ctrl-C, which ends a run early with what there is; a second one ends it at once."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()

    def interrupted() -> None:
        stop.set()
        loop.remove_signal_handler(signal.SIGINT)

    loop.add_signal_handler(signal.SIGINT, interrupted)
    try:
        yield stop
    finally:
        loop.remove_signal_handler(signal.SIGINT)


def of_records(path: Path, given: Told) -> Found:
    """From what a bench run has written. Raises ConfigurationError."""
    records = bench_records.read_records(path)
    points = bench_records.points_of(records, given.max_batched_tokens or MAX_BATCHED_TOKENS)
    if sum(not each.prompt_tokens for each in points) < FEWEST_POINTS:
        ok = sum(each.ok for each in records)
        remedy = f"it takes {FEWEST_POINTS} streamed answers of {bench_records.LEAST_TOKENS} tokens or more"
        raise ConfigurationError(
            [f"--records {path}: has {len(records)} requests, {ok} of them ok: {remedy}"]
        )
    return Found(points=points, told=given, source=str(path))


def of_scrapes(path: Path, given: Told) -> Found:
    """From saved pages of /metrics. Raises ConfigurationError."""
    return _of_pages(saved_scrapes.pages_of(path), given, str(path))


def _of_pages(pages: Sequence[Page], told: Told, source: str) -> Found:
    points = saved_scrapes.points_of(pages, told.kv_tokens)
    if len(points) < FEWEST_POINTS:
        problem = f"{len(points)} of {max(len(pages) - 1, 0)} intervals between scrapes had a steady batch"
        raise ConfigurationError(
            [f"{source}: {problem}, and it takes {FEWEST_POINTS}: scrape a busy engine, every second or so"]
        )
    seen = Told(max_num_seqs=_seats(pages)).over(of_page(pages[-1]))
    return Found(points=points, told=told.over(seen), source=source)


def _seats(pages: Sequence[Page]) -> int | None:
    """The most that ever ran, if others waited then; now and then one only waits for the next step."""
    most = max(page["num_requests_running"] for page in pages)
    full = [
        page for page in pages if page["num_requests_running"] == most and page["num_requests_waiting"] > 0
    ]
    return int(most) if most >= 1 and len(full) >= FULL_PAGES else None
