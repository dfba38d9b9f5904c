"""An emulator inside the test's own process, so that a test may look at the machine behind the HTTP."""

from __future__ import annotations

import asyncio
import json
import threading
import urllib.request
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import uvloop

from tests.raw_http import posted
from tidegate.core.curve import Linear
from tidegate.emulator.replica_server import Options
from tidegate.emulator.server import Emulator
from tidegate.sim.profiles import Profile
from tidegate.sim.replica import Replica
from tidegate.sim.settings import ReplicaSettings

T = TypeVar("T")

QUICK = Profile(
    curve=Linear(a_s=1e-3, d_s_per_prefill_token=1e-6),
    replica=ReplicaSettings(max_num_seqs=4, max_batched_tokens=512, kv_tokens=4096, context_tokens=2048),
)
"""About a thousand tokens per second in each of four seats."""

MODEL = "quick"
HELLO = {"model": MODEL, "messages": [{"role": "user", "content": "Hello there"}]}
ENDLESS = {**HELLO, "max_tokens": 1900, "ignore_eos": True, "stream": True}
"""Two seconds of answer."""


class Inside:
    """A running emulator, seen from the test's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, emulator: Emulator) -> None:
        self._loop = loop
        self.emulator = emulator
        self.urls = emulator.urls
        self.url = self.urls[0]
        self.chat = self.url + "/v1/chat/completions"

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`, done on the emulator's loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(20)

    def look(self, see: Callable[[Emulator], T]) -> T:
        """What `see` sees on the emulator's loop."""

        async def seen() -> T:
            return see(self.emulator)

        return self.run(seen())

    def replica(self, see: Callable[[Replica], T]) -> T:
        """What `see` sees of the first replica, whose promises are checked first."""

        def seen(emulator: Emulator) -> T:
            replica = emulator.replica(emulator.ports[0]).engine.replica
            replica.check()
            return see(replica)

        return self.look(seen)

    def get(self, path: str, index: int = 0) -> bytes:
        """The body of one of its information paths."""
        with urllib.request.urlopen(self.urls[index] + path, timeout=20) as response:
            body: bytes = response.read()
        return body

    def stream(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        """The payloads of a chat stream that ends as it should."""
        with posted(self.chat, {**body, "stream": True}) as response:
            return payloads(response.read())


def payloads(stream: bytes) -> list[dict[str, Any]]:
    """What the events say; the terminator is left out and must be there."""
    events = [event.removeprefix(b"data: ") for event in stream.split(b"\n\n")]
    assert events[-2:] == [b"[DONE]", b""]
    return [json.loads(event) for event in events[:-2]]


@contextmanager
def served(profile: Profile = QUICK, options: Options | None = None, replicas: int = 1) -> Iterator[Inside]:
    """Serve from a thread of this process until the block ends. Nothing may go wrong unnoticed."""
    problems: list[dict[str, Any]] = []
    ready: list[Inside] = []
    started, stop = threading.Event(), asyncio.Event()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: problems.append(context))
        emulator = Emulator()
        try:
            await emulator.start(replicas, profile, options or Options(model=MODEL, faults=True))
            ready.append(Inside(loop, emulator))
            started.set()
            await stop.wait()
            await emulator.close()
        finally:
            started.set()

    thread = threading.Thread(target=uvloop.run, args=(main(),))
    thread.start()
    started.wait(20)
    try:
        yield ready[0]
    finally:
        if ready:
            ready[0]._loop.call_soon_threadsafe(stop.set)
        thread.join(20)
    assert not problems, problems
