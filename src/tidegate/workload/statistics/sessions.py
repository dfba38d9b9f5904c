"""What do recorded sessions look like: how long, how much thought, how much was said before?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import mean, stdev

import msgspec

from tidegate.core.records import Distribution, percentile
from tidegate.workload.statistics.counting import Tally
from tidegate.workload.statistics.reuse import Reuse, UnlimitedCache
from tidegate.workload.traces.agentic import Chain, RecordedSession, RecordedTurn


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """How a ratio or a CV differs from session to session."""

    p5: float
    p50: float
    p95: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        """Every figure is nan when there are no values."""
        ordered = sorted(values)
        return cls(p5=percentile(ordered, 0.05), p50=percentile(ordered, 0.50), p95=percentile(ordered, 0.95))


class SessionStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Sessions in figures; sub-agents' requests are their session's. JSON has null for what is not known."""

    sessions: int
    agents: int
    """Sub-agents: chains of requests beside their session's own."""
    sessions_with_agents: int
    requests: int
    turns: Distribution
    """Requests of a session."""
    span_s: Distribution
    """From a session's first request to its last."""
    prompt_tokens: Distribution
    new_tokens: Distribution
    """Prompt tokens that an unlimited cache of the session's own would not have found."""
    output_tokens: Distribution
    gap_s: Distribution
    """Between two of a session's own requests, sub-agents left out."""
    gap_cv: Spread
    """By session, of those with three own requests or more; by the sample's standard deviation."""
    think_s: Distribution
    """From an answer to the next request, where it was recorded."""
    took_s: Distribution
    """The recorded provider's whole answers."""
    ttft_s: Distribution
    """Its first tokens, where it streamed."""
    tool_tokens: float
    """Mean, at the head of a session's prompts."""
    system_tokens: float
    reuse: Reuse
    """Within sessions: their block ids have nothing in common."""
    found_blocks_ratio: Spread
    """By session."""


def session_statistics(sessions: Iterable[RecordedSession]) -> SessionStatistics:
    """Figures of sessions, in memory for their times."""
    count = _Count()
    for session in sessions:
        count.add(session)
    return count.statistics()


class _Count:
    """What is known so far."""

    def __init__(self) -> None:
        self.sessions = self.agents = self.with_agents = self.tool_tokens = self.system_tokens = 0
        self.prompts, self.news, self.outputs, self.turns = Tally(), Tally(), Tally(), Tally()
        self.spans_s: list[float] = []
        self.gaps_s: list[float] = []
        self.gap_cvs: list[float] = []
        self.thoughts_s: list[float] = []
        self.took_s: list[float] = []
        self.ttfts_s: list[float] = []
        self.found_ratios: list[float] = []
        self.cache: UnlimitedCache | None = None

    def add(self, session: RecordedSession) -> None:
        """Count a session."""
        self.sessions += 1
        self.agents += len(session.chains) - 1
        self.with_agents += len(session.chains) > 1
        self.tool_tokens += session.tool_tokens
        self.system_tokens += session.system_tokens
        timed = _in_time(session.chains)
        self.turns.add(len(timed))
        self.spans_s.append(timed[-1][0] - timed[0][0])
        self._add_gaps(session.chains[0])
        for _, turn in timed:
            self._add_turn(turn)
        self._add_blocks(session, [turn for _, turn in timed])

    def _add_turn(self, turn: RecordedTurn) -> None:
        self.prompts.add(turn.prompt_tokens)
        self.outputs.add(turn.output_tokens)
        if turn.told_think:
            self.thoughts_s.append(turn.think_s)
        if turn.took_s is not None:
            self.took_s.append(turn.took_s)
        if turn.ttft_s is not None:
            self.ttfts_s.append(turn.ttft_s)

    def _add_gaps(self, own: Chain) -> None:
        gaps_s = [later.at_s - earlier.at_s for earlier, later in pairwise(own.turns)]
        self.gaps_s += gaps_s
        if len(gaps_s) > 1 and (mean_s := mean(gaps_s)):
            self.gap_cvs.append(stdev(gaps_s) / mean_s)

    def _add_blocks(self, session: RecordedSession, turns: Sequence[RecordedTurn]) -> None:
        if self.cache is None:
            self.cache = UnlimitedCache(session.block_tokens)
        self.cache.forget()
        blocks = found = 0
        for turn in turns:
            there = self.cache.add(turn.prompt_tokens, turn.blocks)
            self.news.add(turn.prompt_tokens - there * session.block_tokens)
            blocks, found = blocks + turn.full_blocks, found + there
        if blocks:
            self.found_ratios.append(found / blocks)

    def statistics(self) -> SessionStatistics:
        """All of it."""
        assert self.cache is not None  # readers give at least one session
        reuse = self.cache.reuse()
        return SessionStatistics(
            sessions=self.sessions,
            agents=self.agents,
            sessions_with_agents=self.with_agents,
            requests=reuse.requests,
            turns=self.turns.distribution(),
            span_s=Distribution.of(self.spans_s),
            prompt_tokens=self.prompts.distribution(),
            new_tokens=self.news.distribution(),
            output_tokens=self.outputs.distribution(),
            gap_s=Distribution.of(self.gaps_s),
            gap_cv=Spread.of(self.gap_cvs),
            think_s=Distribution.of(self.thoughts_s),
            took_s=Distribution.of(self.took_s),
            ttft_s=Distribution.of(self.ttfts_s),
            tool_tokens=self.tool_tokens / self.sessions,
            system_tokens=self.system_tokens / self.sessions,
            reuse=reuse,
            found_blocks_ratio=Spread.of(self.found_ratios),
        )


def _in_time(chains: Iterable[Chain]) -> list[tuple[float, RecordedTurn]]:
    """Turns of all chains by their instant after the session's start: so the session numbered its blocks."""
    timed = [(chain.starts_s + turn.at_s, turn) for chain in chains for turn in chain.turns]
    return sorted(timed, key=lambda item: item[0])
