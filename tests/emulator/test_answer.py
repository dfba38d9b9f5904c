"""Which events does a stream have, and what does each hold?"""

from __future__ import annotations

import asyncio
import json
from typing import cast

import pytest

from tests.emulator.clock_loop import ClockLoop
from tidegate.emulator.answer import Answer
from tidegate.emulator.engine import Choice, Engine
from tidegate.emulator.faults import Fault, Kind
from tidegate.emulator.jobs import Job, Prompt
from tidegate.emulator.voices import Answered, CompletionsVoice
from tidegate.net.exchange import Exchange
from tidegate.sim.profiles import named
from tidegate.sim.sequence import Sequence


class Written:
    """What an answer does to its exchange."""

    def __init__(self) -> None:
        self.paused = False
        self.started = False
        self.writes: list[bytes] = []
        self.on_gone = None
        self.on_paused = None

    def start(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self.started = True

    def write(self, data: bytes) -> None:
        self.writes.append(data)

    def end(self, data: bytes) -> None:
        self.writes.append(data)

    def sizes(self) -> list[list[int]]:
        """Tokens of each event, write by write; the head and whatever has no text are left out."""
        return [
            [len(json.loads(event[6:])["choices"][0]["text"]) // 4 for event in write.split(b"\n\n")[:-1]]
            for write in (whole.removesuffix(b"data: [DONE]\n\n") for whole in self.writes)
            if write
        ]


def streamed(
    *output_tokens: int, chunk_tokens: int, fault: Fault | None = None, seed: int = 5
) -> tuple[ClockLoop, Written, list[Answer], Answer]:
    """A completion with choices of these lengths, just begun; and the list of those that have ended."""
    loop, written, ended = ClockLoop(), Written(), list[Answer]()
    choices = [Choice(i, seed, Sequence(i, 10, n), True, 0.0) for i, n in enumerate(output_tokens)]
    job = Job(model="m", prompts=[Prompt(10, seed)], choices=len(choices), stream=True)
    answer = Answer(
        cast(Exchange, written),
        Engine(named("demo"), cast(asyncio.AbstractEventLoop, loop)),
        CompletionsVoice(Answered("cmpl-1", "m", 0, 10, job), choices, chat=False),
        choices,
        stream=True,
        chunk_tokens=chunk_tokens,
        on_end=ended.append,
    )
    answer.begin(fault)
    return loop, written, ended, answer


@pytest.mark.parametrize(
    ("chunk_tokens", "output_tokens", "sizes"),
    [
        (1, 4, [1, 1, 1, 1]),
        (4, 10, [1, 4, 4, 1]),  # the first token never waits
        (4, 9, [1, 4, 4]),
        (4, 1, [1]),
        (100, 7, [1, 6]),
    ],
)
def test_events_of_one_choice(chunk_tokens: int, output_tokens: int, sizes: list[int]) -> None:
    """One event per write: one token, then as many as asked for, then what is left."""
    loop, written, ended, answer = streamed(output_tokens, chunk_tokens=chunk_tokens)

    while loop.due is not None:
        loop.fire()

    assert written.sizes() == [[size] for size in sizes]
    assert written.writes[-1].endswith(b"data: [DONE]\n\n")
    assert ended == [answer]


def test_choices_share_a_write() -> None:
    """One write per step, however many choices; the stream ends with the last of them."""
    loop, written, ended, _ = streamed(2, 3, chunk_tokens=1)

    while loop.due is not None:
        loop.fire()

    assert written.sizes() == [[1, 1], [1, 1], [1]]
    assert len(ended) == 1


def test_a_slow_client_is_owed_a_count() -> None:
    """Nothing is written while it is paused; then one event makes up for all that was missed."""
    loop, written, ended, answer = streamed(6, chunk_tokens=1)
    loop.fire()
    written.paused = True
    for _ in range(3):
        loop.fire()
    assert written.sizes() == [[1]]

    written.paused = False
    answer.flush()
    while loop.due is not None:
        loop.fire()

    assert written.sizes() == [[1], [3], [1], [1]]
    assert len(ended) == 1


def test_a_fault_comes_after_its_very_token() -> None:
    """What is due before the fault is said, even if the event would not be full yet."""
    fault = Fault(kind=Kind.STALL, after_tokens=3)
    loop, written, ended, answer = streamed(6, chunk_tokens=8, fault=fault)

    while loop.due is not None:
        loop.fire()
    assert written.sizes() == [[1], [2]]
    assert ended == []

    answer.suffer(None)
    assert written.sizes() == [[1], [2], [3]]
    assert ended == [answer]
