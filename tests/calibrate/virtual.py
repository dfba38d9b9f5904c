"""An engine with a known curve in virtual time: the emulator's, on a clock that the test moves."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from math import inf
from typing import cast

from tests.emulator.clock_loop import ClockLoop
from tidegate.bench.load import LoadRecord
from tidegate.calibrate.experiment import Cell
from tidegate.calibrate.streams import Stream
from tidegate.core.curve import Linear
from tidegate.emulator.engine import Choice, Engine
from tidegate.emulator.metrics import page
from tidegate.sim.profiles import Profile
from tidegate.sim.sequence import Sequence
from tidegate.sim.settings import ReplicaSettings

TRUE = Profile(
    curve=Linear(
        a_s=8e-3,
        b_s_per_sequence=0.2e-3,
        c_s_per_context_token=0.3e-6,
        d_s_per_prefill_token=40e-6,
        e_s_per_prefill_token_squared=2e-9,
    ),
    replica=ReplicaSettings(max_num_seqs=24, max_batched_tokens=2048, kv_tokens=65_536, context_tokens=8192),
)
DELIVERY_S = 1e-3
"""From the end of a step to the client."""


class Client:
    """Notes when its tokens come."""

    def __init__(self, loop: ClockLoop, number: int, sizes: tuple[int, int]) -> None:
        self.loop, self.number, self.sizes = loop, number, sizes
        self.sent_at = loop.now
        self.deltas: list[tuple[float, int]] = []
        self.choice = Choice(0, 0, Sequence(number, *sizes), True, loop.now)
        self.choice.taker = self

    def flush(self) -> None:
        """Tokens have come."""
        self.deltas.append((self.loop.now + DELIVERY_S, self.choice.ready))

    def stream(self) -> Stream:
        """What it saw."""
        ended_at = self.deltas[-1][0]
        record = LoadRecord(
            request_id=self.number,
            tenant="default",
            priority="",
            pool="m",
            arrived_at=self.sent_at,
            dispatched_at=self.sent_at,
            first_token_at=self.deltas[0][0],
            ended_at=ended_at,
            prompt_tokens=self.sizes[0],
            output_tokens=self.sizes[1],
            asked_tokens=self.sizes[1],
        )
        return Stream(record=record, deltas=tuple(self.deltas))


class VirtualEngine:
    """One replica of `profile`, whose time passes only when something happens."""

    def __init__(self, profile: Profile = TRUE) -> None:
        self.loop = ClockLoop()
        self.engine = Engine(profile, cast(asyncio.AbstractEventLoop, self.loop))
        self.cells: list[Cell] = []
        self._count = 0

    def now(self) -> float:
        """Seconds since it was made."""
        return self.loop.now

    async def send(self, cell: Cell) -> list[Stream]:
        """As an experiment sends: all at once, until all have ended."""
        self.cells.append(cell)
        clients = [self._submit((cell.prompt_tokens, cell.output_tokens)) for _ in range(cell.sequences)]
        self.until(inf)
        return [each.stream() for each in clients]

    def serve(
        self, arrivals: Iterable[tuple[float, int, int]], scrape_every_s: float = inf
    ) -> tuple[list[LoadRecord], list[tuple[float, str]]]:
        """Instants, prompt and output tokens -> records of the clients, and pages of /metrics."""
        clients, pages, scrape_at = [], [], scrape_every_s
        for at, prompt, output in arrivals:
            while scrape_at < at:
                self.until(scrape_at)
                pages.append((self.loop.now, self.page()))
                scrape_at += scrape_every_s
            self.until(at)
            clients.append(self._submit((prompt, output)))
        self.until(inf)
        return [each.stream().record for each in clients], pages

    def page(self) -> str:
        """The text of /metrics."""
        return page("m", self.engine.replica, self.engine.meter).decode()

    def until(self, instant: float) -> None:
        """Let time pass; forever means until nothing is left to do."""
        while self.loop.due is not None and self.loop.due[0] <= instant:
            self.loop.fire()
        if instant < inf:
            self.loop.now = max(self.loop.now, instant)

    def _submit(self, sizes: tuple[int, int]) -> Client:
        self._count += 1
        client = Client(self.loop, self._count, sizes)
        self.engine.submit([client.choice])
        return client
