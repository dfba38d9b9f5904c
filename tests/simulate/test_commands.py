"""Does `tidegate simulate` do what it is asked, and end as it should?"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet
import pytest
import typer
from typer.testing import CliRunner, Result

from tests.simulate.settings import FILE
from tidegate.simulate import execution
from tidegate.simulate.commands import simulate
from tidegate.simulate.execution import Failure, in_processes
from tidegate.simulate.run import RunResult, RunSettings, run

app = typer.Typer()
app.command()(simulate)
SHORT = ("--for", "10s", "--warmup", "none")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The small fleet, in a file."""
    path = tmp_path / "tidegate.yaml"
    path.write_text(FILE)
    return path


def invoke(file: Path, *options: str) -> Result:
    """The command, in this process."""
    return CliRunner().invoke(app, [str(file), *SHORT, "--jobs", "1", *options])


def printed(result: Result) -> dict[str, Any]:
    """Its JSON."""
    assert result.exit_code == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_figures_on_stdout_and_the_rest_on_stderr(file: Path) -> None:
    """What is run is said first; `--json` can be piped."""
    result = invoke(file, "--json")
    found = printed(result)

    assert result.stderr.startswith(f"simulating {file}: 1 pool, 2 replicas; 5 requests/s, Poisson")
    assert found["points"][0]["figures"]["total"]["requests"] > 20
    assert found["interrupted"] is False


def test_the_same_to_the_byte(file: Path) -> None:
    """The same options print the same, and another seed does not."""
    one, again, other = (invoke(file, "--json", "--seed", seed).stdout for seed in "112")

    assert one == again != other


def test_a_table_for_people(file: Path) -> None:
    """Without `--json` it is a table."""
    result = invoke(file)

    assert result.exit_code == 0
    assert "TTFT" in result.stdout
    assert "arrived" in result.stdout


def test_a_class_is_measured_by_the_budgets_of_the_traffic_file(file: Path, tmp_path: Path) -> None:
    """A plan is held to them too; who asks in no class is measured in the tenant's."""
    lengths = "lengths: {prompt_tokens: {type: fixed, value: 100}, output_tokens: {type: fixed, value: 10}}"
    sources = f"sources: {{a: {{kind: open, tenant: acme, arrivals: {{rate_per_s: 5}}, {lengths}}}}}\n"
    figures = []
    for name, budgets in (("wide", "ttft_s: 30"), ("narrow", "ttft_s: 1.0e-6")):
        path = tmp_path / f"{name}.yaml"
        path.write_text(f"{sources}classes: {{default: {{budgets: {{{budgets}}}}}}}\n")
        (point,) = printed(invoke(file, "--json", "--traffic", str(path)))["points"]
        figures.append((point["budgets"]["chat"], point["figures"]["classes"]["chat"]))

    assert [budgets["ttft_s"] for budgets, _ in figures] == [30, 1e-6]
    assert [budgets["tpot_s"] for budgets, _ in figures] == [0.05, 0.05]
    assert [own["goodput_ratio"]["value"] for _, own in figures] == [1, 0]


def test_what_engines_are_taken_to_be(file: Path) -> None:
    """If the file does not say, that is said, once."""
    file.write_text(FILE.replace("{profile: demo}", "{}"))

    unsaid = "llama: `simulation.pools` does not say what its engines are; taken to be "
    assert unsaid + "h100-8b" in invoke(file).stderr
    assert unsaid + "vllm-cpu-tiny" in invoke(file, "--profile", "vllm-cpu-tiny").stderr


def test_every_file(file: Path, tmp_path: Path) -> None:
    """A report, the requests of all runs, and the batches of the first."""
    html, parquet, perfetto = (tmp_path / name for name in ("r.html", "r.parquet", "r.json"))
    found = printed(invoke(file, "--json", "--repeat", "2", "--html", str(html), "--parquet", str(parquet)))
    invoke(file, "--perfetto", str(perfetto))
    rows = pyarrow.parquet.read_table(parquet).to_pylist()

    assert html.read_text().startswith("<!doctype html>")
    assert {row["seed"] for row in rows} == {1, 2}
    assert len(rows) == found["points"][0]["conservation"]["arrived"]
    assert json.loads(perfetto.read_text())["traceEvents"]


