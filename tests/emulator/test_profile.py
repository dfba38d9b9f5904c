"""Do the named profiles take the time that they claim to take?"""

from __future__ import annotations

from math import inf, nan

import pytest

from tidegate.core.errors import ConfigurationError
from tidegate.emulator.profile import TABLE, named


def test_the_h100_profile_against_measurements() -> None:
    """A steady state of the H100 profile is within 8 % of TPOTs measured on one.

    Source: TensorRT-LLM 1.0.0rc3, Llama-3.1-8B, one H100 SXM; rows of the aiconfigurator project.
    """
    profile = named("h100-8b")

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
        step_ms = 1e3 * profile.step_s(sequences, context_tokens, prefill_tokens)
        assert step_ms == pytest.approx(tpot_ms, rel=0.08), (prompt_tokens, output_tokens, sequences)


def test_the_demo_profile_keeps_its_promise() -> None:
    """Thirty sequences of 500 tokens decode in about 20 ms, and prefill runs at 20,000 tokens/s."""
    demo = named("demo")

    assert demo.step_s(30, 30 * 500, 0) == pytest.approx(19.5e-3)
    assert demo.step_s(1, 0, 1000) - demo.step_s(1, 0, 0) == pytest.approx(1000 / 20_000)


def test_speed_divides_every_duration() -> None:
    """Ten times the speed is a tenth of the time, whatever the step holds."""
    for name in TABLE:
        assert named(name, speed=10).step_s(3, 400, 50) == pytest.approx(named(name).step_s(3, 400, 50) / 10)


@pytest.mark.parametrize(
    ("name", "speed"), [("h200", 1.0), ("demo", 0.0), ("demo", -1.0), ("demo", inf), ("demo", nan)]
)
def test_what_cannot_be(name: str, speed: float) -> None:
    """An unknown name and a speed that is none are configuration errors."""
    with pytest.raises(ConfigurationError):
        named(name, speed)
