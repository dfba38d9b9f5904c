"""Does a comparison say which of two carries more, what differs, and what cannot be compared?"""

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
BY_HAND = ("--throughput", "2000", "--output", "500", "--tpot", "20ms", "--ttft", "1s")
CONFIGURATION = """\
pools:
  chat:
    replicas:
      - {name: a, url: "http://a:8000"}
      - {name: b, url: "http://b:8000"}
    gate: {max_concurrency: 32}
classes:
  default: {budgets: {ttft_s: 1, tpot_s: 0.05}}
simulation:
  pools:
    chat:
      profile: h100-8b
"""
LOAD = ("--qps", "2", "--input", "1000", "--output", "200")


def invoke(*options: str) -> Result:
    """The command, in this process."""
    return CliRunner().invoke(app, ["plan", *options])


def emitted(path: Path, *options: str) -> str:
    """The configuration of a plan by hand, and its traffic beside it."""
    assert invoke(*BY_HAND, *options, "--emit", str(path)).exit_code == 0
    return str(path)


def written(path: Path, **changes: str) -> str:
    """The configuration above, with other words for some."""
    text = CONFIGURATION
    for old, new in changes.items():
        text = text.replace(old, new)
    path.write_text(text)
    return str(path)


def compared(*options: str) -> dict[str, Any]:
    """As JSON."""
    result = invoke("compare", *options, "--json")
    assert result.exit_code == 0, result.stdout + result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_two_emitted_configurations(tmp_path: Path) -> None:
    """4 replicas of 4 requests/s each, and 8: a little over twice as much, for one is lost of both."""
    a, b = emitted(tmp_path / "a.yaml", "--qps", "10"), emitted(tmp_path / "b.yaml", "--qps", "20")
    result = invoke("compare", a, b)

    assert result.exit_code == 0, result.stderr
    assert result.stdout.startswith(
        "b.yaml carries 2.02 x the rate of a.yaml, 22.4 against 11.1 requests/s, with 4"
    )
    for row in (
        "replicas 4, 1 spare 8, 1 spare",
        "at once, per replica 40 40",
        "sustains 16 requests/s 32 requests/s",
        "its load 10 requests/s 20 requests/s",
        "utilisation 62.5% 62.5%",
    ):
        assert row in " ".join(result.stdout.split()), row


def test_what_differs_and_what_that_does(tmp_path: Path) -> None:
    """Each setting by its name, whatever the pools are called; a gate of a replica over its pool's."""
    a = written(tmp_path / "a.yaml")
    b = written(
        tmp_path / "b.yaml",
        **{
            "chat:": "other:",
            "max_concurrency: 32}": "max_concurrency: 8}\n    routing: {policy: round_robin}",
            "profile: h100-8b": "profile: h100-8b\n      engine: {speed: 0.5, kv_tokens: 100000}",
        },
    )
    found = compared(a, b, *LOAD)

    assert {each["setting"]: (each["a"], each["b"]) for each in found["differences"]} == {
        "gate max_concurrency": ("32", "8"),
        "routing policy": ("least_tokens", "round_robin"),
        "engine kv_tokens": ("396,000", "100,000"),
        "engine speed": ("1", "0.5"),
    }
    assert found["a"]["concurrency_per_replica"] == 32
    assert found["b"]["concurrency_per_replica"] == 8
    assert found["rate_ratio"] == pytest.approx(found["b"]["carried_per_s"] / found["a"]["carried_per_s"])
    assert found["b"]["because"].startswith("The gate binds: it lets in 8 (max_concurrency), and the engine")
    assert 1.9 < found["b"]["ttft_p95_s"] / found["a"]["ttft_p95_s"] < 2.1  # at half the speed


def test_a_configuration_and_itself(tmp_path: Path) -> None:
    """Nothing differs; at two prices that is all that does."""
    a = written(tmp_path / "a.yaml")

    assert "carries the rate of" in compared(a, a, *LOAD)["summary"]
    text = invoke("compare", a, a, *LOAD, "--price", "10,12").stdout
    assert "with as many replicas, for $4.00 an hour more." in " ".join(text.split())
    assert "Nothing that decides differs." in text


def test_saved_answers(tmp_path: Path) -> None:
    """Beside each other, and beside a configuration; what is sustained is known of both."""
    for name, rate in (("a", "10"), ("b", "20")):
        result = invoke(*BY_HAND, "--qps", rate, "--price", "2", "--json")
        (tmp_path / f"{name}.json").write_text(result.stdout)
    a, b = str(tmp_path / "a.json"), str(tmp_path / "b.json")

    found = compared(a, b)
    assert found["summary"] == (
        "b.json sustains 2 x the rate of a.json, 32 against 16 requests/s, with 4 more replicas, "
        "for $8.00 an hour more."
    )
    assert found["differences"][0] == {"setting": "replicas", "a": "4", "b": "8"}
    mixed = compared(emitted(tmp_path / "a.yaml", "--qps", "10"), b)
    assert mixed["rate_ratio"] == pytest.approx(2)
    assert mixed["differences"][0] == {"setting": "replicas", "a": "4", "b": "8"}


