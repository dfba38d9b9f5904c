"""Does `tidegate plan` say of a measured deployment what docs/accuracy judges the planner by?"""

from __future__ import annotations

import json
from collections import defaultdict
from functools import cache
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from accuracy.planner.rows import DATA, Row, is_judged, read_rows
from accuracy.planner.scoring import loop_of
from tidegate.perf.deployment import SOFTWARE
from tidegate.planning.commands import plan_app

app = typer.Typer()
app.add_typer(plan_app, name="plan")
app.command("other")(lambda: None)

Kind = tuple[str, bool, bool, bool]


def kind_of(row: Row) -> Kind:
    """By what a prediction may differ: software, experts, copies of attention, and a queue for room."""
    loop = loop_of(row)
    assert loop is not None
    return row.software, row.dense, row.deployments[0].attention_dp > 1, loop.waiting_s > 0


@cache
def rows() -> dict[Kind, Row]:
    """The middle one of each kind, by the name of its curve and the number of its clients."""
    if not DATA.exists():
        pytest.skip("the folder ../shared/data is not beside this clone")
    kinds: dict[Kind, list[Row]] = defaultdict(list)
    for row in read_rows():
        if row.mode == "agg":
            kinds[kind_of(row)].append(row)
    ordered = {kind: sorted(each, key=lambda row: (row.curve, row.clients)) for kind, each in kinds.items()}
    return {kind: each[len(each) // 2] for kind, each in ordered.items()}


def planned(row: Row) -> dict[str, Any]:
    """The JSON of the command, for the deployment and the clients of a row."""
    deployment = row.deployments[0]
    options = {
        "--model": deployment.model.name,
        "--gpu": deployment.accelerator.name,
        "--tp": deployment.tp,
        "--pp": deployment.pp,
        "--ep": deployment.ep,
        "--dp": deployment.attention_dp,
        "--quant": deployment.precision,
        "--kv-quant": deployment.kv,
        "--engine": deployment.software,
        "--max-num-seqs": deployment.max_num_seqs,
        "--users": max(row.clients, deployment.attention_dp),
        "--input": row.prompt_tokens,
        "--output": row.output_tokens,
        "--replicas": 1,
        "--spare": 0,
    }
    written = [text for name, value in options.items() for text in (name, str(value))]
    result = CliRunner().invoke(app, ["plan", *written, "--json"])
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_the_command_says_what_is_scored() -> None:
    """Latencies are the benchmark's, and what comes after its opening is sooner where all have a place:
    for every engine, with experts and without, queueing for room or not.
    """
    for kind, row in rows().items():
        loop, found = loop_of(row), planned(row)
        assert loop is not None
        run_s, later = found["ttft_s"]["mean"], found["afterwards"]
        assert run_s == pytest.approx(loop.ttft_s, rel=1e-9), kind
        if not later["wait_s"]["mean"]:  # before a gate, which takes fewer than the engine, more wait
            assert later["ttft_s"]["mean"] < run_s, kind
        for at in ("mean", "p50"):
            assert found["tpot_s"][at] == pytest.approx(loop.tpot_s, rel=1e-9), kind
        assert found["e2e_s"]["mean"] == pytest.approx(loop.e2e_s, rel=1e-9), kind
        assert found["requests_per_s"] == pytest.approx(loop.requests_per_s, rel=0.03), kind
        if loop.binding == "kv_memory":
            assert found["binding"] == "kv_memory", kind


def test_every_kind_is_among_them() -> None:
    """All engines, copies of attention, and rows that queue."""
    kinds = rows()

    assert {kind[0] for kind in kinds} == set(SOFTWARE)
    assert {kind[1:3] for kind in kinds} >= {(True, False), (False, False), (False, True)}
    assert any(kind[3] for kind in kinds)
    assert any(is_judged(row) and row.held_out for row in kinds.values())
