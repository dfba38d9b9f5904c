"""Does calibrating a real llama.cpp give a profile of it? How good a one depends on the machine."""

from __future__ import annotations

import asyncio

import pytest

from tests.engines.llama import Llama
from tidegate.calibrate.report import Report, report_of
from tidegate.calibrate.sources import Asked, of_engine
from tidegate.calibrate.told import Told
from tidegate.core.curve import Linear

pytestmark = [pytest.mark.engine, pytest.mark.timeout(180, func_only=True)]


def calibrated(url: str, for_s: float) -> Report:
    """What comes of so long."""
    asked = Asked(url=url, model=None, api_key="", for_s=for_s, seed=None)
    found = asyncio.run(of_engine(asked, Told()))
    return report_of(found, file="p.yaml", date="")


def test_a_profile_of_a_real_engine(llama: Llama) -> None:
    """It has the engine's own slots and context, steps that take time, and prompts that cost."""
    report = calibrated(llama.url, 25.0)
    curve, replica, measured = report.profile.curve, report.profile.replica, report.profile.measured

    assert (replica.max_num_seqs, replica.context_tokens) == (llama.slots, llama.context_tokens)
    assert replica.kv_tokens == llama.slots * llama.context_tokens
    assert isinstance(curve, Linear)
    assert 1e-5 < curve.a_s + curve.b_s_per_sequence < 1.0
    assert curve.step_s(0, 0, [(1000, 0)]) > 1.5 * curve.step_s(0, 0, [(200, 0)])
    assert curve.step_s(llama.slots, 4000) > curve.step_s(1, 100)
    assert measured is not None
    # On a busy machine an answer of a tenth of a second may arrive in one piece, which shows no steps.
    assert measured.sequences.least <= 2
    assert measured.sequences.most == llama.slots
    assert measured.held_out_points >= 1
    assert report.held_out_error_ratio is not None
