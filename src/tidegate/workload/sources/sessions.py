"""What is a conversation? Turns that each bring all that was said before, and thoughts in between.

The prompt of a turn is the system prompt, the history and what is new; the answer joins the history. So
prompts grow, and each begins with the one before it: what a prefix cache is for. Sessions come by
themselves (open), turns within a session wait for each other (closed).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, takewhile
from math import inf

import msgspec

from tidegate.core.errors import ConfigurationError
from tidegate.workload.dice import (
    MOST_BLOCKS,
    block_number,
    dice,
    index_of,
    session_number,
    source_number,
)
from tidegate.workload.laws.arrivals import Arrivals
from tidegate.workload.laws.lengths import Lengths
from tidegate.workload.laws.numbers import Fixed, Law, whole
from tidegate.workload.requests import PlannedRequest, Sender


class SessionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How conversations go."""

    starts: Arrivals
    """Of sessions, not of requests."""
    turns: Law
    """Requests of a session, at least 1."""
    new_tokens: Law
    """What each turn adds to the prompt, at least 1."""
    output_tokens: Law
    think_s: Law = Fixed(0.0)
    """Seconds between an answer and the next turn."""
    system_tokens: int = 0
    """At the head of every prompt of every session, and the same for all."""
    most_prompt_tokens: int | None = None
    """A session ends before the turn whose prompt would be longer."""
    block_tokens: int = 16
    """Prompts are shared in blocks of so many tokens."""
    outlives_refusals: bool = False
    """Whether a session goes on after a request that failed; else its user has given up."""
    sender: Sender = Sender()

    def __post_init__(self) -> None:
        if self.block_tokens < 1:
            raise ConfigurationError([f"block_tokens of sessions is at least 1, not {self.block_tokens}"])
        if self.system_tokens < 0:
            raise ConfigurationError([f"system_tokens of sessions is at least 0, not {self.system_tokens}"])
        if self.most_prompt_tokens is not None and self.most_prompt_tokens <= self.system_tokens:
            problem = f"above system_tokens ({self.system_tokens}), not {self.most_prompt_tokens}"
            raise ConfigurationError([f"most_prompt_tokens of sessions is {problem}"])


class Sessions:
    """The conversations of a run. What one says depends on its number and the seed alone."""

    def __init__(self, settings: SessionSettings, seed: int, name: str = "sessions") -> None:
        self._settings, self._seed, self._name = settings, seed, name
        self._source = source_number(name)
        self._live: dict[int, Iterator[_Turn]] = {}
        """What is still to be said, by number of the session."""

    def starts(self) -> Iterator[PlannedRequest]:
        """The first turn of each session; as long as sessions come."""
        arrivals = self._settings.starts.instants(dice(self._seed, self._name, "starts"))
        # Session 0 stands for what all of them share.
        for index, at_s in enumerate(arrivals, 1):
            number = session_number(self._source, index)
            script = self._script(number)
            if (turn := next(script, None)) is not None:
                self._live[number] = script
                yield self._request(number, turn, at_s)

    def after(self, planned: PlannedRequest, ended_at_s: float, ok: bool) -> PlannedRequest | None:
        """The session's next turn; None once it is over."""
        number = planned.session
        script = self._live.get(number) if number is not None else None
        if number is None or script is None:
            return None
        turn = next(script, None) if ok or self._settings.outlives_refusals else None
        if turn is None:
            del self._live[number]
            return None
        return self._request(number, turn, ended_at_s + turn.think_s)

    def _script(self, number: int) -> Iterator[_Turn]:
        settings, index = self._settings, index_of(number)
        turns, news, outputs, thoughts = (
            law.draws(dice(self._seed, self._name, what, index))
            for what, law in (
                ("turns", settings.turns),
                ("new", settings.new_tokens),
                ("output", settings.output_tokens),
                ("think", settings.think_s),
            )
        )
        (count,) = islice(whole(turns), 1)
        script = _grown(settings.system_tokens, zip(whole(news), whole(outputs), thoughts, strict=False))
        most = inf if settings.most_prompt_tokens is None else settings.most_prompt_tokens
        return takewhile(lambda turn: turn.lengths.prompt_tokens <= most, islice(script, count))

    def _request(self, number: int, turn: _Turn, at_s: float) -> PlannedRequest:
        settings = self._settings
        blocks = turn.lengths.prompt_tokens // settings.block_tokens
        shared = min(blocks, settings.system_tokens // settings.block_tokens)
        # The blocks of a session are numbered in order, so that each prompt's chain continues the one before.
        common, own = block_number(session_number(self._source, 0), 0), block_number(number, 0)
        return settings.sender.request(
            at_s,
            turn.lengths,
            session=number,
            turn=turn.index,
            prefix=(*range(common, common + shared), *range(own + shared, own + min(blocks, MOST_BLOCKS))),
            prefix_block_tokens=settings.block_tokens,
        )


@dataclass(slots=True, eq=False)
class _Turn:
    index: int
    lengths: Lengths
    think_s: float
    """Before it."""


def _grown(history_tokens: int, said: Iterator[tuple[int, int, float]]) -> Iterator[_Turn]:
    """Turns of (new tokens, output tokens, thought before), each upon all before it."""
    for index, (new_tokens, output_tokens, think_s) in enumerate(said):
        lengths = Lengths(history_tokens + new_tokens, output_tokens)
        yield _Turn(index, lengths, think_s)
        history_tokens += new_tokens + output_tokens
