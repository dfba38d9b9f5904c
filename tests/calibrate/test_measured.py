"""Recorded requests of real vLLM: the line that their first stretches give meets the held-out ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from accuracy.runs import Run, read_runs
from tests.shared_data import shared
from tidegate.bench.load import LoadRecord
from tidegate.calibrate.records import points_of
from tidegate.calibrate.report import report_of
from tidegate.calibrate.sources import Found
from tidegate.calibrate.told import Told


def records_of(run: Run) -> list[LoadRecord]:
    """Its requests, as the bench would have written them."""
    return [
        LoadRecord(
            request_id=each.id,
            tenant="default",
            priority="",
            pool=run.description.model,
            arrived_at=each.arrival_s,
            dispatched_at=each.queued_s,
            first_token_at=each.first_token_s,
            ended_at=each.last_token_s,
            prompt_tokens=each.prompt_tokens,
            output_tokens=each.output_tokens,
            asked_tokens=each.output_tokens,
        )
        for each in run.requests
    ]


@pytest.mark.parametrize(
    ("name", "most"), [("rtx4090_llama31-8b_tp1", 0.06), ("rtxpro6000_llama31-8b_tp1", 0.005)]
)
def test_requests_of_real_vllm(name: str, most: float) -> None:
    """Held-out errors are a few per cent, and that all contexts were alike does not go unsaid."""
    runs = {run.description.run: run for run in read_runs(Path(shared("vllm-measured-requests")))}
    engine = runs[name].description.engine_kwargs
    points = points_of(records_of(runs[name]), engine.max_num_batched_tokens)
    told = Told(max_num_seqs=engine.max_num_seqs, max_batched_tokens=engine.max_num_batched_tokens)
    measured = report_of(Found(points=points, told=told, source=name), file="", date="").profile.measured

    assert measured is not None
    assert measured.held_out_points == 75
    assert measured.held_out_error_ratio is not None
    assert measured.held_out_error_ratio < most
    assert any("batch and context were not varied independently" in each for each in measured.warnings)