def test_a_sweep_goes_on_without_what_cannot_be(file: Path) -> None:
    """It is named, and the exit status is that of the others."""
    result = invoke(file, "--json", "--sweep", "pools.llama.queue.max_requests=5,many")
    good, bad = printed(result)["points"]

    assert good["figures"]["total"]["requests"] > 20
    assert (bad["figures"], bad["set"]) == (None, {"pools.llama.queue.max_requests": "many"})
    assert "needs a whole number" in bad["problems"][0]
    assert "pools.llama.queue.max_requests=many: left out: " in result.stderr


@pytest.mark.parametrize(
    "options, problem",
    [
        (["--rate", "0"], "--rate is above 0, not 0"),
        (["--for", "10"], "--for: '10' is not a duration: write a number and a unit, as in 10s or 10ms"),
        (["--sweep", "rate"], "--sweep rate: write KEY=VALUES, such as rate=10..60:10"),
        (["--set", "x"], "--set x: write KEY=VALUE, such as limits.max_in_flight=100"),
        (["--sweep", "rate=a,b"], "rate=a: is not a number"),
        (["--rate", "3", "--sweep", "rate=1,2"], "--rate 3 and --sweep rate: leave one out"),
        (["--time-scale", "2", "--sweep", "time_scale=1,2"], "--time-scale 2 and --sweep time_scale: leave"),
        (["--profile", "demo", "--sweep", "profile=demo"], "--profile demo and --sweep profile: leave"),
        (
            ["--warmup", "1h"],
            "--warmup 1h: requests come for 10s only, so that nothing is left to measure; shorten it, or run",
        ),
        (["--perfetto", "t.json", "--sweep", "rate=1,2"], "--perfetto is of one point; leave out --sweep"),
        (
            ["--profile", "x", "--set", "simulation.pools.llama.profile=null"],
            "profile 'x' is not known; there are:",
        ),
        (
            ["--trace", "azure-conv", "--rate", "1e9"],
            "--rate 1e+09 of trace azure-conv: 7.98546e+08 times the trace's rate makes "
            "10,381,104,500 requests, and 10,000,000 are the most; take a shorter part of the trace",
        ),
        (["--html", "no/r.html"], "--html no/r.html: No such file or directory"),
        (["--perfetto", "no/t.json", "--repeat", "2"], "--perfetto no/t.json: No such file or directory"),
        (["--ray", "auto"], "--ray needs ray; install it with: pip install 'tidegate[ray]'"),
    ],
)
def test_what_cannot_be(
    file: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], problem: str
) -> None:
    """The exit status is 2, and stderr says why."""
    monkeypatch.setitem(sys.modules, "ray", None)
    result = invoke(file, *options)

    assert result.exit_code == 2
    assert problem in result.stderr
    assert result.stdout == ""


def test_too_few_for_an_interval(file: Path) -> None:
    """Then none is shown, not half of one."""
    result = invoke(file, "--requests", "3")

    assert "100%, " in result.stdout
    assert "..-" not in result.stdout


def test_no_file_is_written_over_another(file: Path, tmp_path: Path) -> None:
    """Neither one report over the other nor a report over the configuration."""
    said, report = file.read_text(), str(tmp_path / "r")
    twice = invoke(file, "--html", report, "--perfetto", str(tmp_path / "." / "r"))
    over = invoke(file, "--html", str(file))

    assert (twice.exit_code, over.exit_code) == (2, 2)
    assert f"--perfetto {report}: is --html too; name another file" in twice.stderr
    assert f"--html {file}: is the configuration too; name another file" in over.stderr
    assert file.read_text() == said


