"""Writes that leave together: in order, before the loop waits, large ones at once."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from tidegate.net.outbox import AT_ONCE_BYTES, Outbox


class Paper:
    """A transport that notes what is written to it."""

    def __init__(self, fails: bool = False) -> None:
        self.written: list[bytes] = []
        self.closing = False
        self.fails = fails

    def write(self, data: bytes) -> None:
        if self.fails:
            raise RuntimeError("broken")
        self.written.append(data)

    def is_closing(self) -> bool:
        return self.closing


def papers(number: int) -> list[Any]:
    """So many of them, as transports."""
    return [cast(asyncio.Transport, Paper()) for _ in range(number)]


def test_what_a_turn_writes_leaves_together_and_in_order() -> None:
    """Small parts to one peer are one write, after the turn and before the loop waits."""

    async def main() -> None:
        outbox = Outbox(asyncio.get_running_loop())
        one, other = papers(2)
        for part in (b"a", b"b"):
            outbox.write(one, part)
            outbox.write(other, part * 2)
        assert (one.written, other.written) == ([], [])
        await asyncio.sleep(0)
        assert (one.written, other.written) == ([b"ab"], [b"aabb"])

    asyncio.run(main())


def test_large_parts_and_flushes_keep_the_order() -> None:
    """What is large goes at once, behind what waited; so does what waits when it is flushed."""

    async def main() -> None:
        outbox = Outbox(asyncio.get_running_loop())
        large, flushed, forgotten, closed = papers(4)
        outbox.write(large, b"a")
        outbox.write(large, b"b" * AT_ONCE_BYTES)
        assert large.written == [b"a" + b"b" * AT_ONCE_BYTES]
        for each in (flushed, forgotten, closed):
            outbox.write(each, b"x")
        outbox.flush(flushed)
        assert flushed.written == [b"x"]
        outbox.forget(forgotten)
        closed.closing = True
        await asyncio.sleep(0)
        assert (flushed.written, forgotten.written, closed.written) == ([b"x"], [], [])

    asyncio.run(main())


def test_what_is_large_overtakes_nobody() -> None:
    """Before a large part leaves, all that was written before it does, and no byte leaves twice."""

    async def main() -> None:
        outbox = Outbox(asyncio.get_running_loop())
        order: list[str] = []
        first, large, last = papers(3)
        for name, paper in (("first", first), ("large", large), ("last", last)):
            paper.write = lambda data, name=name: order.append(name)
        outbox.write(first, b"a")
        outbox.write(large, b"b" * (AT_ONCE_BYTES + 1))
        outbox.write(last, b"c")
        assert order == ["first", "large"]
        await asyncio.sleep(0)
        assert order == ["first", "large", "last"]

    asyncio.run(main())


def test_one_broken_peer_costs_the_others_nothing() -> None:
    """A write that raises is reported, and what waits for others leaves."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        reported: list[Any] = []
        loop.set_exception_handler(lambda _, context: reported.append(context["message"]))
        outbox = Outbox(loop)
        broken, sound = cast(Any, Paper(fails=True)), papers(1)[0]
        outbox.write(broken, b"x")
        outbox.write(sound, b"y")
        await asyncio.sleep(0)
        assert (sound.written, reported) == ([b"y"], ["a write failed"])

    asyncio.run(main())
