"""What do so many clients do that each wait for an answer, think, and ask again?

A closed loop: it asks less when answers are slow, as a batch job or a worker pool does. Latencies measured
under it say little about users who come whether or not the service keeps up; for those take open arrivals.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from tidegate.core.errors import ConfigurationError
from tidegate.workload.dice import MOST_SESSIONS, dice, index_of, session_number, source_number
from tidegate.workload.laws.lengths import LengthLaw, Lengths
from tidegate.workload.laws.numbers import Fixed, Law
from tidegate.workload.requests import PlannedRequest, Sender


class ClosedLoopSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How many clients, and what each does."""

    clients: int
    lengths: LengthLaw
    think_s: Law = Fixed(0.0)
    """Seconds between an answer, or a refusal, and the next request; before the first request too."""
    sender: Sender = Sender()

    def __post_init__(self) -> None:
        if not 1 <= self.clients <= MOST_SESSIONS:
            raise ConfigurationError(
                [f"clients of a closed loop are 1 to {MOST_SESSIONS}, not {self.clients}"]
            )


class ClosedLoop:
    """The clients. Each is a session whose turns are its requests; their prompts share nothing."""

    def __init__(self, settings: ClosedLoopSettings, seed: int, name: str = "clients") -> None:
        self._settings, self._seed, self._source = settings, seed, source_number(name)
        self._clients = [self._client(name, index) for index in range(settings.clients)]

    def starts(self) -> Iterator[PlannedRequest]:
        """Each client's first request, after its first thought."""
        first = [self._request(index, 0.0, 0) for index in range(len(self._clients))]
        return iter(sorted(first, key=lambda planned: planned.at_s))

    def after(self, planned: PlannedRequest, ended_at_s: float, ok: bool) -> PlannedRequest | None:
        """The client's next request, whether or not this one was answered."""
        if planned.session is None:
            return None
        return self._request(index_of(planned.session), ended_at_s, planned.turn + 1)

    def _client(self, name: str, index: int) -> _Client:
        # Two dice, so that other lengths do not change when a client asks.
        thoughts, lengths = (dice(self._seed, name, what, index) for what in ("think", "lengths"))
        return _Client(self._settings.think_s.draws(thoughts), self._settings.lengths.lengths(lengths))

    def _request(self, index: int, ready_at_s: float, turn: int) -> PlannedRequest:
        client = self._clients[index]
        return self._settings.sender.request(
            ready_at_s + next(client.thoughts),
            next(client.lengths),
            session=session_number(self._source, index),
            turn=turn,
        )


@dataclass(slots=True, eq=False)
class _Client:
    thoughts: Iterator[float]
    lengths: Iterator[Lengths]
