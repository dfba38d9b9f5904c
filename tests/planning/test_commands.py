"""Does `tidegate plan` answer what it is asked, and refuse what cannot be?"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from tidegate.planning.commands import plan_app

app = typer.Typer()
app.add_typer(plan_app, name="plan")
app.command("other")(lambda: None)
BY_HAND = ("--throughput", "2000", "--output-tokens", "500", "--tpot", "20ms")
BY_PROFILE = ("--profile", "h100-8b", "--input", "2000", "--output", "500", "--ttft", "1s", "--tpot", "20ms")
KEYS = {
    "concurrency_per_replica",
    "requests_per_s_per_replica",
    "replicas",
    "spare_replicas",
    "utilisation",
    "binding",
    "kv_bytes_per_token",
    "kv_bytes_per_sequence",
    "ttft_s",
    "tpot_s",
    "e2e_s",
    "cost_per_hour",
    "definitions",
}


def invoke(*options: str) -> Result:
    """The command, in this process."""
    return CliRunner().invoke(app, ["plan", *options])


def answered(*options: str) -> dict[str, Any]:
    """Its JSON."""
    result = invoke(*options, "--json")
    assert result.exit_code == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def refused(*options: str) -> list[dict[str, Any]]:
    """The problems, which text and JSON tell alike."""
    result, text = invoke(*options, "--json"), invoke(*options)
    assert (result.exit_code, text.exit_code) == (2, 2), (result.stdout, text.stdout)
    assert text.stdout == ""
    problems: list[dict[str, Any]] = json.loads(result.stdout)["problems"]
    for problem in problems:
        assert problem["problem"] in text.stderr
        assert problem["remedy"] in text.stderr
    return problems


def test_by_hand_as_text() -> None:
    """A sentence first, what binds, both waits, the reasons, and what words mean."""
    result = invoke(*BY_HAND, "--qps", "10")

    assert result.exit_code == 0
    text = " ".join(result.stdout.split())
    assert text.startswith(
        "4 replicas, 1 of them spare, carry 10 requests/s at 62.5% utilisation, 83.3% with"
    )
    assert "40 requests at once; each takes 10s, so a replica sustains 4 requests/s" in text
    assert re.search(r"one replica 0 0 0 1\.11s 2\.58s 5\.27s 12\.9s wait, 3 pooled 0 0 0 0 37\.5ms", text)
    for reason in ("queue", "lost replica", "burst 64.9%", "batch"):
        assert reason in text
    assert "TPOT: (E2E - TTFT) / (output tokens - 1)" in text


@pytest.mark.parametrize("options", [(*BY_HAND, "--qps", "10"), (*BY_PROFILE, "--qps", "20")])
def test_json_has_every_key(options: tuple[str, ...]) -> None:
    """Numbers are numbers, and every latency has its percentiles."""
    found = answered(*options)

    assert found.keys() >= KEYS
    assert isinstance(found["utilisation"], float)
    for name in ("ttft_s", "tpot_s", "e2e_s"):
        assert found[name].keys() >= {"p50", "p95", "p99"}


def test_the_same_to_the_byte() -> None:
    """A plan has no dice."""
    assert invoke(*BY_PROFILE, "--qps", "20").stdout == invoke(*BY_PROFILE, "--qps", "20").stdout


@pytest.mark.parametrize(
    "load, told",
    [
        (("--qps", "2", "--prefix-hit", "40%"), False),  # who comes by himself shares the head of his prompt
        (("--users", "9", "--prefix-hit", "40%"), True),
        (("--users", "9"), False),
        (("--offline", "9000", "--within", "1h", "--prefix-hit", "40%"), True),
    ],
)
def test_what_a_traffic_file_does_not_say_is_told(load: tuple[str, ...], told: bool, tmp_path: Path) -> None:
    """Prefixes of clients who wait for their answers: of a plan alone there is nothing to tell."""
    asked = ("--profile", "h100-8b", "--input", "600", "--output", "50", *load)
    alone, written = invoke(*asked), invoke(*asked, "--emit", f"{tmp_path / 'plan.yaml'}")

    assert (alone.exit_code, written.exit_code) == (0, 0), written.stderr
    assert "share no prefixes" not in alone.stderr
    assert ("share no prefixes" in written.stderr) is told


def test_without_a_rate_one_replica_is_told_of() -> None:
    """What one replica carries at the target, none spare."""
    found = answered(*BY_HAND)

    assert (found["replicas"], found["spare_replicas"]) == (1, 0)
    assert found["requests_per_s"] == pytest.approx(2.8)


def test_what_there_is() -> None:
    """Replicas instead of a rate: the highest within the terms."""
    found = answered(*BY_HAND, "--replicas", "4")

    assert found["requests_per_s"] == pytest.approx(10.17, abs=0.01)
    assert answered(*BY_PROFILE, "--gpus", "4")["replicas"] == 4


def test_a_trace_brings_its_lengths_and_its_busiest_minute() -> None:
    """Azure chat: 8.45 requests/s in its busiest minute, 1.54 times the mean."""
    found = answered(*BY_HAND[:2], "--tpot", "20ms", "--trace", "azure-conv")

    assert found["requests_per_s"] == pytest.approx(8.45)
    room = {each["reason"]: each["words"] for each in found["room"]}
    assert "1.54" in room["burst"]


@pytest.mark.parametrize(
    "options, problem, remedy",
    [
        (("--throughput", "2000", "--output", "500", "--tpot", "20"), "'20' is not a duration", "20ms"),
        ((*BY_HAND, "--qps", "600/min"), "is not requests/s", "per second: 10"),
        ((*BY_HAND, "--qps", "0"), "--qps: '0' cannot be", "above 0"),
        ((*BY_HAND, "--qps", "nan"), "is not requests/s", "write a number"),
        ((*BY_HAND, "--qps", "-3"), "cannot be", "above 0"),
        ((*BY_HAND, "--qps", "inf"), "is not requests/s", "write a number"),
        (("--throughput", "2000", "--output", "4K", "--tpot", "20ms"), "is not tokens", "4000 or 4096"),
        (("--throughput", "2000", "--output", "5"), "how fast must each request be", "--tpot 20ms"),
        (("--throughput", "2000", "--tpot", "20ms"), "how long are the answers", "--output 500"),
        (("--output", "500",), "what does a replica do", "--throughput"),
        ((*BY_HAND, "--qps", "1", "--users", "3"), "--qps and --users", "write one of them"),
        ((*BY_HAND, "--think", "3s"), "--think belongs to --users", "leave it out"),
        ((*BY_HAND, "--percentile", "0.95"), "not from 50 to 99.9", "write 95"),
        ((*BY_HAND, "--utilisation", "70"), "no share", "70 % is 0.7"),
        ((*BY_HAND, "--replicas", "1.5"), "is no whole number", ""),
        ((*BY_HAND, "--replicas", "2", "--spare", "2"), "cannot be spare", "--spare 0"),
        ((*BY_HAND, "--e2e", "5s"), "take 10s", "10ms"),
        (("--throughput", "20", "--output", "5", "--tpot", "20ms"), "less than one request", "50ms"),
        (("--profile", "h100-9b", "--input", "5", "--output", "5"), "h100-9b", ""),
        ((*BY_PROFILE[:2], "--input", "200000", "--output", "5"), "longer than the 131,072", "shorter"),
        ((*BY_PROFILE[:6], "--tpot", "1ms", "--qps", "1"), "below one step", "a larger budget"),
        ((*BY_PROFILE[:6], "--ttft", "10ms", "--qps", "1"), "TTFT budget of 10ms is below", "a budget above"),
        ((*BY_HAND, "--trace", "azure-conv"), "--output: the --trace says that", "leave it out"),
        ((*BY_HAND, "--users", "1000000000"), "users would take more than 100,000", "check the number"),
        ((*BY_PROFILE[:6], "--prefix-hit", "1"), "below 1, not 1", "something of each prompt is new"),
        ((*BY_PROFILE[:6], "--offline", "100", "--within", "1s"), "takes 3.24s, more than 1s", "a deadline"),
        ((*BY_HAND[:2], "--tpot", "20ms", "--trace", "no.csv"), "No such file", "azure-conv"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_told_with_its_remedy(options: tuple[str, ...], problem: str, remedy: str) -> None:
    """A sentence that says what is impossible and what would be possible; exit status 2, also as data."""
    problems = refused(*options)

    assert any(problem in each["problem"] and remedy in each["remedy"] for each in problems), problems


def test_impossible_asks_have_their_figures() -> None:
    """What was needed and what there is, as numbers with their unit."""
    (problem,) = refused(*BY_PROFILE[:6], "--tpot", "1ms", "--qps", "1")

    assert problem["unit"] == "s"
    assert problem["needed"] > problem["available"] == pytest.approx(0.001)


def test_a_full_fleet_that_holds_is_not_said_to_queue() -> None:
    """At 83 % nobody waits, though at 85 % somebody would: what binds is the pace."""
    found = answered(*BY_HAND, "--qps", "10", "--spare", "0", "--utilisation", "100%")

    assert (found["replicas"], found["binding"]) == (3, "latency_budget")


def test_a_traffic_file_has_tenants(tmp_path: Path) -> None:
    """Sources of a traffic file become one load, and clients who wait are in it."""
    path = tmp_path / "traffic.yaml"
    path.write_text(
        """
