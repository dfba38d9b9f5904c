"""`tidegate simulate --traffic` plays every source of a file, against the fleet of another."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tidegate.cli import command_line

FLEET = """
pools: {llama: {replicas: [{url: "http://a:1"}]}}
classes: {interactive: {}, batch: {}}
"""
TRAFFIC = """
sources:
  talk:
    kind: sessions
    tenant: acme
    class: interactive
    starts: {rate_per_s: 0.5}
    turns: {type: fixed, value: 3}
    new_tokens: {type: fixed, value: 50}
    output_tokens: {type: fixed, value: 20}
    think_s: {type: fixed, value: 1}
  work:
    kind: clients
    tenant: night
    class: batch
    clients: 2
    lengths: {trace: azure-code}
"""


def simulated(folder: Path, *options: str, traffic: str = TRAFFIC) -> tuple[int, str, str]:
    """Exit status, standard output and standard error of a minute."""
    (folder / "fleet.yaml").write_text(FLEET)
    (folder / "traffic.yaml").write_text(traffic)
    arguments = [str(folder / "fleet.yaml"), "--traffic", str(folder / "traffic.yaml"), *options]
    result = CliRunner().invoke(command_line(), ["simulate", *arguments])
    return result.exit_code, result.stdout, result.stderr


def test_a_minute_of_two_sources(tmp_path: Path) -> None:
    """Both tenants are answered, again and again: sessions and clients go on after their answers."""
    status, out, err = simulated(tmp_path, "--for", "60s", "--warmup", "none", "--json")

    assert (status, "traffic.yaml" in json.dumps(json.loads(out))) == (0, True), err
    assert '"acme"' in out
    assert '"night"' in out


@pytest.mark.parametrize(
    "options, traffic, said",
    [
        (["--rate", "3"], TRAFFIC, "--rate and --traffic: the file says it; leave one out"),
        (["--trace", "azure-conv"], TRAFFIC, "--trace and --traffic: the file says it; leave one out"),
        ([], TRAFFIC.replace("class: batch", "class: bach"), 'names the class "bach", which does not exist'),
        ([], TRAFFIC.replace("azure-code", "nowhere"), "sources.work: trace"),
    ],
)
def test_what_does_not_go_together(options: list[str], traffic: str, said: str, tmp_path: Path) -> None:
    """Options that the file leaves no room for, and names that the fleet has not."""
    status, _, err = simulated(tmp_path, *options, traffic=traffic)

    assert status == 2
    assert said in err
