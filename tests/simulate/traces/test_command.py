"""`tidegate trace stats` says what is in a trace, or what is wrong with it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.shared_data import shared
from tidegate.cli import command_line
from tidegate.config.traces import SHIPPED

CSV = """\
TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.5,100,10
2023-11-16 18:15:47.5,200,20
2023-11-16 18:17:49.5,300,0
"""


def stats(*arguments: str) -> tuple[int, str, str]:
    """Exit status, standard output and standard error."""
    result = CliRunner().invoke(command_line(), ["trace", "stats", *arguments], env={"COLUMNS": "120"})
    return result.exit_code, result.stdout, result.stderr


def test_figures_of_a_file_as_json(tmp_path: Path) -> None:
    """One object: the trace, its form, and what is known; nothing that is not measured."""
    file = tmp_path / "mine.csv"
    file.write_bytes(gzip.compress(CSV.encode()))

    status, out, _ = stats(str(file), "--json")

    found = json.loads(out)
    assert status == 0
    assert found.keys() == {"trace", "form", "log"}
    assert (found["form"], found["log"]["requests"], found["log"]["empty_outputs"]) == ("azure", 3, 1)
    assert found["log"]["arrivals"]["span_s"] == 123.0
    assert found["log"]["prompt_tokens"]["mean"] == 200
    assert found["log"]["arrivals"]["counts"]["60"] == {"windows": 2, "dispersion": 1.0, "peak_ratio": 2.0}
    assert found["log"]["reuse"] is None


@pytest.mark.parametrize("name", SHIPPED)
def test_figures_of_what_ships(name: str) -> None:
    """A table with the figures that everybody asks first."""
    status, out, _ = stats(name)

    assert status == 0
    for said in ("prompt tokens", "output tokens", "requests/s", "gap CV", "variance/mean", "busiest minute"):
        assert said in out, said


@pytest.mark.parametrize(
    "name, said",
    [
        (
            "mooncake-fast25/synthetic_trace.jsonl.gz",
            [
                "(mooncake)",
                "121,877 of 512 tokens, 43,924 distinct",
                "64% of blocks",
                "43.8% more than one",
            ],
        ),
        (
            "mooncake-fast25/conversation_trace.jsonl.gz",
            ["3.03; times are rounded, 1,180 differ", "38.7% more than one"],
        ),
        (
            "agentic-coding/sessions.jsonl.gz",
            ["710, 49,334 requests; no common clock", "63 in 17 sessions", "P5 74.5%, P50 95.5%, P95 98.3%"],
        ),
        (
            "servegen/m-mid.client_rates.csv.gz",
            ["2,016 windows, 84 of them without traffic", "52.3% by the first client, 78.6% by ten"],
        ),
        (
            "request-lengths/arxiv_summarization_llama2_tokenizer.csv.gz",
            ["28,257", "-0.463 of prompt and output"],
        ),
    ],
)
def test_figures_of_every_kind(name: str, said: list[str]) -> None:
    """Logs, sessions, pools and lists of lengths have a table each."""
    status, out, _ = stats(shared(name))

    assert status == 0
    for text in said:
        assert text in out, text


def test_models_and_conversations_of_a_log(tmp_path: Path) -> None:
    """Where a trace tells them; names are shown as they stand, whatever is in them."""
    file = tmp_path / "burst.csv"
    file.write_text(
        "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        "1,a,1,[bold]GPT,5,5,10,API log\n2,,1,ChatGPT,5,5,10,API log\n2,,1,ChatGPT,5,5,10,API log\n"
    )

    _, out, _ = stats(str(file))

    for text in (
        "1 of 1 requests",
        "[bold]GPT: 33.3%",
        "ChatGPT: 66.7%",
        "1 rows are equal",
        "turns a session",
    ):
        assert text in out, text


@pytest.mark.parametrize(
    "content, arguments, said",
    [
        ("", [], "is empty; give a trace of one of the forms azure"),
        ("a,b\n1,2\n", [], "begins no trace of a known form"),
        (CSV.replace("100", "-1"), [], "line 2: ContextTokens is '-1', not a whole number of tokens from 0"),
        (CSV, ["--format", "mooncake"], "line 1: JSON is malformed"),
    ],
)
def test_a_trace_that_is_not_sound(content: str, arguments: list[str], said: str, tmp_path: Path) -> None:
    """The file, the line and the reason, on standard error, with status 2."""
    file = tmp_path / "mine.csv"
    file.write_text(content)

    status, out, err = stats(str(file), *arguments)

    assert (status, out) == (2, "")
    assert str(file) in err
    assert said in err


def test_a_trace_that_is_not_there() -> None:
    """What ships is named."""
    status, _, err = stats("nowhere.csv")

    assert status == 2
    assert (
        "trace nowhere.csv: No such file or directory; give a file, or one of azure-conv, azure-code" in err
    )
