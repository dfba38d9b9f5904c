"""`tidegate plan --offload`: what host memory keeps of the sessions of a planned replica."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from tidegate.planning.commands import plan_app

app = typer.Typer()
app.add_typer(plan_app, name="plan")
app.command("other")(lambda: None)
BUILT = ("--model", "Llama-3.1-70B", "--gpu", "h100-sxm", "--tp", "8", "--quant", "fp16")
SESSIONS = (*BUILT, "--input", "32000", "--output", "768")
USERS = ("--users", "256", "--think", "60s", "--ttft", "5s", "--tpot", "60ms")


def invoke(*options: str) -> Result:
    """The command."""
    return CliRunner().invoke(app, ["plan", *options])


def answered(*options: str) -> Any:
    """Its JSON."""
    result = invoke(*options, "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def test_what_is_kept() -> None:
    """42 sessions of 10 GiB are resident and 100 more are kept; the plan is as it was."""
    without, found = answered(*SESSIONS), answered(*SESSIONS, "--offload", "1000")
    kept = found["offload"]

    assert (kept["resident"], kept["parked"], kept["session_bytes"]) == (42, 100, 10 * 2**30)
    assert kept["at_once"] == found["concurrency_per_replica"]
    assert kept["restore_s"] == pytest.approx(10 * 2**30 / (8 * 55e9))
    assert (found["fleet"], without["offload"]) == (None, None)
    assert without["requests_per_s"] == found["requests_per_s"]


def test_of_users_it_is_how_many_replicas_keep_all() -> None:
    """TPOT lets fewer decode at once than are held: what waits is held all the same, and counts as kept."""
    found = answered(*SESSIONS, *USERS, "--offload", "1000")
    each, fleet = found["offload"], found["fleet"]

    assert each["at_once"] == found["concurrency_per_replica"] < each["resident"] == 42
    assert (each["kept"], fleet["sessions"]) == (142, 256)
    assert fleet["replicas"] == -(-256 // each["at_once"])
    assert (fleet["replicas_offloaded"], fleet["decode_at_once"]) == (2, 2 * each["at_once"])


def test_people_are_told_and_a_report_has_it(tmp_path: Path) -> None:
    """A paragraph each, below the figures."""
    report = tmp_path / "plan.html"
    shown = invoke(*SESSIONS, *USERS, "--offload", "1000", "--html", str(report)).stdout

    for sentence in ("100 sessions of 10 GiB more between turns", "256 sessions that all decode at once"):
        assert sentence in " ".join(shown.split())
        assert sentence in report.read_text()


@pytest.mark.parametrize(
    "options, problem",
    [
        (("--throughput", "2000", "--output", "5", "--tpot", "20ms", "--offload", "9"), "belongs to --model"),
        ((*SESSIONS, "--offload-link", "9GB/s"), "--offload-link belongs to --offload"),
        ((*SESSIONS, "--offload", "9"), "--offload: 9 GiB hold no session of 10 GiB; more host memory"),
        ((*SESSIONS, "--offload", "nan"), "--offload: 'nan'"),
        ((*SESSIONS, "--offload", "99", "--offload-link", "9"), "--offload-link: '9' is no rate of a link"),
        ((*SESSIONS, "--offload", "99", "--disaggregated", "--qps", "1"), "--offload and --disaggregated"),
        ((*SESSIONS, "--offload", "99", "--offline", "1000", "--within", "1h"), "--offload and --offline"),
    ],
)
def test_what_cannot_be(options: tuple[str, ...], problem: str) -> None:
    """A sentence with what would do, and exit status 2; with --json the same as data."""
    result = invoke(*options)
    assert result.exit_code == 2
    assert problem in result.stderr

    as_data = invoke(*options, "--json")
    assert as_data.exit_code == 2
    assert json.loads(as_data.stdout)["problems"]
