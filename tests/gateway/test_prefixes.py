"""Names of beginnings: who shares them, where they part, and that little is computed and nobody is told."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from tests.gateway.fake_engine import answer, fake_engine
from tests.gateway.gateway_in_process import configured, run, serving
from tests.gateway.http_client import chat
from tidegate.core.messages import Arrived
from tidegate.gateway.prefixes import BLOCK_BYTES, BLOCKS_MAX, Prefixes
from tidegate.policy.tape import Tape

PREFIXES = Prefixes(b"k" * 16)
FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])


def names(body: dict[str, Any], tenant: str = "acme", prefixes: Prefixes = PREFIXES) -> tuple[int, ...]:
    """Of the request with that body."""
    return prefixes.of(tenant, FIELDS.decode(json.dumps(body)))


def said(*contents: str) -> dict[str, Any]:
    """A conversation."""
    return {"messages": [{"role": "user", "content": content} for content in contents]}


def shared(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    """Blocks in common from the first on; after the first difference there must be none."""
    same = [a == b for a, b in zip(one, other, strict=False)]
    depth = same.index(False) if False in same else len(same)
    assert not set(one[depth:]) & set(other[depth:])
    return depth


def test_a_conversation_that_goes_on_keeps_its_blocks() -> None:
    """Its next turn has all full blocks of the turn before, and more."""
    first = names(said("a" * 3_000))
    second = names(said("a" * 3_000, "b" * 3_000))

    assert (len(first), len(second)) == (2, 6 - 1)
    assert shared(first, second) == 2


@pytest.mark.parametrize(
    ("one", "other", "blocks"),
    [
        (said("a" * 5_000), said("a" * 2_500 + "b" * 2_500), 2),
        (said("a" * 5_000), said("b" + "a" * 4_999), 0),
        ({"prompt": "a" * 5_000}, {"prompt": "a" * 4_999}, 4),
        ({"tools": ["t" * 2_000]} | said("a"), {"tools": ["t" * 2_000]} | said("b"), 1),
        ({"model": "x"} | said("a" * 5_000), {"model": "y", "seed": 3} | said("a" * 5_000), 4),
        ({"input": list(range(2_000))}, {"input": [*range(1_900), 7]}, 10),
        (said("short"), said("short"), 0),
        ({}, {}, 0),
    ],
    ids=["middle", "start", "end", "tools first", "other fields", "token ids", "no full block", "nothing"],
)
def test_where_prompts_part(one: dict[str, Any], other: dict[str, Any], blocks: int) -> None:
    """What comes before the difference has the same names, and nothing after it."""
    assert shared(names(one), names(other)) == blocks


def test_tenants_and_processes_share_nothing() -> None:
    """Whoever guesses another's prompt is not sent to where it is cached."""
    body = said("a" * 5_000)

    assert len({name for tenant in ("acme", "globex") for name in names(body, tenant)}) == 8
    assert not set(names(body)) & set(names(body, prefixes=Prefixes(b"l" * 16)))


def test_no_more_than_the_beginning_is_looked_at() -> None:
    """A prompt of many megabytes costs what one of 64 KiB does."""
    long = said("a" * 5 * 2**20)
    longer = said("a" * 5 * 2**20 + "b")

    assert names(long) == names(longer)
    assert len(names(long)) == BLOCKS_MAX
    assert len(names({"prompt": "x" * (BLOCKS_MAX * BLOCK_BYTES - 3)})) == BLOCKS_MAX - 1


@pytest.mark.parametrize("policy", ["prefix_affinity", "least_tokens"])
def test_only_a_pool_that_routes_so_has_its_prompts_hashed(policy: str) -> None:
    """The tape shows what the governor is told; and with two engines a conversation stays with one."""
    lines: list[bytes] = []

    async def main() -> None:
        async with fake_engine(answer()) as one, fake_engine(answer()) as other:
            config = configured(one, other, pool={"routing": {"policy": policy, "explore_share": 0}})
            async with serving(config, tape=lines.append) as gateway:
                for turn in range(1, 11):
                    assert (await gateway.ask(chat(content="hello " * 300 * turn))).status == 200
            if policy == "prefix_affinity":
                assert sorted([len(one.requests), len(other.requests)]) == [0, 10]

    run(main())
    events = [call.event for call in Tape.read(lines).calls]
    arrived = [event.request for event in events if isinstance(event, Arrived)]
    assert [len(request.prefix) > 0 for request in arrived] == [policy == "prefix_affinity"] * 10
    assert b"hello" not in b"".join(lines)
