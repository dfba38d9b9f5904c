"""How is an experiment run on an engine, and what if the engine does not take it as it was designed?"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from statistics import fmean

import msgspec

from tidegate.bench.load import LoadLimits, LoadRecord, run_load
from tidegate.bench.target import Target
from tidegate.calibrate.experiment import Cell, Limits, cells
from tidegate.calibrate.points import Point
from tidegate.calibrate.repeats import repeat_errors
from tidegate.calibrate.streams import Stream, at_once, points_of
from tidegate.calibrate.told import MAX_BATCHED_TOKENS, Told
from tidegate.core.errors import ConfigurationError
from tidegate.workload.requests import PlannedRequest

CONTEXT_TOKENS = 4096
"""Of an engine that does not tell, and of which nobody says."""
CONTEXTS_HELD = 4
"""Whole contexts that fit into a cache of which nobody says how large it is."""
PROMPT_REPEATS = 2
"""A prompt is one point only, where a batch is several."""
ROUNDS = 3
"""The experiment is repeated while there is time, so often at most,"""
REPEATABLE = 0.05
"""unless repeats of a measurement differ from their median by more than this, in the mean."""
SEATS, MOST_SEATS = 16, 256
"""Sequences at once that are tried where the engine does not tell how many it takes."""
SEATS_SHARE = 0.25
"""Of the time that is left, that a trial may take."""
SEATS_TOKENS, LONGER = 48, 4
"""Of an answer in a trial, long enough that a client that is late by some of them does not miss a seat; and
how many times as long in another, where not all were computed at once."""
PROBE = Cell(sequences=1, prompt_tokens=64, output_tokens=24, steps=16)
LONG_PROBE_TOKENS = 1024


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """What came of an experiment."""

    points: list[Point]
    seats: int | None
    """Sequences that the engine computes at once while others wait; None: it was told, or none waited."""
    failures: dict[str, str]
    """What kept cells from being measured, by their names."""


class Scale(msgspec.Struct, frozen=True, kw_only=True):
    """What a prompt becomes in the engine's own count: its tokenizer, and its chat template."""

    ratio: float = 1.0
    extra: float = 0.0

    @classmethod
    def between(cls, short: tuple[int, int], long: tuple[int, int]) -> Scale:
        """By two prompts: tokens that were asked for, and tokens that were counted."""
        (asked, counted), (more_asked, more_counted) = short, long
        ratio = (more_counted - counted) / (more_asked - asked)
        return cls(ratio=ratio, extra=counted - ratio * asked) if ratio > 0 else cls()

    def asked(self, tokens: int) -> int:
        """What to ask for, to have so many counted."""
        return max(1, round((tokens - self.extra) / self.ratio))


Send = Callable[[Cell], Awaitable[list[Stream]]]
"""Sends the requests of a cell all at once, and returns their answers when all have ended."""


class Sender:
    """Sends cells to an engine, by the load of `tidegate bench`."""

    def __init__(self, target: Target, *, seed: int, patience_s: float) -> None:
        """Cells with other seeds have other prompts; `patience_s` is for the answers of one cell."""
        self._target, self._seed, self._patience_s = target, seed, patience_s
        self._sent = 0

    async def __call__(self, cell: Cell) -> list[Stream]:
        """Its requests, all at once; none of their prompts was sent before."""
        self._sent += 1
        deltas: dict[int, list[tuple[float, int]]] = {}
        planned = PlannedRequest(at_s=0.0, prompt_tokens=cell.prompt_tokens, output_tokens=cell.output_tokens)
        records: list[LoadRecord] = await run_load(
            self._target,
            [planned] * cell.sequences,
            limits=LoadLimits(drain_timeout_s=self._patience_s),
            seed=self._seed + self._sent,
            on_deltas=lambda number, at, count: deltas.setdefault(number, []).append((at, count)),
        )
        return [Stream(record=each, deltas=tuple(deltas.get(each.request_id, ()))) for each in records]


