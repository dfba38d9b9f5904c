"""What cannot be deployed is refused, all of it at once."""

from __future__ import annotations

from typing import Any

import pytest

from tests.perf.shapes import DEEPSEEK, LLAMA_8B, device
from tidegate.core.errors import ConfigurationError
from tidegate.perf.deployment import Deployment


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"tp": 0, "pp": 0}, ["tp: 0 must be", "pp: 0 must be"]),
        ({"memory_ratio": 1.2}, ["memory_ratio: 1.2"]),
        ({"reserve_bytes": -1}, ["reserve_bytes: -1"]),
        ({"weights": "fp7", "kv": "fp3", "software": "ollama"}, ["'fp7'", "'fp3'", "'ollama'"]),
        ({"tp": 3}, ["32 attention heads cannot be shared by 3"]),
        ({"tp": 2, "ep": 2}, ["no experts"]),
        ({"pp": 40}, ["32 layers are too few for 40"]),
        ({"model": DEEPSEEK, "tp": 4, "ep": 3}, ["4 devices are not a multiple of 3"]),
        ({"model": DEEPSEEK, "tp": 128, "attention_dp": 4, "ep": 512}, ["256 experts are too few for 512"]),
    ],
)
def test_what_cannot_be_is_named(settings: dict[str, Any], words: list[str]) -> None:
    """One line for each fault."""
    with pytest.raises(ConfigurationError) as raised:
        Deployment(**{"model": LLAMA_8B, "accelerator": device(), **settings})
    assert len(raised.value.problems) == len(words)
    for problem, word in zip(raised.value.problems, words, strict=True):
        assert word in problem


def test_devices_are_counted_over_all_ways_to_share() -> None:
    """Two copies of attention on four devices each, in two stages."""
    deployment = Deployment(model=DEEPSEEK, accelerator=device(), tp=4, attention_dp=2, pp=2, ep=8)
    assert (deployment.devices, deployment.stage_devices, deployment.precision) == (16, 8, "fp8")
