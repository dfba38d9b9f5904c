"""How are recorded sessions played again, by clients who wait for the answers of today?

Turn n + 1 comes its recorded think time after the end of turn n, however long that takes now. When sessions
start is not recorded, and is the caller's model: say which with every figure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import chain
from math import inf

from tidegate.workload.dice import block_number, dice, recorded_number, session_number, source_number
from tidegate.workload.laws.arrivals import Arrivals
from tidegate.workload.laws.lengths import Lengths
from tidegate.workload.requests import SENDER, PlannedRequest, Sender
from tidegate.workload.traces.agentic import Chain, RecordedSession, RecordedTurn


@dataclass(slots=True, eq=False)
class _Playing:
    """One chain of requests, of a session or of one of its sub-agents."""

    number: int
    blocks_of: int
    """The session in whose name blocks are numbered: an agent shares its parent's."""
    block_tokens: int
    shared_blocks: int
    shared_name: int
    turns: tuple[RecordedTurn, ...]


class SessionReplay:
    """Recorded sessions, as many as there are and as far as `starts` reaches."""

    def __init__(
        self,
        sessions: Iterable[RecordedSession],
        starts: Arrivals,
        seed: int,
        *,
        sender: Sender = SENDER,
        name: str = "sessions",
        share_heads: bool = False,
        outlives_refusals: bool = False,
    ) -> None:
        """`share_heads`: sessions whose tools and system prompt are equally long begin with the same blocks.

        Block ids are recorded per session, so that reuse between sessions is a model too.
        """
        self._sessions, self._sender, self._name = sessions, sender, name
        self._source = source_number(name)
        self._starts = starts.instants(dice(seed, name, "starts"))
        self._share_heads, self._outlives_refusals = share_heads, outlives_refusals
        self._live: dict[int, _Playing] = {}

    def starts(self) -> Iterator[PlannedRequest]:
        """The first turn of each session, and of its sub-agents at their recorded time after that."""
        waiting: list[tuple[float, int, _Playing]] = []
        number = 0
        for session, at_s in zip(self._sessions, self._starts, strict=False):
            yield from self._due(waiting, at_s)
            first = session_number(self._source, number)
            for each in session.chains:
                playing = self._playing(session, each, session_number(self._source, number), first)
                heappush(waiting, (at_s + each.starts_s, playing.number, playing))
                number += 1
        yield from self._due(waiting, inf)

    def after(self, planned: PlannedRequest, ended_at_s: float, ok: bool) -> PlannedRequest | None:
        """The session's next turn after its recorded think time; None once it is over."""
        playing = self._live.get(planned.session) if planned.session is not None else None
        if playing is None:
            return None
        turn = planned.turn + 1
        if turn < len(playing.turns) and (ok or self._outlives_refusals):
            return self._request(playing, turn, ended_at_s + playing.turns[turn].think_s)
        del self._live[playing.number]
        return None

    def _due(self, waiting: list[tuple[float, int, _Playing]], before_s: float) -> Iterator[PlannedRequest]:
        while waiting and waiting[0][0] <= before_s:
            at_s, number, playing = heappop(waiting)
            self._live[number] = playing
            yield self._request(playing, 0, at_s)

    def _playing(self, session: RecordedSession, each: Chain, number: int, first: int) -> _Playing:
        head = f"{self._name} {session.block_tokens} {session.tool_tokens} {session.system_tokens}"
        return _Playing(
            number=number,
            blocks_of=first,
            block_tokens=session.block_tokens,
            shared_blocks=session.shared_tokens // session.block_tokens if self._share_heads else 0,
            shared_name=source_number(head),
            turns=each.turns,
        )

    def _request(self, playing: _Playing, index: int, at_s: float) -> PlannedRequest:
        turn = playing.turns[index]
        return self._sender.request(
            at_s,
            Lengths.asked(turn.prompt_tokens, turn.output_tokens),
            session=playing.number,
            turn=index,
            prefix=_prefix(playing, turn),
            prefix_block_tokens=playing.block_tokens,
            streams=turn.streams,
        )


def _prefix(playing: _Playing, turn: RecordedTurn) -> tuple[int, ...]:
    """Blocks under their session's name, but those of a head that is shared."""
    recorded = chain.from_iterable(turn.blocks)
    # A session numbers its blocks from 1 in order of first use: its first prompt's head has the first ids.
    return tuple(
        recorded_number(playing.shared_name, block)
        if block <= playing.shared_blocks
        else block_number(playing.blocks_of, block)
        for block in recorded
    )
