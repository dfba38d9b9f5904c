"""Are the bounds of an engine that cannot be named, and do the profiles take the time that they claim?"""

from __future__ import annotations

from math import inf, nan
from typing import Any

import pytest

from tests.sim.engines import replica
from tidegate.core.errors import CallerError, ConfigurationError
from tidegate.sim.profiles import TABLE, named
from tidegate.sim.settings import Speculation


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"max_num_seqs": 0}, "max_num_seqs must be at least 1, not 0"),
        ({"block_tokens": 0}, "block_tokens must be at least 1, not 0"),
        ({"long_prefill_tokens": -1}, "long_prefill_tokens must be 0 or more, not -1"),
        ({"speed": nan}, "speed must be above 0 and finite, not nan"),
        ({"max_num_seqs": 9, "max_batched_tokens": 8}, "raise it from 8 to 9, or lower max_num_seqs"),
        ({"kv_tokens": 15}, "kv_tokens must hold a block of 16, not 15"),
        ({"kv": "reserved", "prefix_cache": True}, "prefix_cache needs kv: paged"),
        ({"chunked_prefill": False, "long_prefill_tokens": 64}, "long_prefill_tokens needs chunked_prefill"),
        (
            {"speculation": Speculation(draft_tokens=0, acceptance_ratio=0.5)},
            "draft_tokens must be at least 1",
        ),
        ({"speculation": Speculation(draft_tokens=2, acceptance_ratio=1.5)}, "must be from 0 to 1, not 1.5"),
        (
            {"max_batched_tokens": 16, "speculation": Speculation(draft_tokens=2, acceptance_ratio=0.5)},
            "raise it from 16 to 24",
        ),
    ],
)
def test_what_cannot_be(changes: dict[str, Any], says: str) -> None:
    """A bound that no engine has, and bounds that exclude each other."""
    with pytest.raises(ConfigurationError, match=says):
        replica(**changes)


def test_speculation_needs_dice() -> None:
    """Who simulates it without an rng has forgotten that it is drawn."""
    with pytest.raises(CallerError, match="rng"):
        replica(speculation=Speculation(draft_tokens=2, acceptance_ratio=0.5))


def test_the_longest_sequence() -> None:
    """The context, the whole blocks of the cache, or what a step computes at once if prompts are not cut."""
    cases: list[tuple[dict[str, Any], int]] = [
        ({}, 8192),
        ({"kv_tokens": 100}, 96),
        ({"chunked_prefill": False}, 1024),
    ]
    for changes, most in cases:
        assert replica(**changes).settings.sequence_tokens == most, changes


def test_the_h100_profile_against_measurements() -> None:
    """A steady state of the H100 profile is within 8 % of TPOTs measured on one.

    Source: TensorRT-LLM 1.0.0rc3, Llama-3.1-8B, one H100 SXM; rows of the aiconfigurator project.
    """
    curve = named("h100-8b").curve

    for prompt_tokens, output_tokens, sequences, tpot_ms in [
        (1024, 128, 8, 7.9435),
        (1024, 128, 32, 13.187),
        (1024, 128, 128, 31.662),
        (1024, 512, 8, 7.4167),
        (1024, 512, 64, 13.102),
        (2048, 128, 64, 33.621),
        (2048, 256, 128, 40.409),
        (2048, 512, 32, 12.560),
        (4096, 512, 8, 9.6474),
        (4096, 512, 64, 30.089),
    ]:
        # As many prompts are computed per step as sequences end in one.
        context_tokens = sequences * (prompt_tokens + output_tokens // 2)
        prefill_tokens = sequences * prompt_tokens // output_tokens
        step_ms = 1e3 * curve.step_s(sequences, context_tokens, [(prefill_tokens, 0)])
        assert step_ms == pytest.approx(tpot_ms, rel=0.08), (prompt_tokens, output_tokens, sequences)


def test_the_demo_profile_keeps_its_promise() -> None:
    """Thirty sequences of 500 tokens decode in about 20 ms, and prefill runs at 20,000 tokens/s."""
    curve = named("demo").curve

    assert curve.step_s(30, 30 * 500) == pytest.approx(19.5e-3)
    assert curve.step_s(0, 0, [(1001, 0)]) - curve.step_s(0, 0, [(1, 0)]) == pytest.approx(1000 / 20_000)


@pytest.mark.parametrize("name", TABLE)
def test_every_profile_serves(name: str) -> None:
    """Ten times the speed, and otherwise the same engine."""
    fast = named(name, speed=10)

    assert fast.replica.speed == 10
    assert fast.curve == named(name).curve
    assert fast.replica.sequence_tokens >= 4096


@pytest.mark.parametrize(
    ("name", "speed"), [("h200", 1.0), ("demo", 0.0), ("demo", -1.0), ("demo", inf), ("demo", nan)]
)
def test_what_has_no_name(name: str, speed: float) -> None:
    """An unknown name and a speed that is none are configuration errors."""
    with pytest.raises(ConfigurationError):
        named(name, speed)
