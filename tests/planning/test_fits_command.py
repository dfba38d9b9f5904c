"""`tidegate plan fits`: a replica as it was seen, or by model and hardware; sessions between turns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from tests.server_process import REPOSITORY
from tidegate.planning.fits_command import fits

app = typer.Typer()
app.command()(fits)
SEEN = ("--kv-tokens", "163840", "--tokens", "8192", "--token-bytes", "131072")
BUILT = ("--model", "Llama-3.1-70B", "--gpu", "h100-sxm", "--tp", "8", "--quant", "fp16", "--tokens", "32768")


def invoke(*arguments: str) -> Result:
    """The command."""
    return CliRunner().invoke(app, list(arguments))


def answered(*arguments: str) -> Any:
    """Its JSON."""
    result = invoke(*arguments, "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


@pytest.mark.parametrize("kv, concurrency, replicas, parked", [("fp16", 42, 7, 100), ("fp8", 85, 4, 200)])
def test_by_model(kv: str, concurrency: int, replicas: int, parked: int) -> None:
    """42 sessions of 32K fit, 85 with an fp8 cache; 256 take 7 nodes or 4."""
    found = answered(*BUILT, "--kv-quant", kv, "--sessions", "256", "--offload", "1000")

    assert (found["concurrency"], found["binding"]) == (concurrency, "kv_memory")
    assert (found["fleet"]["replicas"], found["fleet"]["nodes"]) == (replicas, replicas)
    assert (found["offload"]["parked"], found["offload"]["at_once"]) == (parked, concurrency)
    assert found["offload"]["links"] == 8
    assert "nvbandwidth" in found["offload"]["link_source"]


def test_one_link_of_55_gb_per_s() -> None:
    """10 GiB take 0.2 s, several steps; what is asked replaces the catalogue's."""
    found = answered(*BUILT, "--offload", "1000", "--offload-link", "55GB/s")["offload"]

    assert found["restore_s"] == pytest.approx(0.195, abs=0.001)
    assert found["steps_per_restore"] == pytest.approx(found["restore_s"] / found["step_s"])
    assert found["steps_per_restore"] > 4
    assert (found["links"], found["link_source"]) == (1, "as asked")


def test_as_it_was_seen() -> None:
    """8,192 tokens of 128 KiB are 1 GiB: 20 fit, 64 are parked, each back in 43 ms against 0.41 s."""
    speeds = ("--prefill", "20000", "--step", "30ms")
    found = answered(*SEEN, "--offload", "64", "--offload-link", "25GB/s", *speeds, "--sessions", "100")

    assert (found["concurrency"], found["session_bytes"]) == (20, 2**30)
    assert (found["offload"]["parked"], found["offload"]["kept"]) == (64, 84)
    assert found["offload"]["restore_s"] == pytest.approx(2**30 / 25e9)
    assert found["offload"]["recompute_s"] == pytest.approx(8192 / 20_000)
    assert (found["offload"]["quicker"], found["offload"]["step_s"]) == ("restore", 0.03)
    assert (found["fleet"]["replicas"], found["fleet"]["replicas_offloaded"]) == (5, 2)
    assert (found["fleet"]["accelerators"], found["fleet"]["nodes"]) == (None, None)


def test_each_part_is_a_line_for_people() -> None:
    """What fits, why, what is kept, and how many replicas: the latter where they are asked for."""
    whole = invoke(*BUILT, "--sessions", "256", "--offload", "1000").stdout.splitlines()

    assert whole[0] == "42 requests fit at once."
    assert whole[2].startswith(
        "1,000 GiB of host memory keep 100 sessions of 10 GiB more between turns, 142 in"
    )
    assert whole[3].startswith(
        "256 sessions that all decode at once take 7 replicas (56 accelerators, 7 nodes), with 42 each. If at"
    )
    assert invoke(*BUILT).stdout.splitlines() == whole[:2]


def test_a_file_of_the_user(tmp_path: Path) -> None:
    """Its link to the host counts."""
    file = tmp_path / "ours.yaml"
    file.write_text("accelerators: {h100-sxm: {host_link_bytes_per_s: 1.1e+10, source: measured here}}")
    found = answered(*BUILT, "--offload", "100", "--catalog", str(file))["offload"]

    assert (found["link_bytes_per_s"], found["link_source"]) == (8 * 1.1e10, "measured here")


def test_the_figures_of_the_guide() -> None:
    """docs/guides/plan.md rounds what the command says; with other efficiencies it is to be read again."""
    guide = " ".join((REPOSITORY / "docs" / "guides" / "plan.md").read_text().split())
    found = answered(*BUILT, "--kv-quant", "fp16", "--offload", "1000", "--sessions", "256")["offload"]

    assert "back in 24 ms, and about 2 s to compute it again" in guide
    assert found["restore_s"] == pytest.approx(0.0244, abs=1e-4)
    assert 1.5 < found["recompute_s"] < 2.5
    assert "a step of all 42 takes about 35 ms" in guide
    assert 0.030 < found["step_s"] < 0.040
    assert "2,000 tokens come back about 9 times as quick as they are computed and 32,000 about 16" in guide
    for tokens, low, high in (("2000", 7, 12), ("32000", 13, 20)):
        small = ("--model", "Llama-3.1-8B", "--gpu", "h100-sxm", "--tokens", tokens, "--offload", "100")
        assert low < answered(*small)["offload"]["times_as_quick"] < high, tokens


@pytest.mark.parametrize(
    "arguments, problem",
    [
        (("--tokens", "600"), "how much does the KV cache hold; write --kv-tokens TOKENS, or --model and"),
        (
            (*SEEN, "--model", "Llama-3.1-8B"),
            "--kv-tokens and --model: a replica is told by what was seen, or",
        ),
        (("--tokens", "600", "--gpu", "h100"), "--model: which; write --model NAME"),
        (
            ("--tokens", "600", "--model", "Llama-3.1-8B"),
            "--gpu: which; write --gpu NAME, as in --gpu h100-sxm",
        ),
        (("--tokens", "600", "--model", "Llama-3.1-8B", "--gpu", "h10"), "did you mean h100-sxm or"),
        ((*SEEN, "--offload", "64"), "--offload: what carries it back; write --offload-link RATE"),
        ((*SEEN, "--offload-link", "25GB/s"), "--offload-link belongs to --offload; write that too"),
        ((*SEEN[:4], "--offload", "64", "--offload-link", "25GB/s"), "write --token-bytes BYTES, or --model"),
        ((*SEEN, "--offload", "0"), "--offload: '0' cannot be; give GiB above 0"),
        (
            (*SEEN, "--offload", "0.5", "--offload-link", "25GB/s"),
            "512 MiB hold no session of 1 GiB; more host",
        ),
        ((*SEEN, "--sessions", "0"), "--sessions: '0' cannot be"),
        (
            ("--model", "Llama-3.1-8B", "--gpu", "tpu-v6e", "--tokens", "100", "--offload", "9"),
            "--offload-link: the catalogue knows no link to the host of Google TPU v6e; write what it",
        ),
    ],
)
def test_what_cannot_be(arguments: tuple[str, ...], problem: str) -> None:
    """A sentence with what would do, and exit status 2; with --json the same as data."""
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert problem in result.stderr

    as_data = invoke(*arguments, "--json")
    assert as_data.exit_code == 2
    assert json.loads(as_data.stdout)["problems"]
