"""Sessions of coding agents: JSON lines, one session each, with think times and the ids of full blocks.

Converted from github.com/callanjfox/kv-cache-tester (`hash_ids` written as ranges). Sessions have no common
clock: when each starts is for whoever replays them to say. Block ids are a session's own. A sub-agent is a
chain of requests of its own that starts at its recorded instant and shares the session's blocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec

from tidegate.core.errors import ConfigurationError
from tidegate.workload.traces.lines import (
    Count,
    Lines,
    Seconds,
    block_ranges,
    check_blocks,
    ids_in,
    json_objects,
)

KEYS = ("id", "block_size", "requests")


class RecordedTurn(msgspec.Struct, frozen=True, kw_only=True):
    """One request of a session, as it was."""

    at_s: float
    """After its chain's first instant."""
    think_s: float
    """From the end of the answer before it; 0 for the first."""
    prompt_tokens: int
    output_tokens: int
    blocks: tuple[range, ...]
    """Chain ids of the prompt's full blocks."""
    model: str
    streams: bool
    took_s: float | None
    """The recorded provider's whole answer."""
    ttft_s: float | None
    told_think: bool
    """Whether the think time was recorded; else it is the gap to the one before, less what that took."""

    @property
    def full_blocks(self) -> int:
        """How many they are."""
        return ids_in(self.blocks)


class Chain(msgspec.Struct, frozen=True, kw_only=True):
    """Requests one after the other: a session's own, or those of one of its sub-agents."""

    starts_s: float
    """After the session's start."""
    turns: tuple[RecordedTurn, ...]


class RecordedSession(msgspec.Struct, frozen=True, kw_only=True):
    """One session: its own requests first, then each sub-agent's."""

    name: str
    block_tokens: int
    shared_tokens: int
    """Of tools and system prompt: the head of its prompts, which others of the same client begin with too."""
    tool_tokens: int
    system_tokens: int
    chains: tuple[Chain, ...]


class _Request(msgspec.Struct):
    t: Seconds
    type: Literal["s", "n", "subagent"]
    m: Count = 0
    prompt: Count | None = msgspec.field(default=None, name="in")
    out: Count | None = None
    hash_ids: str = ""
    api_time: Seconds | None = None
    ttft: Seconds | None = None
    think_time: Seconds | None = None
    models: tuple[str, ...] = ()
    requests: list[_Request] = []


class _Session(msgspec.Struct):
    id: str
    block_size: Annotated[int, msgspec.Meta(gt=0)]
    requests: list[_Request]
    models: tuple[str, ...] = ()
    tool_tokens: Count = 0
    system_tokens: Count = 0


def read_sessions(lines: Lines, name: str = "sessions") -> Iterator[RecordedSession]:
    """Sessions in the file's order. Raises ConfigurationError: `name`, line, request and reason."""
    seen: dict[str, int] = {}
    block_tokens: int | None = None
    for number, line in json_objects(lines, name, _Session):
        try:
            if line.id in seen:
                raise ValueError(f"session {line.id} is on line {seen[line.id]} too; remove one of them")
            seen[line.id] = number
            block_tokens = block_tokens or line.block_size
            if line.block_size != block_tokens:
                raise ValueError(
                    f"block_size is {line.block_size}, where the first session has {block_tokens}"
                )
            yield _session(line)
        except ValueError as error:
            raise ConfigurationError([f"{name}, line {number}: {error}"]) from None


def _session(line: _Session) -> RecordedSession:
    own = _chain(line.requests, line, 0.0, line.models)
    agents = [
        _chain(entry.requests, line, entry.t, entry.models)
        for entry in line.requests
        if entry.type == "subagent"
    ]
    chains = tuple(each for each in (own, *agents) if each.turns)
    if not chains:
        raise ValueError("a session has at least one request")
    return RecordedSession(
        name=line.id,
        block_tokens=line.block_size,
        shared_tokens=line.tool_tokens + line.system_tokens,
        tool_tokens=line.tool_tokens,
        system_tokens=line.system_tokens,
        chains=chains,
    )


def _chain(requests: list[_Request], session: _Session, starts_s: float, models: tuple[str, ...]) -> Chain:
    turns: list[RecordedTurn] = []
    for index, request in enumerate(requests):
        if request.type == "subagent":
            continue
        try:
            turns.append(_turn(request, turns[-1] if turns else None, session.block_size, models))
        except ValueError as error:
            raise ValueError(f"request {index}: {error}") from None
    return Chain(starts_s=starts_s, turns=tuple(turns))


def _turn(
    request: _Request, before: RecordedTurn | None, block_tokens: int, models: tuple[str, ...]
) -> RecordedTurn:
    if request.prompt is None or request.out is None:
        raise ValueError("has no `in` or no `out`, the tokens of prompt and answer")
    gap_s = 0.0 if before is None else request.t - before.at_s
    if gap_s < 0:
        raise ValueError(f"is {-gap_s:g} s before the one above it; sort them by `t`")
    took_s = 0.0 if before is None else before.took_s or 0.0
    blocks = block_ranges(request.hash_ids, ",")
    check_blocks(ids_in(blocks), request.prompt, block_tokens)
    return RecordedTurn(
        at_s=request.t,
        think_s=max(0.0, gap_s - took_s) if request.think_time is None else request.think_time,
        prompt_tokens=request.prompt,
        output_tokens=request.out,
        blocks=blocks,
        model=models[request.m] if request.m < len(models) else "",
        streams=request.type == "s",
        took_s=request.api_time,
        ttft_s=request.ttft,
        told_think=request.think_time is not None,
    )