sources:
  chat:
    kind: open
    tenant: acme
    arrivals: {points: [{at_s: 0, per_s: 2}, {at_s: 300, per_s: 0}]}
    lengths: {prompt_tokens: {type: fixed, value: 900}, output_tokens: {type: fixed, value: 200}}
  agents:
    kind: sessions
    tenant: umbrella
    starts: {points: [{at_s: 0, per_s: 0.05}, {at_s: 300, per_s: 0}]}
    turns: {type: fixed, value: 3}
    new_tokens: {type: fixed, value: 500}
    output_tokens: {type: fixed, value: 100}
"""
    )
    found = answered("--profile", "h100-8b", "--traffic", str(path), "--ttft", "1s", "--tpot", "20ms")

    assert 1.5 < found["requests_per_s"] < 3.5
    assert found["replicas"] == 2


LLAMA_8B = ("--model", "meta-llama/Llama-3.1-8B", "--gpu", "l40s", "--quant", "bf16")
LLAMA_70B = (
    "--model",
    "Llama-3.1-70B",
    "--gpu",
    "h100-sxm",
    "--tp",
    "8",
    "--quant",
    "fp16",
    "--kv-quant",
    "fp16",
)


@pytest.mark.parametrize(
    "options, tokens, at_end, binding",
    [
        ((*LLAMA_8B, "--input", "3596", "--output", "500"), 4096, 48, "kv_memory"),
        ((*LLAMA_8B, "--input", "32268", "--output", "500"), 32768, 6, "kv_memory"),
        ((*LLAMA_70B, "--input", "32000", "--output", "768"), 32768, 42, "kv_memory"),
        ((*LLAMA_70B[:-1], "fp8", "--input", "32000", "--output", "768"), 32768, 85, "kv_memory"),
    ],
)
def test_what_a_kv_cache_holds(options: tuple[str, ...], tokens: int, at_end: int, binding: str) -> None:
    """One L40S holds 48 sessions of 4K or 6 of 32K of an 8B; 8 H100 hold 42 of a 70B, and 85 in fp8."""
    found = answered(*options)

    assert found["memory"]["end_tokens"] == tokens
    assert found["concurrency_per_replica"] == found["gates"]["kv"] == at_end
    assert found["binding"] == binding
    assert f"{at_end} requests" in found["because"]


def test_memory_is_told_in_its_parts() -> None:
    """199,418 tokens on an L40S; of a 70B 320 KiB a token, 10 GiB a session, 131 GiB of weights, 428 left."""
    small = answered(*LLAMA_8B, "--input", "3596", "--output", "500")
    large = answered(*LLAMA_70B, "--input", "32000", "--output", "768")

    assert small["memory"]["kv_tokens"] == pytest.approx(199_418, rel=1e-4)
    assert (small["memory"]["fit_reserved"], small["memory"]["reserved_tokens"]) == (1, 131_072)
    assert large["kv_bytes_per_token"] == 320 * 2**10
    assert large["kv_bytes_per_sequence"] == 10 * 2**30
    assert 8 * large["memory"]["weights_bytes"] == pytest.approx(131.4 * 2**30, rel=1e-3)
    assert 8 * large["memory"]["pool_bytes"] == pytest.approx(428 * 2**30, rel=2e-3)


def test_a_longest_sequence_costs_nothing_while_paged() -> None:
    """Raising what is taken at most changes what reserving would hold, and nothing else."""
    short = answered(*LLAMA_8B, "--input", "3596", "--output", "500", "--max-model-len", "8192")
    long = answered(*LLAMA_8B, "--input", "3596", "--output", "500")

    assert short["concurrency_per_replica"] == long["concurrency_per_replica"]
    assert short["requests_per_s_per_replica"] == long["requests_per_s_per_replica"]
    assert (short["memory"]["fit_reserved"], long["memory"]["fit_reserved"]) == (24, 1)


def test_ten_million_documents_in_eight_hours() -> None:
    """347 a second, 2.08 M prompt and 104 K output tokens/s; people would need more replicas."""
    found = answered(
        *("--model", "Llama-3.1-8B", "--gpu", "h100-sxm", "--quant", "fp8"),
        *("--offline", "10000000", "--input", "6000", "--output", "300", "--within", "8h"),
    )
    offline = found["offline"]

    assert found["requests_per_s"] == pytest.approx(347.2, abs=0.1)
    assert offline["prompt_tokens_per_s"] == pytest.approx(2.083e6, rel=1e-3)
    assert offline["output_tokens_per_s"] == pytest.approx(104.2e3, rel=1e-3)
    assert 0.9 < found["utilisation"] <= 0.95
    assert offline["done_s"] <= 8 * 3600
    assert offline["interactive_replicas"] > found["replicas"]
    assert found["ttft_s"]["p95"] is None


def test_a_day_by_hours(tmp_path: Path) -> None:
    """Each hour has its own replicas, fewer at night, and the busiest has as many as the plan."""
    path = tmp_path / "day.csv"
    rows = [
        f"2024-05-10 {hour:02}:{second // 60:02}:{second % 60:02}.{tenth}000000,500,200"
        for hour, per_s in ((0, 1), (1, 8), (2, 3))
        for second in range(180)
        for tenth in range(per_s)
    ]
    path.write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *rows]) + "\n")
    found = answered("--throughput", "500", "--tpot", "20ms", "--trace", str(path), "--schedule")

    hours = {each["hour"]: each for each in found["hours"]}
    assert [hours[hour]["requests_per_s"] for hour in (0, 1, 2)] == [1, 8, 3]
    assert hours[0]["replicas"] < hours[2]["replicas"] < hours[1]["replicas"] == found["replicas"]


@pytest.mark.parametrize(
    "options, problem, remedy",
    [
        (("--model", "Llama-3.1-71B", "--gpu", "h100"), "Llama-3.1-71B", "did you mean"),
        (("--model", "Llama-3.1-70B", "--gpu", "h101"), "h101", "did you mean"),
        (("--model", "Llama-3.1-70B", "--gpu", "l40s", "--quant", "bf16"), "needs", ""),
        (("--model", "Llama-3.1-70B", "--gpu", "h100-sxm", "--tp", "3"), "--tp", ""),
        (("--model", "Llama-3.1-70B", "--gpu", "h100-sxm", "--tp", "0"), "--tp: '0' cannot be", "at least 1"),
        (("--model", "Llama-3.1-70B", "--gpu", "h100-sxm", "--quant", "fp9"), "--quant", ""),
        ((*LLAMA_70B, "--gpus", "0"), "--gpus: '0' cannot be", "at least 1"),
        ((*LLAMA_70B, "--gpus", "4"), "a replica has 8, and there are 4", "fewer"),
        ((*BY_HAND, "--tp", "2"), "--tp belongs to --model", "leave it out"),
    ],
)  # fmt: skip
def test_hardware_that_cannot_be(options: tuple[str, ...], problem: str, remedy: str) -> None:
    """Names suggest the nearest; what does not fit says how much it needs."""
    lengths = () if "--output-tokens" in options else ("--input", "1000", "--output", "100")
    problems = refused(*options, *lengths)

    assert any(problem in each["problem"] and remedy in each["remedy"] for each in problems), problems


def test_a_profile_is_as_fast_as_its_speed(tmp_path: Path) -> None:
    """At twice the speed steps take half as long: of all latencies, half; of the rate, twice as much."""
    curve = {"type": "linear", "a_s": 0.01, "b_s_per_sequence": 1e-4, "d_s_per_prefill_token": 5e-5}
    bounds = {"max_num_seqs": 32, "max_batched_tokens": 2048, "kv_tokens": 100_000, "context_tokens": 4096}
    found = []
    for speed in (1.0, 2.0):
        path = tmp_path / f"{speed:g}.json"
        path.write_text(json.dumps({"curve": curve, "replica": {**bounds, "speed": speed}}))
        found.append(answered("--profile", str(path), "--users", "16", "--input", "500", "--output", "200"))
    slow, fast = found

    for name in ("ttft_s", "tpot_s", "e2e_s"):
        assert slow[name]["mean"] == pytest.approx(2 * fast[name]["mean"], rel=1e-6), name
    for name in ("requests_per_s", "requests_per_s_per_replica"):
        assert fast[name] == pytest.approx(2 * slow[name], rel=1e-6), name
    assert fast["concurrency_per_replica"] == slow["concurrency_per_replica"]


def test_thinking_for_no_time_is_never_thinking() -> None:
    """0 needs no unit; both are a closed loop."""
    asked = ("--profile", "h100-8b", "--input", "2000", "--output", "500", "--users", "40", "--replicas", "1")
    never = answered(*asked)
    for zero in ("0", "0s"):
        assert answered(*asked, "--think", zero) == never
    assert answered(*asked, "--think", "90s") != never


def test_the_precision_of_the_cache_is_told() -> None:
    """It is bf16 whatever the weights are in, unless another is asked for."""
    asked = ("--model", "Llama-3.1-70B", "--gpu", "h200-sxm", "--tp", "4", "--quant", "fp8")
    lengths = ("--users", "8", "--input", "2000", "--output", "500", "--replicas", "1")
    for said, precision in (((), "bf16"), (("--kv-quant", "fp8"), "fp8")):
        assert answered(*asked, *said, *lengths)["memory"]["kv_precision"] == precision
        assert f"each in {precision} (--kv-quant)" in " ".join(invoke(*asked, *said, *lengths).stdout.split())