def test_what_fails_only_when_it_is_run(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A seed that fails is said; where all do, the status is 2."""

    def failing(seeds: set[int]) -> Any:
        def attempt(settings: RunSettings, on_time: Any = None) -> RunResult | Failure:
            return Failure(("gone",)) if settings.seed in seeds else run(settings, on_time)

        return attempt

    monkeypatch.setattr(execution, "attempt", failing({1}))
    one = invoke(file, "--json", "--repeat", "2")
    monkeypatch.setattr(execution, "attempt", failing({1, 2}))
    both = invoke(file, "--json", "--repeat", "2")

    assert printed(one)["points"][0]["seeds"] == [2]
    assert "a seed: left out: gone" in one.stderr
    assert both.exit_code == 2
    assert json.loads(both.stdout)["problems"] == [{"problem": "gone", "remedy": ""}]


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    """It is named."""
    result = invoke(tmp_path / "none.yaml")

    assert result.exit_code == 2
    assert "none.yaml: cannot be read: No such file or directory" in result.stderr


def test_a_bar_for_continuous_integration(file: Path) -> None:
    """A class that holds its budgets too seldom makes the exit status 1, and is named with its share."""
    fast, slow = (
        invoke(file, "--min-goodput", "0.9", "--ttft", budget, "--json", "--for", "30s")
        for budget in ("5s", "1ms")
    )

    assert fast.exit_code == 0
    assert slow.exit_code == 1
    assert "class chat holds its budgets for 0.00% (" in slow.stderr
    assert "), below 90.00%" in slow.stderr
    assert json.loads(slow.stdout)["points"][0]["budgets"]["chat"]["ttft_s"] == 0.001


def test_a_bar_that_cannot_be_judged(file: Path) -> None:
    """A point that was left out does not pass for one that holds."""
    result = invoke(file, "--min-goodput", "0", "--sweep", "rate=4,x")

    assert result.exit_code == 1
    assert "rate=x: has no figures, so nothing is known to hold" in result.stderr


def test_processes_change_nothing(file: Path) -> None:
    """All cores give, to the byte, what one gives."""
    options = [str(file), *SHORT, "--json", "--sweep", "rate=2,4", "--repeat", "2"]
    one, two = (CliRunner().invoke(app, [*options, "--jobs", jobs]).stdout for jobs in "12")

    assert one == two
    assert [point["seeds"] for point in json.loads(one)["points"]] == [[1, 2], [1, 2]]


def test_ctrl_c_in_a_sweep(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The points that are done are reported, the others are there without figures; the status is 130."""
    ended = []

    def interrupted(tasks: Any, jobs: int) -> Any:
        found = execution.here(tasks)
        try:
            yield next(found)
            raise KeyboardInterrupt
        finally:
            ended.append(True)

    monkeypatch.setattr("tidegate.simulate.session.in_processes", interrupted)
    options = [str(file), *SHORT, "--json", "--sweep", "rate=2,4", "--jobs", "2"]
    result = CliRunner().invoke(app, options)
    done, left = json.loads(result.stdout)["points"]

    assert result.exit_code == 130
    assert json.loads(result.stdout)["interrupted"] is True
    assert done["figures"] is not None
    assert left["figures"] is None
    assert ended == [True]
    assert in_processes is not interrupted


def test_ctrl_c_in_a_run(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last line counts what was measured by then."""

    def interrupted(settings: RunSettings, *_: Any) -> RunResult:
        return msgspec.structs.replace(run(settings), counts=None)

    monkeypatch.setattr("tidegate.simulate.execution.run", interrupted)
    result = invoke(file, "--json")
    measured = json.loads(result.stdout)["points"][0]["figures"]["total"]["requests"]

    assert result.exit_code == 130
    assert measured > 20
    assert f"\n{measured} requests, " in result.stderr


def test_limits_that_are_not_simulated(file: Path) -> None:
    """A line on stderr names the keys."""
    keys = ", ".join(f"{name}: {{sha256: {name * 64}, limits: {{max_in_flight: 1}}}}" for name in "ab")
    file.write_text(FILE.replace("lab: {", f"lab: {{keys: {{{keys}}}, "))

    assert "not simulated: limits of tenants.lab.keys.a, tenants.lab.keys.b; which key" in invoke(file).stderr
