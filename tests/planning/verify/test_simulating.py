"""Is a plan that holds told from one that does not, and is what disagrees named?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from tests.plan.advice.test_advising import asked
from tests.planning.emit.test_emitting import BY_HAND
from tests.planning.test_limits_law import DEMO
from tidegate.cli import command_line
from tidegate.core.records import Budgets
from tidegate.perf.efficiencies import Waiting
from tidegate.plan.advice.advising import advise
from tidegate.plan.answer import Answer, Percentiles
from tidegate.plan.answering import answer_to
from tidegate.plan.ask import USERS_CV, Ask, Kind, Load, Replica, Terms
from tidegate.plan.tenants import Tenant, tenants_of
from tidegate.planning.verify import simulating as verifying
from tidegate.planning.verify.simulating import Effort, verify
from tidegate.planning.verify.verdict import Seen, Verification, verdict_of
from tidegate.simulate.intervals import Estimate

LITTLE = Effort(seeds=3, requests=300)
CHAT = Load(kinds=(Kind(prompt_tokens=1_000, output_tokens=50),), requests_per_s=6.0)


def answered(ask: Ask) -> Answer:
    answer = answer_to(ask)
    assert isinstance(answer, Answer)
    return answer


def verified(ask: Ask, answer: Answer | None = None, tenants: tuple[Tenant, ...] = ()) -> Verification:
    answer = answer or answered(ask)
    tenants = tenants or tenants_of(ask.load, {})
    return verify((ask, answer, advise(ask, answer, tenants)), tenants, LITTLE)


def test_two_figures_hold() -> None:
    """What is computed from two figures is simulated from them, at the very edge of the TPOT budget."""
    ask = msgspec.structs.replace(BY_HAND, terms=Terms(budgets=Budgets(ttft_s=1.0, tpot_s=0.02)))
    found = verified(ask)

    assert found.agrees, found.sentence
    assert found.sentence.startswith("Closed form and simulation agree in all 13 figures")
    assert found.budgets_hold
    assert "budgets hold" in found.budgets
    assert found.refused_ratio == 0
    assert found.seeds == 3
    assert [bound.holds for bound in found.bounds] == [True]
    assert {each.name for each in found.figures} == {
        *(f"{name}.{at}" for name in ("ttft_s", "tpot_s", "e2e_s") for at in ("p50", "p95", "p99")),
        "requests_per_s",
        "output_tokens_per_s",
        "requests_per_s_per_replica",
        "utilisation",
    }


def test_a_curve_holds() -> None:
    """The batch that is computed from a curve is the one that is simulated with it."""
    found = verified(asked(1.0, CHAT, DEMO, tpot_s=0.05))

    latencies = [each for each in found.figures if "." in each.name]
    assert all(each.agrees for each in latencies), found.sentence
    assert found.budgets_hold


def test_a_wrong_plan_is_found_out() -> None:
    """Where the plan says something else, the sentence says which figure, by how much, and whom to trust."""
    ask = asked(1.0, CHAT, DEMO, tpot_s=0.01)
    answer = msgspec.structs.replace(answered(asked(1.0, CHAT, DEMO)), tpot_s=Percentiles.of(0.001))
    found = verified(ask, answer)

    assert not found.agrees
    assert found.sentence.startswith("Closed form and simulation disagree in 3 of 13 figures")
    assert "most in TPOT P" in found.sentence
    assert ": 1ms against " in found.sentence
    assert "trust the simulation: it has every prompt that is computed between two tokens" in found.sentence
    wrong = [each for each in found.figures if not each.agrees]
    assert {each.name for each in wrong} == {"tpot_s.p50", "tpot_s.p95", "tpot_s.p99"}
    assert {each.trust for each in wrong} == {"simulation"}
    # A step takes longer than that.
    assert found.budgets_hold is False
    assert "do not hold: 0%" in found.budgets


@pytest.mark.parametrize("think_s", [0.0, 2.0])
def test_users_are_simulated_as_they_are_planned(think_s: float) -> None:
    """As many, thinking as long, of the same lengths; nobody is refused who begins with all the others."""
    kind = Kind(prompt_tokens=500, output_tokens=100, prompt_cv=USERS_CV, output_cv=USERS_CV)
    ask = asked(1.0, Load(kinds=(kind,), users=30, think_s=think_s), DEMO, tpot_s=0.05)
    found = verified(ask)

    assert found.agrees, found.sentence
    assert found.refused_ratio == 0
    assert found.budgets_hold


def test_what_is_not_simulated_is_left_out_of_the_comparison() -> None:
    """What an engine's software takes beside its steps is in the plan, and no simulated engine has it."""
    kind = Kind(prompt_tokens=500, output_tokens=100, prompt_cv=USERS_CV, output_cv=USERS_CV)
    ask = asked(1.0, Load(kinds=(kind,), users=20, think_s=2.0), DEMO, tpot_s=0.05)
    assert isinstance(ask.replica, Replica)
    slow = msgspec.structs.replace(ask.replica, waiting=Waiting(overhead_s=0.3, steps=3))
    ask = msgspec.structs.replace(ask, replica=slow)
    found = verified(ask)

    assert found.agrees, found.sentence
    assert "what benchmarks show of the engine's software" in found.warnings[-1]
    (ttft,) = [each for each in found.figures if each.name == "ttft_s.p95"]
    assert ttft.closed_form < answered(ask).ttft_s.p95 - 0.3


