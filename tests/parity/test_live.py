"""A gateway that served real sockets and emulated engines, through all that can go wrong, replays exactly.

Each scene brings about one thing, again and again until the tape shows it: a busy machine only takes longer.
"""

from __future__ import annotations

import asyncio
import stat
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from tests.emulator.inside import QUICK
from tests.gateway.fake_engine import MODEL, answer, fake_engine
from tests.gateway.gateway_in_process import Running, configured, run, serving, until
from tests.gateway.http_client import CHAT, ask, chat, talking
from tests.gateway.test_shutdown import started, written
from tests.parity import reach
from tests.parity.reach import COMMANDS, RACES, lacking, shows
from tidegate.cli import command_line
from tidegate.core.messages import DrainAsked, ReplicaSeen, ShutdownAsked
from tidegate.core.reasons import Reason
from tidegate.emulator.faults import Fault, Kind
from tidegate.emulator.replica_server import Options
from tidegate.emulator.server import Emulator
from tidegate.policy.tape import Entry, Tape, replay

TRIES = 40
"""Of a scene. One is nearly always enough."""

POOL: dict[str, Any] = {
    "engine": "vllm",
    "gate": {"max_concurrency": 4, "kv_tokens": 2_000},
    "queue": {"max_requests": 6},
    "health": {"interval_s": 0.1, "stale_after_s": 1.0, "max_ejected_share": 1.0},
    "breaker": {"open_s": 0.05, "open_max_s": 0.1},
    "retry": {"floor": 100},
    "deadlines": {"ttft_s": 0.5, "total_s": 0.7},
    "prediction": {"output_tokens": 100},
}
"""Everything within a second, and KV tokens for one long prompt and some short ones on each replica."""

SHORT = "secret " * 7
LONG = "secret " * 650
"""About 1,100 tokens: one is held, a second does not fit beside it."""


@dataclass(slots=True)
class Stage:
    """A gateway before two emulated replicas, and the tape so far."""

    gateway: Running
    emulator: Emulator
    lines: list[bytes] = field(default_factory=list)

    def calls(self) -> list[Entry]:
        """What the tape holds."""
        return list(Tape.read(self.lines).calls)

    def told(self, event: str) -> int:
        """How often the governor was told that."""
        tag = b'"type":"%b"' % event.encode()
        return sum(tag in line for line in self.lines)

    def drain(self, replica: str, drain: bool = True) -> None:
        """As an operator would."""
        self.gateway.service.driver.tell(DrainAsked(replica=replica, drain=drain))

    async def until_shown(self, name: str, scene: Callable[[Stage], Awaitable[None]]) -> None:
        """Play a scene until the tape shows what it is for; whatever it injected is over then."""
        for _ in range(TRIES):
            await scene(self)
            self.emulator.clear()
            await until(lambda: not self.gateway.in_flight)
            if shows(self.calls())[name]:
                return
        raise AssertionError(f"after {TRIES} tries there is no: {name}")

    @contextmanager
    def fault(self, kind: Kind, replica: int | None = None, **more: Any) -> Iterator[None]:
        """What goes wrong, on one replica or on both."""
        port = None if replica is None else self.emulator.ports[replica]
        self.emulator.inject(Fault(kind=kind, port=port, **more))
        try:
            yield
        finally:
            self.emulator.clear()

    async def ask(self, content: str = SHORT, **more: Any) -> int:
        """One request; its status."""
        return (await ask(self.gateway.port, CHAT, chat(content=content, ignore_eos=True, **more))).status

    async def many(self, number: int, **more: Any) -> list[int]:
        """Several at once."""
        return await asyncio.gather(*(self.ask(**more) for _ in range(number)))


# -- scenes ---------------------------------------------------------------------------------------


async def overload(stage: Stage) -> None:
    """Three times as many as fit: some wait, some are refused."""
    await stage.many(30, max_tokens=60)


async def failure(stage: Stage) -> None:
    """One replica answers 500; the other takes over."""
    with stage.fault(Kind.ERROR_500, replica=0):
        await stage.many(6, max_tokens=5)


async def busy(stage: Stage) -> None:
    """Both say that they are busy, and mean it for a moment."""
    stage.emulator.inject(Fault(kind=Kind.BUSY_503, requests=1, retry_after_s=0))
    await stage.many(3, max_tokens=5)


async def leaving_between_attempts(stage: Stage) -> None:
    """One replica answers 500, the other is full: the next attempt waits, and the client leaves."""
    first, _ = stage.gateway.service.governor.members
    stage.drain(first)
    full = [asyncio.create_task(stage.ask(max_tokens=800)) for _ in range(4)]
    await until(lambda: stage.gateway.in_flight == 4)
    stage.drain(first, False)
    with stage.fault(Kind.ERROR_500, replica=0):
        failed = stage.told("Failed")
        async with talking(stage.gateway.port) as talk:
            talk.request(CHAT, chat(content=SHORT, max_tokens=5))
            await until(lambda: stage.told("Failed") > failed)
    await asyncio.gather(*full)


async def leaving_early(stage: Stage) -> None:
    """Nothing is said any more, and the client leaves before its first token."""
    with stage.fault(Kind.STALL):
        async with talking(stage.gateway.port) as talk:
            talk.request(CHAT, chat(content=SHORT, max_tokens=5))
            await asyncio.sleep(0.02)