class Experiment:
    """One experiment on one engine."""

    def __init__(
        self,
        send: Send,
        told: Told,
        *,
        for_s: float,
        now: Callable[[], float],
        on_cell: Callable[[str], None] = lambda _: None,
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        """`on_cell` is told what is measured now; once `stopped`, what is under way is the last."""
        self._send, self._told, self._for_s = send, told, for_s
        self._now, self._on_cell, self._stopped = now, on_cell, stopped
        self._budget_tokens = told.max_batched_tokens or MAX_BATCHED_TOKENS
        self._points: list[Point] = []
        self._runs = 0
        self._failures: dict[str, str] = {}
        self._longer: dict[Cell, int] = {}
        self._scale = Scale()

    async def run(self) -> Measurement:
        """Until all is measured often enough, or the time is over. ConfigurationError if nothing can be."""
        ends_at = self._now() + self._for_s
        first, prefill_tokens_per_s = await self._probe()
        seats, full = self._told.max_num_seqs, False
        if seats is None:
            seats, full = await self._seats(ends_at)
        context = self._told.context_tokens or CONTEXT_TOKENS
        limits = Limits(
            max_num_seqs=seats,
            max_batched_tokens=self._budget_tokens,
            kv_tokens=self._told.kv_tokens or CONTEXTS_HELD * context,
            context_tokens=context,
            for_s=self._for_s,
            step_s=first.tpot_s or 1.0,
            prefill_tokens_per_s=prefill_tokens_per_s,
        )
        planned, rounds = cells(limits), 0
        while rounds < ROUNDS or fmean(repeat_errors(self._points) or [0.0]) > REPEATABLE:
            if not await self._round(planned, ends_at):
                break
            rounds += 1
        return Measurement(points=self._points, seats=seats if full else None, failures=self._failures)

    async def _probe(self) -> tuple[LoadRecord, float]:
        """One short answer, and how many prompt tokens are computed in a second."""
        self._on_cell("a first answer")
        (short,) = await self._send(PROBE)
        record = short.record
        if not record.ok:
            raise ConfigurationError([f"{record.error}: {record.detail or 'no answer'}"])
        if record.tpot_s is None or not short.deltas:
            said = f"{record.output_tokens} of {PROBE.output_tokens} tokens"
            raise ConfigurationError([f"answered {said} in a stream; it takes them all"])
        length = max(
            min(LONG_PROBE_TOKENS, (self._told.context_tokens or CONTEXT_TOKENS) // 4),
            2 * PROBE.prompt_tokens,
        )
        (long,) = await self._send(Cell(sequences=1, prompt_tokens=length, output_tokens=1))
        if not long.record.ok:
            raise ConfigurationError(
                [f"a prompt of {length:,} tokens: {long.record.error}: {long.record.detail or 'no answer'}"]
            )
        more_s = (long.record.ttft_s or 0.0) - (record.ttft_s or 0.0)
        more = max(long.record.prompt_tokens - record.prompt_tokens, 1)
        self._scale = Scale.between(
            (PROBE.prompt_tokens, record.prompt_tokens), (length, long.record.prompt_tokens)
        )
        return record, more / max(more_s, 1e-3)

    async def _seats(self, ends_at: float) -> tuple[int, bool]:
        """How many sequences the engine computes at once, and whether it is no more than that."""
        tried = SEATS
        while True:
            began_at = self._now()
            seated, answered = await self._seated(tried, SEATS_TOKENS)
            share_s = SEATS_SHARE * (ends_at - self._now())
            took_s = self._now() - began_at
            if seated < tried and LONGER * took_s <= share_s:
                # Short answers may come in one piece each, and then none seems to come beside another.
                again, answered = await self._seated(tried, LONGER * SEATS_TOKENS)
                seated = max(seated, again)
            if seated < tried:
                return max(seated, 1), answered == tried
            if tried >= MOST_SEATS or 4 * took_s > share_s:
                return tried, False
            tried = min(4 * tried, MOST_SEATS)

    async def _seated(self, tried: int, tokens: int) -> tuple[int, int]:
        """Of so many requests for so many tokens: how many were computed at once, and how many answered."""
        self._on_cell(f"whether {tried} run at once")
        output = tokens + -(-tried * PROBE.prompt_tokens // self._budget_tokens)
        probe = Cell(sequences=tried, prompt_tokens=PROBE.prompt_tokens, output_tokens=output, steps=1)
        streams = [each for each in await self._sent(probe) if each.record.ok and each.deltas]
        return (at_once(streams) if streams else 0), len(streams)

    async def _sent(self, cell: Cell) -> list[Stream]:
        """Its answers; its prompt is of as many tokens as the engine counts."""
        asked = self._scale.asked(cell.prompt_tokens)
        return await self._send(msgspec.structs.replace(cell, prompt_tokens=asked))

    async def _round(self, planned: Sequence[Cell], ends_at: float) -> bool:
        """Whether there was time for all of them."""
        for cell in planned:
            if self._now() >= ends_at or self._stopped():
                return False
            for _ in range(1 if cell.steps else PROMPT_REPEATS):
                await self._measure(cell)
        return True

    async def _measure(self, cell: Cell) -> None:
        self._on_cell(cell.name)
        longer = self._longer.get(cell, cell.output_tokens)
        streams = await self._sent(msgspec.structs.replace(cell, output_tokens=longer))
        failed = next((each.record for each in streams if not each.record.ok), None)
        if failed is not None:
            self._failures.setdefault(cell.name, f"{failed.error}: {failed.detail}")
            return
        self._runs += 1
        found = points_of(cell, streams, self._budget_tokens)
        self._points += [msgspec.structs.replace(each, run=self._runs) for each in found]
        if cell.steps and all(each.prompt_tokens for each in found):
            # The batch was never whole: the prompts of the last took as long as the answers of the first.
            self._longer[cell] = 2 * longer
