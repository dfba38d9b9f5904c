"""An unlimited cache finds what was there, block by block."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import event, given
from hypothesis import strategies as st

from tidegate.workload.statistics.reuse import UnlimitedCache

# Prompts as paths through a tree: three ways at each step, so that they share heads of all lengths.
PROMPTS = st.lists(st.lists(st.integers(0, 2), max_size=5), max_size=30)


def chain_ids(prompts: Sequence[Sequence[int]]) -> list[list[int]]:
    """Ids that stand for a block and all before it, numbered in order of first use."""
    numbers: dict[tuple[int, ...], int] = {}
    return [
        [numbers.setdefault(tuple(prompt[: n + 1]), len(numbers)) for n in range(len(prompt))]
        for prompt in prompts
    ]


@given(PROMPTS, st.data())
def test_what_is_found_is_the_longest_head_that_was_there(
    prompts: list[list[int]], data: st.DataObject
) -> None:
    """As by comparing each prompt with all before it; however its ids are cut into parts."""
    cache = UnlimitedCache(16)
    found_in_all = 0
    for index, ids in enumerate(chain_ids(prompts)):
        earlier = prompts[:index]
        expected = max((_common(prompts[index], other) for other in earlier), default=0)
        cut = data.draw(st.integers(0, len(ids)))

        found = cache.add(len(ids) * 16 + 3, [ids[:cut], ids[cut:]])

        assert found == expected
        found_in_all += found
        event(f"found {min(found, 3)}")
    reuse = cache.reuse()
    blocks = sum(map(len, prompts))
    assert (reuse.blocks, reuse.found_blocks, reuse.requests) == (blocks, found_in_all, len(prompts))
    assert reuse.distinct_blocks == blocks - found_in_all
    assert reuse.found_blocks_ratio == found_in_all / max(1, blocks)
    assert reuse.found_tokens_ratio == found_in_all * 16 / max(1, blocks * 16 + 3 * len(prompts))


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    return next(
        (n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )


def test_what_is_forgotten_is_not_found() -> None:
    """After a cut the same ids are other blocks; counts go on."""
    cache = UnlimitedCache(16)

    assert [cache.add(40, [[1, 2]]), cache.add(40, [[1, 2]])] == [0, 2]
    cache.forget()
    assert cache.add(40, [[1, 2]]) == 0
    assert (cache.reuse().distinct_blocks, cache.reuse().requests_found_more_ratio) == (4, 1 / 3)


def test_a_last_block_counts_no_more_tokens_than_there_are() -> None:
    """Where a trace numbers a block that is not full, the prompt's tokens are the most that was found."""
    cache = UnlimitedCache(512)
    for _ in range(2):
        cache.add(600, [[1, 2]])

    assert cache.reuse().found_tokens_ratio == 0.5