async def leaving_late(stage: Stage) -> None:
    """Clients leave as soon as the gateway has seen their first token."""
    told = stage.told("FirstToken")
    async with talking(stage.gateway.port) as talk:
        talk.request(CHAT, chat(content=SHORT, max_tokens=800, ignore_eos=True))
        await until(lambda: stage.told("FirstToken") > told)


async def silence(stage: Stage) -> None:
    """Nothing is said before the deadline of the first token."""
    with stage.fault(Kind.STALL):
        await stage.many(2, max_tokens=5)


async def endless(stage: Stage) -> None:
    """More to say than the total deadline allows."""
    assert await stage.ask(max_tokens=1_800) == 200


async def expiry(stage: Stage) -> None:
    """Each replica holds a long prompt; a third one waits, before a short one that would fit."""
    talking_on = [asyncio.create_task(stage.ask(LONG, max_tokens=600)) for _ in range(2)]
    await until(lambda: stage.gateway.in_flight == 2)
    waits = asyncio.create_task(stage.ask(LONG, max_tokens=5))
    await until(lambda: stage.gateway.in_flight != 2)
    await stage.ask(max_tokens=5)
    await asyncio.gather(waits, *talking_on)


SCENES: list[tuple[str, Callable[[Stage], Awaitable[None]]]] = [
    ("Dispatch", overload),
    ("Probe", overload),
    ("Reject", overload),
    ("Evict", silence),
    (reach.RETRIED, failure),
    (reach.RETRIED_LATER, busy),
    (reach.RETRY_OVERTAKEN, leaving_between_attempts),
    (reach.CANCELLED_BEFORE, leaving_early),
    (reach.CANCELLED_AFTER, leaving_late),
    ("Abort", silence),
    (reach.WOKEN, silence),
    ("Truncate", endless),
    (reach.EXPIRY, expiry),
]


def test_every_command_and_race_has_its_scene() -> None:
    """What DESIGN names is not left to chance."""
    assert sorted(name for name, _ in SCENES) == sorted(COMMANDS + RACES) == sorted(lacking([]))


def test_a_live_run_replays() -> None:
    """Overload, hang-ups, failures, a crash, a drain, deadlines, a shutdown: a fresh governor agrees."""
    lines: list[bytes] = []

    async def main() -> None:
        emulator = Emulator()
        await emulator.start(2, QUICK, Options(model=MODEL, faults=True))
        config = configured(
            *emulator.urls, pool=POOL, classes={"default": {"max_wait_s": 0.3}}, shutdown_grace_s=0.1
        )
        async with serving(config, errors_expected=True, tape=lines.append) as gateway:
            stage = Stage(gateway, emulator, lines)
            for name, scene in SCENES:
                await stage.until_shown(name, scene)
            await crash_and_drain(stage)
            await shut_down(stage)
        await emulator.close()

    run(main())
    calls = list(Tape.read(lines).calls)
    assert lacking(calls) == []
    events = {type(call.event) for call in calls}
    assert {DrainAsked, ReplicaSeen, ShutdownAsked} <= events
    reasons = {command.reason for call in calls for command in call.commands if hasattr(command, "reason")}
    assert {Reason.SHUTTING_DOWN, Reason.TOTAL_TIMEOUT, Reason.QUEUE_FULL, Reason.QUEUE_TIMEOUT} <= reasons
    difference = replay(Tape.read(lines))
    assert difference is None, str(difference)
    assert b"secret" not in b"".join(lines), "no prompt is on a tape"


async def crash_and_drain(stage: Stage) -> None:
    """One replica dies in the middle of answers and comes back; the other is drained and taken back."""
    asked = [asyncio.create_task(stage.ask(max_tokens=300)) for _ in range(6)]
    await until(lambda: stage.gateway.in_flight == 6)
    stage.emulator.inject(Fault(kind=Kind.CRASH, port=stage.emulator.ports[0], seconds=0.1))
    await asyncio.gather(*asked)
    _, second = stage.gateway.service.governor.members
    stage.drain(second)
    await stage.many(4, max_tokens=20)
    stage.drain(second, False)
    await until(lambda: not stage.gateway.in_flight)


async def shut_down(stage: Stage) -> None:
    """Streams run and requests wait when it is told to end; its grace is a tenth of a second."""
    asked = [asyncio.create_task(stage.ask(max_tokens=900)) for _ in range(10)]
    await until(lambda: stage.gateway.in_flight == 10)
    await asyncio.sleep(0.05)
    await stage.gateway.service.stop()
    await asyncio.gather(*asked, return_exceptions=True)


def test_serve_tape(tmp_path: Path) -> None:
    """The command records, to its owner alone; `tape check` finds no difference and no prompt is there."""
    path = tmp_path / "tape.jsonl"

    async def main() -> None:
        async with fake_engine(answer("said")) as engine:
            config = written(tmp_path, engine.url)
            async with started(tmp_path, "--config", str(config), "--tape", str(path)) as gateway:
                while await gateway.ready() != 200:  # noqa: ASYNC110 - a process tells by its port
                    await asyncio.sleep(0.02)
                for _ in range(3):
                    assert (await ask(gateway.port, CHAT, chat(content="secret"))).status == 200
                gateway.process.terminate()
                assert await gateway.ended() == 0, gateway.log

    run(main())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    result = CliRunner().invoke(command_line(), ["tape", "check", str(path)])
    assert (result.exit_code, result.stderr) == (0, "")
    assert "3 Dispatch" in result.stdout
    assert b"secret" not in path.read_bytes()
