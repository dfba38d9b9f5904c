"""The examples in docs/guides/simulate.md, and the one in the README, work as printed."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
import typer
from typer.testing import CliRunner

from tests.server_process import REPOSITORY
from tidegate.simulate.commands import simulate
from tidegate.simulate.engines import PoolFigures
from tidegate.simulate.figures import Figures, Group
from tidegate.simulate.intervals import Estimate, Spread
from tidegate.simulate.results import BOUNDARIES, Conservation, PointResult, Result

GUIDE = (REPOSITORY / "docs" / "guides" / "simulate.md").read_text()
EXAMPLE = REPOSITORY / "docs" / "examples" / "simulated.yaml"

app = typer.Typer()
app.command()(simulate)


def blocks(language: str) -> list[str]:
    """The guide's code in that language."""
    return re.findall(rf"```{language}\n(.*?)```", GUIDE, re.DOTALL)


COMMANDS = [line for block in blocks("sh") for line in block.splitlines()]


@pytest.fixture
def beside_docs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which the documents are found, and in which files may be left."""
    (tmp_path / "docs").symlink_to(REPOSITORY / "docs")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("command", COMMANDS)
def test_its_commands_are_commands(command: str, beside_docs: Path) -> None:
    """Each runs, on a shorter load, and writes the files that it names."""
    program, verb, *options = shlex.split(command)
    result = CliRunner().invoke(app, [*options, "--for", "20s", "--repeat", "1", "--jobs", "1"])

    assert (program, verb) == ("tidegate", "simulate")
    assert result.exit_code == 0, result.stderr
    assert "left out" not in result.stderr
    for name in re.findall(r"--(?:html|parquet|perfetto) (\S+)", command):
        assert (beside_docs / name).stat().st_size > 0


def test_the_example_has_intervals() -> None:
    """Ten minutes of the recorded hour: every percentile of every latency carries its interval."""
    result = CliRunner().invoke(
        app, [str(EXAMPLE), "--trace", "azure-conv", "--from", "20m", "--for", "10m", "--json"]
    )
    total = json.loads(result.stdout)["points"][0]["figures"]["total"]

    for latency in ("ttft_s", "tpot_s", "e2e_s"):
        assert total[latency]["method"] == "spectrum"
        for name in ("mean", "p50", "p95", "p99"):
            figure = total[latency][name]
            assert figure["low"] < figure["value"]
            if name != "p99":  # whose interval may have no upper end
                assert figure["value"] < figure["high"]


def test_its_keys_are_all_keys() -> None:
    """Every key of the JSON stands in the guide."""
    keys = {
        field.encode_name
        for kind in (Result, PointResult, Figures, Group, PoolFigures, Conservation, Spread)
        for field in msgspec.structs.fields(kind)
    }
    text = re.sub(r"```.*?```", "", GUIDE, flags=re.DOTALL)
    quoted = set(re.findall(r"[a-z0-9_]+", " ".join(re.findall(r"`([^`]+)`", text))))

    assert keys - quoted == set()
    assert '{"value", "low", "high"}' in GUIDE
    assert [field.encode_name for field in msgspec.structs.fields(Estimate)] == ["value", "low", "high"]
    assert set(BOUNDARIES) <= quoted


def test_its_profile_is_one(tmp_path: Path) -> None:
    """The profile of the guide is one with which a fleet can be simulated."""
    (text,) = (block for block in blocks("yaml") if block.startswith("curve:"))
    (tmp_path / "mine.yaml").write_text(text)
    options = ["--profile", str(tmp_path / "mine.yaml"), "--for", "10s"]
    result = CliRunner().invoke(app, [str(EXAMPLE.with_name("minimal.yaml")), *options])

    assert result.exit_code == 0, result.stderr


def test_its_program_runs() -> None:
    """On ten seconds instead of ten minutes."""
    (program,) = blocks("python")
    names: dict[str, Any] = {}
    exec(program.replace("for_s=600.0", "for_s=10.0"), names)
    ttft_p95_s = cast(Callable[[Path, float], float], names["ttft_p95_s"])

    assert 0 < ttft_p95_s(EXAMPLE, 3.0) < 1


def test_what_it_prints_is_what_comes_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The output in the guide is that of its first command: each row, and its figures to within a fifth."""
    monkeypatch.setenv("COLUMNS", "80")
    file, *options = shlex.split(COMMANDS[0])[2:]
    result = CliRunner().invoke(app, [str(REPOSITORY / file), *options])
    printed = [figures_in(line) for line in result.stdout.splitlines()]

    output = re.findall(r"\n\n```\n(.*?)\n```", GUIDE, re.DOTALL)[0]
    shown = [figures_in(line) for line in output.splitlines() if re.search(r"\d", line)]
    rows_of_figures = [each for each in shown if each[0]]  # intervals move more than that
    assert len(rows_of_figures) == 7
    for words, numbers in rows_of_figures:
        rows = [each for each in printed if each[0] == words and len(each[1]) == len(numbers)]
        assert any(numbers == pytest.approx(row, rel=0.2) for _, row in rows), (words, numbers, rows)


def test_what_the_readme_prints_is_what_comes_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sweep in the README, at one of its points: its row, and its figures to within a fifth."""
    monkeypatch.setenv("COLUMNS", "80")
    readme = (REPOSITORY / "README.md").read_text()
    (command,) = re.findall(r"tidegate simulate .*", readme)
    shorter = command.replace("replicas=1..4", "replicas=2,0")  # 0 cannot be, and makes it a sweep
    file, *options = shlex.split(shorter)[2:]
    result = CliRunner().invoke(app, [str(REPOSITORY / file), *options])

    (output,) = re.findall(r"```\n( +TTFT.*?)\n```", readme, re.DOTALL)
    ((shown,), (printed,)) = (
        [figures_in(line)[1] for line in text.splitlines() if re.match(" 2 ", line)]
        for text in (output, result.stdout)
    )
    assert shown == pytest.approx(printed, rel=0.2)
    assert output.partition("─")[0].split() == result.stdout.partition("─")[0].split()


def figures_in(line: str) -> tuple[str, list[float]]:
    """The words of a row, and its figures in units that go together."""
    units = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "%": 0.01, "": 1.0}
    numbers = [
        float(digits.replace(",", "")) * units[unit]
        for digits, unit in re.findall(r"(?<![\w.])(\d[\d,]*(?:\.\d+)?)(us|ms|s|m|%|)(?![a-zA-Z])", line)
    ]
    return " ".join(re.findall(r"[A-Za-z]{3,}[A-Za-z0-9]*", line)), numbers
