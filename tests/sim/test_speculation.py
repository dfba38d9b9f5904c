"""Does speculation save the steps that theory says, and cost what it verifies?"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from tests.sim.engines import SECOND, short, told
from tidegate.core.curve import Linear
from tidegate.sim.happening import FINISHED
from tidegate.sim.profiles import Profile
from tidegate.sim.replica import Replica
from tidegate.sim.sequence import Sequence
from tidegate.sim.settings import ReplicaSettings, Speculation
from tidegate.sim.speculation import drawn_steps


def guessing(draft_tokens: int, ratio: float, curve: Linear = SECOND, **changes: int) -> Replica:
    """A replica that speculates."""
    settings: dict[str, Any] = {
        "max_num_seqs": 8,
        "max_batched_tokens": 1024,
        "kv_tokens": 16_384,
        "context_tokens": 8192,
    }
    speculation = Speculation(draft_tokens=draft_tokens, acceptance_ratio=ratio)
    replica = ReplicaSettings(speculation=speculation, **(settings | changes))
    return Replica(Profile(curve=curve, replica=replica), Random(3))


@pytest.mark.parametrize(("draft_tokens", "ratio"), [(1, 0.6), (3, 0.8), (5, 0.5), (4, 0.0), (4, 1.0)])
def test_expected_tokens_per_step(draft_tokens: int, ratio: float) -> None:
    """(1 - a^(k+1)) / (1 - a), and k + 1 if every guess is right (Leviathan et al., 2023)."""
    speculation = Speculation(draft_tokens=draft_tokens, acceptance_ratio=ratio)
    tokens = 100_000
    expected = draft_tokens + 1 if ratio == 1 else (1 - ratio ** (draft_tokens + 1)) / (1 - ratio)

    assert tokens / drawn_steps(tokens, speculation, Random(1)) == pytest.approx(expected, rel=0.01)


def test_every_guess_right() -> None:
    """Twelve tokens after the first in three steps of four; a mark is told in the step that reaches it."""
    for output, news in [
        (13, [(1.0, "first", 0, 1), (4.0, "finished", 0, 13)]),
        (14, [(1.0, "first", 0, 1), (5.0, "finished", 0, 14)]),
        (41, [(1.0, "first", 0, 1), (9.0, "progress", 0, 33), (11.0, "finished", 0, 41)]),
    ]:
        engine = guessing(3, 1.0)
        engine.submit(0.0, Sequence(0, 10, output))
        assert short(told(engine)) == news


def test_tokens_are_spread_evenly() -> None:
    """Thirteen tokens after the first in four steps: 3, 3, 3, 4."""
    engine, sequence = guessing(3, 1.0), Sequence(0, 10, 14)
    engine.submit(0.0, sequence)

    assert [engine.tokens_at(sequence, at) for at in (0.5, 1.0, 2.0, 3.0, 4.0, 4.5, 5.0)] == [
        0,
        1,
        4,
        7,
        10,
        10,
        14,
    ]


def test_guesses_are_computed_whether_they_are_right_or_not() -> None:
    """A step verifies four tokens per sequence, three of which cost as much as prompt tokens do."""
    curve = Linear(a_s=1.0, c_s_per_context_token=0.01, d_s_per_prefill_token=0.1)
    engine = guessing(3, 0.0, curve)
    engine.submit(0.0, Sequence(0, 10, 3))
    first, last = short(told(engine))

    assert first[0] == pytest.approx(1.0 + 10 * 0.1)
    # Two steps, each of which attends to what is there, one more token and three guesses.
    assert last[0] == pytest.approx(first[0] + 2 * (1.0 + 3 * 0.1) + 0.01 * ((10 + 4) + (11 + 4)))
    assert engine.counters.decode_tokens == 2 * 4


def test_guesses_need_room() -> None:
    """Blocks for the guesses are taken too, so that a sequence needs as many tokens more than it has."""
    engine = guessing(3, 1.0, kv_tokens=32)

    assert engine.settings.sequence_tokens == 29
    assert engine.submit(0.0, Sequence(0, 10, 20)) == "10 + 20 tokens never fit in 29"
    assert engine.submit(0.0, Sequence(1, 10, 19)) is None
    engine.advance(1.5)
    assert engine.free_blocks == 1  # 10 and 4 tokens
    engine.advance(2.5)
    assert engine.free_blocks == 0  # 14 and 4
    told(engine)
    assert engine.free_blocks == 2


def test_preemption_under_speculation() -> None:
    """A full cache: all end, each with all of its tokens, and no step is drawn again."""
    for seed in range(20):
        rng = Random(seed)
        engine = guessing(rng.randint(1, 4), rng.random(), kv_tokens=128)
        sequences = [Sequence(number, rng.randint(1, 40), rng.randint(1, 80)) for number in range(12)]
        for sequence in sequences:
            assert engine.submit(0.0, sequence) is None
        ends = [one.output_tokens for one in told(engine) if one.kind == FINISHED]
        assert sorted(ends) == sorted(sequence.output_tokens for sequence in sequences)
        assert engine.counters.preemptions > 0
        assert engine.free_blocks == engine.settings.blocks