def test_what_several_tenants_sustain_is_of_all_that_they_send() -> None:
    """Short requests of one and long ones of another are served as often as they are sent, not as is fair."""
    kinds = (
        Kind(prompt_tokens=200, output_tokens=20, share=3, tenant="a"),
        Kind(prompt_tokens=1_500, output_tokens=150, share=1, tenant="b"),
    )
    found = verified(asked(1.0, Load(kinds=kinds, requests_per_s=3.0), DEMO, tpot_s=0.05))

    (sustained,) = [each for each in found.figures if each.name == "requests_per_s_per_replica"]
    assert sustained.agrees, (sustained.closed_form, sustained.simulated)


def test_what_is_refused_is_said() -> None:
    """Twice what one replica may be sent is refused by its limits, which no closed form knows."""
    ask = asked(1.0, msgspec.structs.replace(CHAT, requests_per_s=20.0), DEMO, replicas=1)
    found = verified(ask)

    assert found.refused_ratio > 0.3
    assert "it refused" in next(each for each in found.figures if each.name == "requests_per_s").because
    assert found.budgets_hold is False


@pytest.fixture(scope="module")
def seen() -> Seen:
    """A small run, some figures of which are then replaced."""
    kept: list[Seen] = []
    original = verdict_of

    def keep(ask: Ask, answer: Answer, found: Seen) -> Verification:
        kept.append(found)
        return original(ask, answer, found)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(verifying, "verdict_of", keep)
        verified(BY_HAND)
    return kept[0]


@pytest.mark.parametrize(
    ("p99", "thin", "agrees", "trust"),
    [
        (Estimate(10.0, 9.9, 10.1), (), True, "both"),  # E2E P99 is planned to be 10 s
        (Estimate(12.0, 9.9, 14.1), (), True, "both"),  # within the interval
        (Estimate(11.9, 11.8, 12.0), (), True, "both"),  # within 20 % of it
        (Estimate(13.0, 12.9, 13.1), (), False, "simulation"),
        (Estimate(40.0, 11.0, 69.0), (), False, "neither"),
        (Estimate(40.0, 11.0, 69.0), ("p99",), False, "closed_form"),
        (Estimate(), (), False, "closed_form"),
    ],
)
def test_whom_to_trust(seen: Seen, p99: Estimate, thin: tuple[str, ...], agrees: bool, trust: str) -> None:
    """By interval, by tolerance, and by how well the simulation itself knows the figure."""
    e2e_s = msgspec.structs.replace(seen.total.e2e_s, p99=p99, thin=thin)
    total = msgspec.structs.replace(seen.total, e2e_s=e2e_s)
    found = verdict_of(BY_HAND, answered(BY_HAND), msgspec.structs.replace(seen, total=total))
    figure = next(each for each in found.figures if each.name == "e2e_s.p99")

    assert (figure.agrees, figure.trust) == (agrees, trust)
    assert bool(figure.because) is not agrees
    assert found.agrees is agrees


# -- the command ----------------------------------------------------------------------------------

WAY_ONE = ["plan", "--throughput", "2000", "--output", "500", "--tpot", "20ms", "--qps", "10"]


def run(*arguments: str) -> Any:
    return CliRunner().invoke(command_line(["plan", "config"]), [*WAY_ONE, *arguments])


@pytest.fixture
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate no more than a test needs."""
    monkeypatch.setattr(verifying, "Effort", lambda **_: Effort(seeds=2, requests=100))


@pytest.mark.usefixtures("little")
def test_the_command_verifies(tmp_path: Path) -> None:
    """The file is written, the sentence told, and both are in the JSON; the exit status is 0."""
    path = tmp_path / "tidegate.yaml"
    told = run("--tenants", "acme=2,lab", "--emit", str(path), "--verify")
    assert told.exit_code == 0, told.output
    assert "Closed form and simulation agree" in " ".join(told.output.split())
    assert f"wrote {path}" in told.output
    assert path.exists()

    told = run("--tenants", "acme=2,lab", "--verify", "--json")
    assert told.exit_code == 0, told.output
    found = json.loads(told.stdout)
    assert found["verify"]["agrees"] is True
    assert found["verify"]["budgets_hold"] is True
    assert [each["name"] for each in found["verify"]["figures"]][:3] == [
        "ttft_s.p50",
        "ttft_s.p95",
        "ttft_s.p99",
    ]
    assert found["advice"]["tenants"]["acme"]["weight"] == 2
    assert found["advice"]["gate"]["max_concurrency"]["value"] == 40


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--tenants", "a=0"], "--tenants a: '0' cannot be; give a weight above 0"),
        (["--tenants", "a,,b"], "--tenants a,,b: write NAME=WEIGHT"),
        (["--tenants", "a,a"], "--tenants a,a: a stands twice"),
        (["--force"], "--force belongs to --emit"),
        (["--emit", "nowhere/t.yaml"], "there is no folder nowhere"),
    ],
)
def test_what_cannot_be_wanted(arguments: list[str], said: str) -> None:
    """It is told before anything is computed."""
    told = run(*arguments)
    assert told.exit_code == 2
    assert said in told.output


def test_what_is_there_stays(tmp_path: Path) -> None:
    """Nothing is computed for a file that may not be written."""
    path = tmp_path / "tidegate.yaml"
    path.write_text("mine")

    told = run("--emit", str(path))
    assert told.exit_code == 2
    assert "is there already; write --force to replace it" in " ".join(told.output.split())
    assert run("--emit", str(path), "--force").exit_code == 0
    assert path.read_text() != "mine"
