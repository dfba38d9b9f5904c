"""How does the demo run from its first to its last second?"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf
from random import Random

import msgspec
import typer
from rich.console import Console
from rich.live import Live

from tidegate.bench.load import LoadLimits, LoadRecord, run_load
from tidegate.bench.target import Target
from tidegate.core.records import RequestRecord
from tidegate.demo import plain
from tidegate.demo.outcome import Outcome, outcome_of
from tidegate.demo.replay import endless, trace
from tidegate.demo.stage import ANY_PORT, Stage, configured, shipped
from tidegate.demo.view import screen
from tidegate.demo.watching import Watch
from tidegate.sim.profiles import named

CONFIG, PROFILE = "demo.yaml", "demo"
KEYS = {"chat": "key-of-chat", "reports": "key-of-reports"}
YOUR_KEY = "demo-key"
LIVE_EVERY_S, PLAIN_EVERY_S = 0.4, 3.0
MOST_OPEN = 400
"""Of the load: client, gateway and engine share this process, with four descriptors a request."""


class Show(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for."""

    for_s: float = inf
    port: int | None = None
    seed: int = 0
    live: bool = True
    quiet: bool = False
    """Say nothing before the end."""


async def play(show: Show, console: Console) -> Outcome:
    """Until `for_s` is over, or somebody presses Ctrl-C."""
    rows = trace()
    by_hand: list[RequestRecord] = []
    config = configured(CONFIG, show.port)
    stage = Stage(
        config,
        named(PROFILE),
        Random(show.seed),
        on_record=lambda record: None if record.tenant in KEYS else by_hand.append(record),
    )
    await stage.start()
    stop = asyncio.Event()
    try:
        with stopped_by_signals(stop):
            told = None if show.live or show.quiet else console.out
            watch = Watch(stage, show.for_s, told)
            with log_to(watch.say):
                if told:
                    told(f"{curl_line(stage)}\n{stage.admin_url}/status", highlight=False)
                if show.port != ANY_PORT and config.listen.port == ANY_PORT:
                    taken = show.port or shipped(CONFIG).listen.port
                    moved = f"port {taken} is taken; the gateway is at {stage.url}"
                    if show.quiet:
                        typer.echo(moved, err=True)
                    else:
                        watch.say(moved)
                asyncio.get_running_loop().call_later(min(show.for_s, 1e9), stop.set)
                target = Target(url=stage.url, model=stage.pool, keys=KEYS)
                load = asyncio.create_task(
                    run_load(
                        target,
                        endless(rows, Random(show.seed)),
                        limits=LoadLimits(max_open=MOST_OPEN),
                        seed=show.seed,
                        on_record=watch.on_record,
                        on_progress=watch.on_progress,
                        stop=stop,
                    )
                )
                await _watch(show, console, stage, watch, load)
        return outcome_of(watch, by_hand, stage.url, show.seed)
    finally:
        await stage.stop()


def curl_line(stage: Stage) -> str:
    """How to try it by hand, in two lines that fit 80 columns."""
    address = stage.url.removeprefix("http://")
    return (
        f"curl {address}/v1/chat/completions -H 'Authorization: Bearer {YOUR_KEY}' \\\n"
        f'  -d \'{{"model":"{stage.pool}","messages":[{{"role":"user","content":"Hello"}}]}}\''
    )


async def _watch(
    show: Show, console: Console, stage: Stage, watch: Watch, load: asyncio.Task[list[LoadRecord]]
) -> None:
    if not show.live:
        while not load.done():
            await asyncio.wait({load}, timeout=PLAIN_EVERY_S)
            if not (show.quiet or load.done()):
                console.out(plain.line(watch.look()), highlight=False)
    else:
        # No thread of its own: it would make the load late, and reading the governor unsafe.
        with Live(console=console, screen=True, auto_refresh=False) as live:
            while not load.done():
                drawn = screen(watch.look(), curl_line(stage), stage.admin_url, console.height)
                live.update(drawn, refresh=True)
                await asyncio.wait({load}, timeout=LIVE_EVERY_S)
    load.result()


@contextmanager
def stopped_by_signals(stop: asyncio.Event) -> Iterator[None]:
    """Ctrl-C ends the show, a second one ends the process."""
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGINT, signal.SIGTERM)

    def interrupted() -> None:
        stop.set()
        for number in numbers:
            loop.remove_signal_handler(number)

    for number in numbers:
        loop.add_signal_handler(number, interrupted)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


class _EventLog(logging.Handler):
    """Hands each message on, as one line."""

    def __init__(self, say: Callable[[str], None], leaving_out: str) -> None:
        super().__init__()
        self._say = say
        self._leaving_out = leaving_out

    def emit(self, record: logging.LogRecord) -> None:
        if record.name != self._leaving_out:
            self._say(record.getMessage())


@contextmanager
def log_to(say: Callable[[str], None], leaving_out: str = "") -> Iterator[None]:
    """What the gateway logs goes there, but for one logger: the screen belongs to the show."""
    root, handler = logging.getLogger(), _EventLog(say, leaving_out)
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
