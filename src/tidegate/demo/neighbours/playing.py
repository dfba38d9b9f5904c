"""How are three runs played at once, on one machine, without favour?

Side by side in one process: whatever disturbs the machine disturbs all three alike. Each has a gateway and a
fleet of its own; engines only wait, so that three fleets need little more of a CPU than one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from random import Random

from rich.console import Console
from rich.live import Live

from tidegate.bench.load import LoadLimits, LoadRecord, run_load
from tidegate.bench.target import Target
from tidegate.core.records import RequestRecord
from tidegate.demo.neighbours import scenario, view
from tidegate.demo.neighbours.comparison import compare, quota_of
from tidegate.demo.neighbours.figures import RunFigures, figures_of
from tidegate.demo.neighbours.scenario import CONFIG, DRAIN_S, KEYS, RULES, Contest, Rule
from tidegate.demo.neighbours.seen import Played, Seen, seen_of
from tidegate.demo.neighbours.view import FleetLook
from tidegate.demo.neighbours.wire import time_round_trips
from tidegate.demo.show import log_to, stopped_by_signals
from tidegate.demo.stage import Stage, configured, shipped
from tidegate.emulator.replica_server import Options
from tidegate.workload.requests import PlannedRequest

LIVE_EVERY_S, PLAIN_EVERY_S = 0.5, 5.0
MOST_OPEN = 300
CHUNK_TOKENS = 4
"""Tokens that an engine tells at once, after the first. One by one they would keep this process twice as
busy, and make all three runs seem slower than they are."""
LOG_LINES = 10


class Trial:
    """One run: a gateway under a rule, a fleet, and clients."""

    def __init__(self, rule: Rule, contest: Contest, requests: Sequence[PlannedRequest]) -> None:
        self.records: list[LoadRecord] = []
        self.round_trips_s: list[float] = []
        self._rule, self._contest = rule, contest
        self._requests = scenario.under(rule, requests)
        self._gateway_records: list[RequestRecord] = []
        config = scenario.ruled(configured(CONFIG), rule, contest.speed)
        (pool,) = config.pools
        self.stage = Stage(
            config,
            scenario.profile(contest.speed),
            Random(contest.seed),
            Options(model=pool, chunk_tokens=CHUNK_TOKENS),
            on_record=self._gateway_records.append,
        )

    async def load(self, stop: asyncio.Event) -> None:
        """Send everything and wait for the answers."""
        ports = [engine.port for engine in self.stage.engines.values()]
        timing = asyncio.create_task(time_round_trips(ports, self.round_trips_s))
        try:
            await run_load(
                Target(url=self.stage.url, model=self.stage.pool, keys=KEYS),
                self._requests,
                limits=LoadLimits(max_open=MOST_OPEN, drain_timeout_s=DRAIN_S / self._contest.speed),
                seed=self._contest.seed,
                on_record=self.records.append,
                stop=stop,
            )
        finally:
            timing.cancel()
            await asyncio.gather(timing, return_exceptions=True)

    def figures(self, sent_s: float) -> RunFigures:
        """How it stands."""
        return figures_of(self._rule, self.records, self._contest.speed, sent_s)

    def seen(self) -> Seen:
        """What its gateway saw; complete once the stage has stopped."""
        return seen_of(self._rule, self._requests, self.records, self._gateway_records)

    def look(self) -> FleetLook:
        """What its gateway believes of the fleet at this moment."""
        pool = self.stage.service.governor.pools[self.stage.pool]
        return FleetLook(
            rule=self._rule.name,
            replicas={
                name: (member.replica.in_flight, member.replica.prefill_held)
                for name, member in pool.members.items()
            },
            queued=pool.queue.requests,
        )


async def play(contest: Contest, console: Console) -> Played:
    """All three runs, and what they prove."""
    # Made before the clocks start: nothing may make a send late.
    requests = scenario.traffic(contest.seed, contest.for_s, contest.speed)
    trials = [Trial(rule, contest, requests) for rule in RULES]
    started: list[Trial] = []
    said: list[str] = []
    stop = asyncio.Event()
    try:
        for trial in trials:
            await trial.stage.start()
            started.append(trial)
        with (
            stopped_by_signals(stop),
            log_to(said.append, leaving_out="tidegate.watch"),
        ):  # refusals are in the table
            clock = asyncio.get_running_loop().time
            begun_at = clock()
            loads = asyncio.gather(*(trial.load(stop) for trial in trials))
            await _watch(contest, console, trials, loads, lambda: (clock() - begun_at) * contest.speed)
            sent_s = min(contest.for_s, (clock() - begun_at) * contest.speed)
        comparison = compare(
            [trial.figures(sent_s) for trial in trials],
            quota_of(shipped(CONFIG)),
            seed=contest.seed,
            speed=contest.speed,
            complete=not stop.is_set(),
            log=said[:LOG_LINES],
        )
    finally:
        await asyncio.gather(*(trial.stage.stop() for trial in started))
    return Played(
        comparison=comparison,
        seen=[trial.seen() for trial in trials],
        round_trips_s=[trip_s for trial in trials for trip_s in trial.round_trips_s],
    )


async def _watch(
    contest: Contest,
    console: Console,
    trials: list[Trial],
    loads: asyncio.Future[list[None]],
    elapsed_s: Callable[[], float],
) -> None:
    def runs() -> list[RunFigures]:
        return [trial.figures(min(elapsed_s(), contest.for_s)) for trial in trials]

    def title() -> str:
        return view.progress(elapsed_s(), contest.for_s, contest.speed)

    if contest.live:
        with Live(console=console, screen=True, auto_refresh=False) as live:
            while not loads.done():
                looks = [trial.look() for trial in trials]
                live.update(view.screen(title(), runs(), looks), refresh=True)
                await asyncio.wait({loads}, timeout=LIVE_EVERY_S)
    else:
        while not loads.done():
            await asyncio.wait({loads}, timeout=PLAIN_EVERY_S)
            if not (contest.quiet or loads.done()):
                console.out(view.line(title(), runs()), highlight=False)
    loads.result()