@pytest.mark.parametrize(
    "changes, options, note",
    [
        (
            {"ttft_s: 1,": "ttft_s: 2,"},
            (),
            "Their budgets are not alike; --ttft, --tpot and --e2e give both the same",
        ),
        ({"ttft_s: 1,": "ttft_s: 2,"}, ("--ttft", "1s"), None),
        (
            {"profile: h100-8b": "engine: {prefix_cache: true}"},
            (),
            "b.yaml: `simulation.pools` does not say what its engines are; taken to be h100-8b",
        ),
        (
            {"profile: h100-8b": "profile: h100-8b\n      engine: {kv: reserved}"},
            (),
            "b.yaml: what kv of its engines does is not counted",
        ),
    ],
)
def test_what_makes_it_unfair_is_said(
    tmp_path: Path, changes: dict[str, str], options: tuple[str, ...], note: str | None
) -> None:
    """Other budgets, engines that nobody named, settings that no closed form knows."""
    a, b = written(tmp_path / "a.yaml"), written(tmp_path / "b.yaml", **changes)
    notes = compared(a, b, *LOAD, *options)["notes"]

    assert note in notes if note is not None else notes == []


def test_budgets_that_one_cannot_hold(tmp_path: Path) -> None:
    """The other is told all the same; where neither can, the exit status says so."""
    a = written(tmp_path / "a.yaml")
    b = written(
        tmp_path / "b.yaml", **{"profile: h100-8b": "curve: {a_s: 0.1}\n      engine: {max_num_seqs: 64}"}
    )

    found = compared(a, b, *LOAD)
    assert "b.yaml has no answer: the TPOT budget of 50ms is below one step" in found["summary"]
    assert found["rate_ratio"] is None
    assert "impossible" in invoke("compare", a, b, *LOAD).stdout
    assert invoke("compare", b, b, *LOAD).exit_code == 2


@pytest.mark.parametrize(
    "changes, options, problem",
    [
        ({}, (), "what comes is not known: there is no b.traffic.yaml beside it"),
        ({}, (*LOAD, "--pool", "none"), "has no pool none; its pools: chat"),
        ({}, (*LOAD, "--price", "1,2,3"), "two files have two prices"),
        ({}, (*LOAD, "--spare", "2"), "of 2 replicas 2 cannot be spare"),
        ({"pools:\n  chat:\n    rep": "pools:\n  chat:\n    xrep"}, LOAD, "xreplicas: is not a setting"),
        ({CONFIGURATION: "sources: {}\n"}, LOAD, "names no pools, so that it is no configuration"),
        ({CONFIGURATION: '{"replicas": 3}'}, LOAD, "is no answer of a plan"),
        ({CONFIGURATION: "[1, 2"}, LOAD, "names no pools"),
        (
            {'b:8000"}': 'b:8000", gate: {max_concurrency: 4}}'},
            LOAD,
            "the replicas of chat are not alike; give each kind a file of its own",
        ),
        (
            {"classes:": '  more: {replicas: [{name: c, url: "http://c:8000"}]}\nclasses:'},
            LOAD,
            "has 2 pools, chat, more; name the one to compare with --pool",
        ),
    ],
)
def test_what_cannot_be_compared(
    tmp_path: Path, changes: dict[str, str], options: tuple[str, ...], problem: str
) -> None:
    """It says which file, why, and what would do; as text and as data."""
    a, b = written(tmp_path / "a.yaml"), written(tmp_path / "b.yaml", **changes)
    load = options if options else LOAD[:0]
    first = a if options else emitted(tmp_path / "e.yaml", "--qps", "10")

    result, data = invoke("compare", first, b, *load), invoke("compare", first, b, *load, "--json")
    assert (result.exit_code, data.exit_code) == (2, 2)
    assert result.stdout == ""
    assert problem in result.stderr
    assert any(
        problem in f"{each['problem']}; {each['remedy']}" for each in json.loads(data.stdout)["problems"]
    )


@pytest.mark.parametrize("name, problem", [("none.yaml", "no such file"), ("", "is a folder")])
def test_files_that_are_none(tmp_path: Path, name: str, problem: str) -> None:
    """What would do is said too."""
    result = invoke("compare", written(tmp_path / "a.yaml"), str(tmp_path / name), *LOAD)

    assert result.exit_code == 2
    assert f"{problem}; give a configuration, or an answer of `tidegate plan --json`" in result.stderr
