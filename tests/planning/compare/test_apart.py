"""Is a configuration with prompts apart from decoding compared by the figures that its plan has?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.planning.compare.test_differences import LOAD, compared, invoke, written

ASKED = (
    *("--model", "Llama-3.1-8B", "--gpu", "h100-sxm", "--input", "8192", "--output", "50"),
    *("--ttft", "1s", "--tpot", "50ms"),
)
APART = ("--disaggregated", "--link", "400Gb")
LINK = "link: {bandwidth_bytes_per_s: 5.0e+10, kv_bytes_per_token: 131072}"


def planned(path: Path, *options: str) -> dict[str, Any]:
    """The plan's JSON, with its configuration in the file."""
    result = invoke(*ASKED, *options, "--emit", str(path), "--json")
    assert result.exit_code == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_what_a_plan_says_is_what_is_compared(tmp_path: Path) -> None:
    """Of the configuration that it writes, beside replicas that do both, under the same load."""
    plan = planned(tmp_path / "apart.yaml", "--qps", "2", *APART)
    whole = written(tmp_path / "whole.yaml")
    traffic = str(tmp_path / "apart.traffic.yaml")
    found = compared(whole, str(tmp_path / "apart.yaml"), "--traffic", traffic, "--price", "10")
    apart = found["b"]

    assert apart["replicas"] == plan["replicas"]
    assert apart["spare_replicas"] == plan["spare_replicas"]
    assert apart["binding"] == plan["binding"] == "compute"
    for name, own in (
        ("requests_per_s", plan["requests_per_s"]),
        ("utilisation", plan["utilisation"]),
        ("sustained_per_s", plan["replicas"] * plan["requests_per_s_per_replica"]),
        ("ttft_p95_s", plan["ttft_s"]["p95"]),
        ("tpot_p95_s", plan["tpot_s"]["p95"]),
        ("e2e_p95_s", plan["e2e_s"]["p95"]),
    ):
        assert apart[name] == pytest.approx(own, rel=0.02), name
    assert apart["carried_per_s"] >= apart["requests_per_s"]
    assert apart["cost_per_hour"] == 10 * plan["replicas"]
    counts = plan["disaggregated"]["prefill_replicas"], plan["disaggregated"]["decode_replicas"]
    settings = {each["setting"]: each["b"] for each in found["differences"]}
    assert settings["replicas"] == "{}+{}".format(*counts)
    assert settings["link bandwidth_bytes_per_s"] == "50,000,000,000"


def test_engines_by_a_profile(tmp_path: Path) -> None:
    """What is known of a cache is what the link says; twice as many for prompts carry up to twice as much."""

    def carried(name: str, parts: str) -> float:
        pool = f"profile: h100-8b\n      disaggregation: {{{parts}, {LINK}}}"
        path = written(
            tmp_path / name, **{"profile: h100-8b": pool, '      - {name: b, url: "http://b:8000"}\n': ""}
        )
        long = ("--qps", "2", "--input", "8000", "--output", "20", "--spare", "0", "--ttft", "10s")
        side: dict[str, Any] = compared(path, path, *long)["a"]
        assert side["impossible"] == ""
        return float(side["carried_per_s"])

    one, two, slower = (
        carried("one.yaml", "prefill_replicas: 1"),
        carried("two.yaml", "prefill_replicas: 2"),
        carried("slower.yaml", "prefill: {curve: {a_s: 0.0064, d_s_per_prefill_token: 40.6e-6}}"),
    )
    assert two == pytest.approx(2 * one, rel=0.02)
    assert slower == pytest.approx(one / 2, rel=0.05)


def test_what_is_not_compared(tmp_path: Path) -> None:
    """Several addresses, for nobody knows which engines are behind which; engines that guess."""
    pool = f"profile: h100-8b\n      disaggregation: {{{LINK}}}"
    guessing = f"{pool}\n      engine: {{speculation: {{draft_tokens: 3, acceptance_ratio: 0.5}}}}"
    second = '      - {name: b, url: "http://b:8000"}\n'
    for name, changes, problem in (
        ("two", {"profile: h100-8b": pool}, "behind 2 addresses; give the pool one, which stands for all"),
        ("guessing", {"profile: h100-8b": guessing, second: ""}, "and guess ahead, which is not planned"),
    ):
        path = written(tmp_path / f"{name}.yaml", **changes)
        result = invoke("compare", path, path, *LOAD)

        assert result.exit_code == 2
        assert problem in result.stderr, name
