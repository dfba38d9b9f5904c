"""Is all that a plan says in its HTML report, escaped, whole, and never in place of another file?"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from tidegate.config.profiles import as_yaml, profile_by
from tidegate.planning.commands import plan_app
from tidegate.planning.files import write_whole

app = typer.Typer()
app.add_typer(plan_app, name="plan")
app.command("other")(lambda: None)
BY_HAND = ("--throughput", "2000", "--output", "500", "--tpot", "20ms", "--qps", "10")
BY_PROFILE = ("--profile", "h100-8b", "--input", "2000", "--output", "500", "--ttft", "1s", "--tpot", "20ms")
VOID = {"meta", "line", "polyline", "polygon"}


class Page(HTMLParser):
    """Its text and its elements; every element that is opened is closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.elements: list[str] = []
        self._open: list[str] = []
        self.feed(html)
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        assert not [name for name, _ in attrs if name in ("href", "src") or name.startswith("on")]
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert tag in VOID or self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def invoke(*options: str) -> Result:
    """The command, in this process."""
    return CliRunner().invoke(app, ["plan", *options])


def reported(path: Path, *options: str) -> Page:
    """The report of an answer."""
    result = invoke(*options, "--html", str(path))
    assert result.exit_code == 0, result.stderr
    assert f"wrote {path}" in result.stderr
    return Page(path.read_text(encoding="utf-8"))


def sentences(value: Any) -> Iterator[str]:
    """Every text of an answer that is for people, in JSON."""
    for key, own in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(own, dict | list):
            yield from sentences(own)
        elif key in ("summary", "because", "what", "words", "ttft", "tpot", "utilisation", "percentiles"):
            yield str(own)


def test_everything_that_is_told_is_in_the_report(tmp_path: Path) -> None:
    """The sentence, what binds, what changes it, why not fuller, each setting's reason, what words mean."""
    options = (*BY_PROFILE, "--qps", "20")
    page = reported(tmp_path / "plan.html", *options)
    answer = json.loads(invoke(*options, "--json").stdout)

    found = [text for text in sentences(answer) if " " in text]
    assert len(found) > 15
    for text in found:
        assert text in page.text, text
    for name, figure in answer["advice"]["gate"].items():
        assert name in page.text
        assert figure["reason"] in page.text
    for heading in ("TTFT by load", "TPOT by load", "E2E by load", "budget: 20ms", "budget: 1s"):
        assert heading in page.text
    assert re.search(r"knee: [\d.]+", page.text)
    assert page.elements.count("figure") == 3
    assert "script" not in page.elements


def test_names_are_escaped(tmp_path: Path) -> None:
    """A profile's file may be called anything."""
    profile = tmp_path / "a&<b>.yaml"
    profile.write_text(as_yaml(profile_by("h100-8b")), encoding="utf-8")

    page = reported(tmp_path / "plan.html", "--profile", str(profile), *BY_PROFILE[2:], "--qps", "20")

    assert f"replicas of {profile}" in page.text
    assert "b" not in page.elements


@pytest.mark.parametrize(
    "options, text",
    [
        (("--offline", "1000", "--within", "1h", "--input", "600"), "1,000 requests in"),
        (("--qps", "2", "--percentile", "90"), "P90"),
        (("--users", "50", "--think", "10s"), "Load and latency"),
    ],
)
def test_other_loads_have_reports(tmp_path: Path, options: tuple[str, ...], text: str) -> None:
    """Batch work without a curve."""
    page = reported(tmp_path / "plan.html", *BY_HAND[:6], *options)

    assert text in page.text


def test_the_curve_is_in_the_json_where_it_is_asked_for() -> None:
    """With its marks; else it is null."""
    curve = json.loads(invoke(*BY_HAND, "--curve", "--json").stdout)["curve"]

    assert curve["asked_per_s"] == 10
    assert [point["marks"] for point in curve["points"] if point["marks"]] == [
        ["asked"],
        ["budgets"],
        ["knee"],
    ]
    assert json.loads(invoke(*BY_HAND, "--json").stdout)["curve"] is None


def test_a_file_that_is_there_stays(tmp_path: Path) -> None:
    """Unless --force says otherwise, and then all of it is replaced."""
    path = tmp_path / "plan.html"
    path.write_text("mine")

    result = invoke(*BY_HAND, "--html", str(path))
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr == f"--html {path}: is there already; write --force to replace it\n"
    assert path.read_text() == "mine"

    assert invoke(*BY_HAND, "--html", str(path), "--force").exit_code == 0
    assert path.read_text().startswith("<!doctype html>")


@pytest.mark.parametrize(
    "options, problem",
    [
        (("--html", "{}"), "is a folder; name a file"),
        (("--html", "{}/none/plan.html"), "make it first"),
        (("--html", "{}/a.yaml", "--emit", "{}/a.yaml"), "is what --emit writes; name another file"),
        (("--html", "{}/a.traffic.yaml", "--emit", "{}/a.yaml"), "is what --emit writes; name another file"),
        (("--force",), "--force belongs to --emit or --html"),
        (("--curve", "--offline", "10", "--within", "1h"), "--curve and --offline"),
    ],
)
def test_what_cannot_be_written(tmp_path: Path, options: tuple[str, ...], problem: str) -> None:
    """It is said before anything is computed, and nothing is left behind."""
    load = BY_HAND if "--offline" not in options else BY_HAND[:6]
    result = invoke(*load, *(option.format(tmp_path) for option in options))

    assert result.exit_code == 2
    assert problem in result.stderr
    assert [*tmp_path.iterdir()] == []


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    """Text that cannot be encoded breaks in the middle."""
    path = tmp_path / "plan.html"
    path.write_text("before")

    with pytest.raises(UnicodeEncodeError):
        write_whole(path, "half\udc80")
    assert [*tmp_path.iterdir()] == [path]
    assert path.read_text() == "before"
