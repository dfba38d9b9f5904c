"""Is batch work that is done in time told from work that is late?"""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from tests.plan.advice.test_batch_work import answered, documents
from tidegate.cli import command_line
from tidegate.plan.advice.batch_work import batch_ask
from tidegate.plan.answer import Answer
from tidegate.plan.ask import Ask, HandFigures
from tidegate.plan.tenants import tenants_of
from tidegate.planning.verify import simulating
from tidegate.planning.verify.batch_work import verify_batch_work
from tidegate.planning.verify.simulating import Effort
from tidegate.planning.verify.verdict import Verification, label_of, shown

LITTLE = Effort(seeds=2, requests=400)


def verified(ask: Ask, answer: Answer | None = None, effort: Effort = LITTLE) -> Verification:
    """A slice, for one tenant."""
    return verify_batch_work(ask, answer or answered(ask), tenants_of(batch_ask(ask).load, {}), effort)


def test_it_is_done_when_it_was_planned_to_be() -> None:
    """Requests, prompt and output tokens a second, TPOT, and the end of all of it."""
    found = verified(documents())

    assert found.agrees, found.sentence
    assert found.budgets_hold
    assert found.budgets.startswith("Simulated, all 576,000 requests are done in ")
    assert found.refused_ratio == 0
    assert [label_of(each) for each in found.figures][-1] == "done in"
    assert shown(found.figures[-1], found.figures[-1].closed_form).endswith("h")


def test_two_figures_say_nothing_of_prompts() -> None:
    """So nothing of them is compared; the end of all of it is."""
    ask = documents(HandFigures(tokens_per_s=2000, tpot_s=0.02), rate=10.0, prompt=0)
    found = verified(ask, effort=Effort(seeds=2, requests=2000))  # 40 at once, which end together

    assert found.agrees, found.sentence
    assert "prompt_tokens_per_s_per_replica" not in {each.name for each in found.figures}
    assert found.figures[-1].name == "offline.done_s"


def test_a_plan_that_is_late_is_found_out() -> None:
    """Half of the replicas, of which it is said that they do twice as much each."""
    ask = documents(rate=60.0)
    right = answered(ask)
    assert right.replicas > 1
    twice = 2 * right.requests_per_s_per_replica
    wrong = msgspec.structs.replace(
        right,
        replicas=right.replicas // 2,
        requests_per_s_per_replica=twice,
        output_tokens_per_s_per_replica=twice * 100,
        prompt_tokens_per_s_per_replica=twice * 2000,
    )
    found = verified(ask, wrong)

    assert not found.agrees
    assert found.budgets_hold is False
    assert found.budgets.endswith("they are late.")


OFFLINE = (
    *("plan", "--model", "Llama-3.1-8B", "--gpu", "h100-sxm", "--quant", "fp8", "--offline", "100000"),
    *("--input", "2000", "--output", "100", "--within", "1h", "--max-num-seqs", "16"),
)


def test_the_command_writes_and_verifies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both stand beside the comparison with people who wait."""
    monkeypatch.setattr(simulating, "Effort", lambda **_: LITTLE)
    path = tmp_path / "batch.yaml"
    told = CliRunner().invoke(
        command_line(["plan"]), [*OFFLINE, "--emit", str(path), "--verify", "--tenants", "a=2,b", "--json"]
    )
    assert told.exit_code == 0, told.output
    found = json.loads(told.stdout)

    assert path.exists()
    assert found["verify"]["budgets_hold"] is True
    assert found["verify"]["figures"][-1]["name"] == "offline.done_s"
    assert found["advice"]["tenants"]["a"]["weight"] == 2
    assert found["offline"]["interactive_replicas"] >= found["replicas"]
    assert "Simulated, all 100,000 requests are done in" in found["verify"]["budgets"]
