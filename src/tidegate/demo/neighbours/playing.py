"""How are three runs played at once, on one machine, without favour?

Side by side in one process: whatever disturbs the machine disturbs all three alike. Each has a gateway and a
fleet of its own; engines only wait, so that three fleets need little more of a CPU than one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from random import Random

import msgspec
from rich.console import Console
from rich.live import Live

from tidegate.bench.load import LoadLimits, LoadRecord, run_load
from tidegate.bench.target import Target
from tidegate.demo.neighbours import scenario, view
from tidegate.demo.neighbours.comparison import Comparison, Quota, compare
from tidegate.demo.neighbours.figures import RunFigures, figures_of
from tidegate.demo.neighbours.scenario import CONFIG, KEYS, NOISY, RULES, Rule
from tidegate.demo.neighbours.view import FleetLook
from tidegate.demo.show import log_to, stopped_by_signals
from tidegate.demo.stage import Stage, configured
from tidegate.policy.settings import MINUTE_S
from tidegate.workload.requests import PlannedRequest

LIVE_EVERY_S, PLAIN_EVERY_S = 0.5, 5.0
DRAIN_S = 20.0
"""Of the scenario: how long answers may take after the last request."""
MOST_OPEN = 300
LOG_LINES = 10


class Contest(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for."""

    for_s: float = 120.0
    """Of traffic, in seconds of the scenario."""
    speed: float = 2.0
    """Fleet, traffic and limits alike run so many times as fast."""
    seed: int = 0
    live: bool = True
    quiet: bool = False


class Trial:
    """One run: a gateway under a rule, a fleet, and clients."""

    def __init__(self, rule: Rule, contest: Contest) -> None:
        self.records: list[LoadRecord] = []
        self._rule, self._contest = rule, contest
        config = scenario.ruled(configured(CONFIG), rule, contest.speed)
        self.stage = Stage(config, scenario.profile(contest.speed), Random(contest.seed))

    async def load(self, requests: Sequence[PlannedRequest], stop: asyncio.Event) -> None:
        """Send everything and wait for the answers."""
        await run_load(
            Target(url=self.stage.url, model=self.stage.pool, keys=KEYS),
            scenario.under(self._rule, requests),
            limits=LoadLimits(max_open=MOST_OPEN, drain_timeout_s=DRAIN_S / self._contest.speed),
            seed=self._contest.seed,
            on_record=self.records.append,
            stop=stop,
        )

    def figures(self, sent_s: float) -> RunFigures:
        """How it stands."""
        return figures_of(self._rule, self.records, self._contest.speed, sent_s)

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


async def play(contest: Contest, console: Console) -> Comparison:
    """All three runs, and what they prove."""
    # Made before the clocks start: nothing may make a send late.
    requests = scenario.traffic(contest.seed, contest.for_s, contest.speed)
    trials = [Trial(rule, contest) for rule in RULES]
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
            loads = asyncio.gather(*(trial.load(requests, stop) for trial in trials))
            await _watch(contest, console, trials, loads, lambda: (clock() - begun_at) * contest.speed)
            sent_s = min(contest.for_s, (clock() - begun_at) * contest.speed)
        runs = [trial.figures(sent_s) for trial in trials]
        return compare(
            runs,
            quota(trials[-1].stage),
            seed=contest.seed,
            speed=contest.speed,
            complete=not stop.is_set(),
            log=said[:LOG_LINES],
        )
    finally:
        await asyncio.gather(*(trial.stage.stop() for trial in started))


def quota(stage: Stage) -> Quota:
    """The noisy tenant's, as shipped, beside an equal share of the fleet."""
    config = configured(CONFIG)
    limits = config.tenants[NOISY].limits
    assert limits is not None
    assert limits.tokens_per_minute is not None
    capacity = scenario.capacity_tokens_per_minute(len(stage.engines))
    return Quota(
        tokens_per_minute=limits.tokens_per_minute,
        burst_tokens=limits.tokens_per_minute * limits.burst_s / MINUTE_S,
        capacity_tokens_per_minute=capacity,
        tenants=len(config.tenants),
        equal_share_tokens_per_minute=capacity / len(config.tenants),
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
