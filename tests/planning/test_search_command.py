"""Does `tidegate plan` find the configuration that is left open, and tell what it chose from?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from tidegate.core.errors import ConfigurationError
from tidegate.planning.commands import plan_app
from tidegate.planning.numbers import rate_of

app = typer.Typer()
app.add_typer(plan_app, name="plan")

LOAD = ("--qps", "8", "--input", "2000", "--output", "500", "--ttft", "1s", "--tpot", "40ms")
MODEL = ("--model", "Llama-3.1-8B")
SOME = (*MODEL, "--gpu", "h100-sxm", "--gpu", "l40s,l4")
APART = ("--model", "Llama-3.1-70B", "--gpu", "h100-sxm", "--tp", "4", "--disaggregated")
LONG = ("--qps", "2", "--input", "8192", "--output", "150", "--ttft", "3s", "--tpot", "50ms")


def invoke(*options: str) -> Result:
    """The command, in this process."""
    return CliRunner().invoke(app, ["plan", *options])


def answered(*options: str) -> dict[str, Any]:
    """Its JSON."""
    result = invoke(*options, "--json")
    assert result.exit_code == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def refused(*options: str) -> dict[str, Any]:
    """Its problem, which text and JSON tell alike."""
    result, text = invoke(*options, "--json"), invoke(*options)
    assert (result.exit_code, text.exit_code) == (2, 2), (result.stdout, text.stdout)
    (problem,) = json.loads(result.stdout)["problems"]
    assert problem["problem"] in text.stderr
    found: dict[str, Any] = problem
    return found


def test_the_answer_is_that_of_the_best_by_itself() -> None:
    """What is found open is what is answered when it is written out."""
    answer = answered(*SOME, *LOAD)
    best = answer["search"]["points"][0]
    written = (*MODEL, "--gpu", best["accelerator"], "--tp", f"{best['tp']}", "--quant", best["weights"])
    apart = ("--disaggregated",) if best["kind"] == "disaggregated" else ()
    alone = answered(*written, "--kv-quant", best["kv"], *apart, *LOAD)

    assert alone["search"] is None
    for key in ("replicas", "cost_per_hour", "utilisation", "concurrency_per_replica", "ttft_s", "binding"):
        assert alone[key] == answer[key], key
    assert best["cost_per_hour"] == pytest.approx(answer["cost_per_hour"])
    assert best["ttft_s"] == pytest.approx(answer["ttft_s"]["p95"])
    assert best["tpot_s"] == pytest.approx(answer["tpot_s"]["p95"])


def test_the_first_sentence_says_what_is_saved() -> None:
    """Against the cheapest on other accelerators, and in the published precision."""
    points = answered(*SOME, *LOAD)["search"]["points"]
    best = points[0]
    following = next(each for each in points if each["accelerator"] != best["accelerator"])
    saved = 1 - best["cost_per_hour"] / following["cost_per_hour"]

    told = " ".join(invoke(*SOME, *LOAD).stdout.split())
    first, second = told.split(" carry ")[0], told.split(" carry ")[1]

    assert first.startswith(f"The cheapest is {best['replicas']} replica")
    assert f"${best['cost_per_hour']:.2f} an hour, {100 * saved:.1f}".rstrip("0").rstrip(".") in first
    assert "less than the next" in first
    assert "As published, in bf16" in first
    assert "requests/s at " in second


def test_without_a_rate_tokens_are_compared() -> None:
    """One replica of each carries what it can: then an hour's cost says nothing."""
    answer = answered(*SOME, "--input", "2000", "--output", "500", "--ttft", "1s", "--tpot", "40ms")
    costs = [each["cost_per_million_output_tokens"] for each in answer["search"]["points"]]

    assert costs == sorted(costs)
    assert answer["cost_per_million_output_tokens"] == pytest.approx(costs[0], rel=2e-3)
    assert all(each["replicas"] == 1 for each in answer["search"]["points"])
    text = invoke(*SOME, "--input", "2000", "--output", "500", "--ttft", "1s", "--tpot", "40ms").stdout
    assert " per million output tokens, " in " ".join(text.split("carries")[0].split())


def test_ten_million_documents_on_the_cheapest() -> None:
    """347 documents/s are 2.08 M prompt and 104 K output tokens/s; interactive takes more of the same."""
    work = ("--offline", "10000000", "--input", "6000", "--output", "300", "--within", "8h")
    answer = answered(*SOME, *work)
    offline, best = answer["offline"], answer["search"]["points"][0]

    assert answer["requests_per_s"] == pytest.approx(347.2, abs=0.1)
    assert offline["prompt_tokens_per_s"] == pytest.approx(2.083e6, rel=1e-3)
    assert offline["output_tokens_per_s"] == pytest.approx(104.2e3, rel=1e-3)
    each = answer["requests_per_s_per_replica"]
    assert answer["replicas"] == -(-answer["requests_per_s"] // (0.95 * each))
    assert offline["done_s"] == pytest.approx(10e6 / (answer["replicas"] * each))
    assert offline["done_s"] <= 8 * 3600
    assert offline["interactive_replicas"] > answer["replicas"]
    assert answer["cost_per_hour"] == pytest.approx(best["cost_per_hour"])
    assert best["ttft_s"] is None
    assert best["kind"] == "aggregated"


def test_disaggregated_with_its_link() -> None:
    """400 Gb are 50 GB/s; the answer has both sides, and replicas that do both beside them."""
    answer = answered(*APART, "--link", "400Gb", *LONG)
    apart = answer["disaggregated"]

    assert apart["link_bytes_per_s"] == 50e9
    assert apart["kv_bytes_per_request"] == 2_684_354_560
    assert apart["link_needed_bytes_per_s"] == pytest.approx(2 * 2_684_354_560 / 0.7)
    assert answer["replicas"] == apart["prefill_replicas"] + apart["decode_replicas"]
    assert apart["whole"]["replicas"] > 0
    text = invoke(*APART, "--link", "400Gb", *LONG).stdout
    assert "2.68 GB of KV cache per request" in text
    assert "7.67 GB/s" in text
    assert "aggregated" in text


def test_disaggregated_of_what_there_is() -> None:
    """The best split of 32 accelerators, the rate that it carries, what changes it, where time goes."""
    answer = answered(*APART, "--link", "400Gb", "--gpus", "32", *LONG[2:])
    apart = answer["disaggregated"]

    assert answer["accelerators"] == 32
    assert (apart["prefill_replicas"], apart["decode_replicas"]) == (6, 2)
    assert apart["most_requests_per_s"] == answer["requests_per_s"] > 6
    assert [each["stage"] for each in apart["stages"]] == ["queue", "prefill", "transfer", "decode"]
    assert len(answer["changes"]) > 8
    assert all(each["prefill_replicas"] for each in answer["changes"] if not each["impossible"])
    text = " ".join(invoke(*APART, "--link", "400Gb", "--gpus", "32", *LONG[2:]).stdout.split())
    assert "6 replicas for prompts and 2 that decode" in text
    assert "where time goes" in text
    assert "what changes it carries" in text
    assert "/s, 6+2 58" in text


def test_disaggregated_of_two_kinds() -> None:
    """Both are named, in JSON and in the table, and each has its price."""
    options = (*APART, "--prefill-gpu", "h200-sxm", "--prefill-tp", "2", *LONG)
    answer = answered(*options)
    apart = answer["disaggregated"]

    assert apart["prefill_replica"] == "2 x NVIDIA H200 SXM"
    assert apart["decode_replica"] == "4 x NVIDIA H100 SXM"
    assert apart["prefill_accelerators_per_replica"] == 2
    each = answer["price_per_accelerator_hour"], apart["prefill_price_per_accelerator_hour"]
    assert each[0] != each[1]
    assert answer["cost_per_hour"] == pytest.approx(
        each[0] * 4 * apart["decode_replicas"] + each[1] * 2 * apart["prefill_replicas"]
    )
    text = " ".join(invoke(*options).stdout.split())
    assert "prompts, 2 x NVIDIA H200 SXM" in text
    assert "decoding, 4 x NVIDIA H100 SXM" in text


def test_disaggregated_sides_that_are_chosen_apart() -> None:
    """The plan is of the pair that was found, or of the one that was asked for."""
    some = (
        "--model",
        "Llama-3.1-70B",
        "--gpu",
        "h100-sxm",
        "--tp",
        "any",
        "--quant",
        "fp8",
        "--disaggregated",
    )
    answer = answered(*some, *LONG)
    best, apart = answer["search"]["points"][0], answer["disaggregated"]

    assert apart["prefill_accelerators_per_replica"] == best["prefill_tp"]
    assert apart["decode_accelerators_per_replica"] == best["tp"]
    assert answer["cost_per_hour"] == pytest.approx(best["cost_per_hour"])
    fixed = answered(*some, "--prefill-tp", "8", *LONG)
    assert fixed["disaggregated"]["prefill_accelerators_per_replica"] == 8
    assert {each["prefill_tp"] for each in fixed["search"]["points"]} == {8}
    assert fixed["cost_per_hour"] >= answer["cost_per_hour"]


@pytest.mark.parametrize(
    "decoding",
    [
        (),  # on any
        ("--gpu", "h100-sxm,l40s"),
        ("--gpu", "h100-sxm", "--tp", "1,2"),
        ("--gpu", "h100-sxm", "--tp", "any", "--quant", "any", "--kv-quant", "any"),
    ],
)
@pytest.mark.parametrize(
    "prompts",
    [("--prefill-tp", "2"), ("--prefill-gpu", "l40s"), ("--prefill-gpu", "l40s", "--prefill-tp", "2")],
)
def test_disaggregated_with_what_computes_prompts_said(
    decoding: tuple[str, ...], prompts: tuple[str, ...]
) -> None:
    """What is open of those that decode is found, and for prompts are those that are written, in its bits."""
    options = ("--disaggregated", *prompts, "--qps", "2", "--input", "500", "--output", "100", "--ttft", "1s")
    answer = answered(*MODEL, *decoding, *options)
    best = answer["search"]["points"][0]
    written = ("--gpu", best["accelerator"], "--tp", f"{best['tp']}", "--quant", best["weights"])
    alone = answered(*MODEL, *written, "--kv-quant", best["kv"], *options)

    assert best["prefill_tp"] == (2 if "--prefill-tp" in prompts else best["tp"])
    assert best["prefill_accelerator"] == ("l40s" if "--prefill-gpu" in prompts else best["accelerator"])
    for key in ("summary", "replicas", "cost_per_hour", "ttft_s", "tpot_s"):
        assert alone[key] == answer[key], key


def test_disaggregated_by_the_hour() -> None:
    """Of a trace: both kinds, in the table too."""
    small = ("--model", "Llama-3.1-8B", "--gpu", "h100-sxm", "--disaggregated", "--trace", "azure-conv")
    options = (*small, "--ttft", "500ms", "--tpot", "25ms", "--schedule")
    (hour,) = answered(*options)["hours"]

    assert (hour["prefill_replicas"], hour["replicas"]) == (2, 4)
    assert "2+2" in invoke(*options).stdout.split("hour ")[-1]


def test_disaggregated_for_users() -> None:
    """What 200 users who think for 10 s come to send."""
    answer = answered(*APART, *LONG[2:], "--users", "200", "--think", "10s")

    in_all_s = answer["e2e_s"]["mean"] + 10
    assert answer["requests_per_s"] * in_all_s == pytest.approx(200, rel=1e-3)


def test_prices_of_a_catalogue_file_decide(tmp_path: Path) -> None:
    """Whoever pays less for one of them gets another answer."""
    prices = tmp_path / "prices.toml"
    prices.write_text('[prices.l4]\nper_hour_usd = 0.01\nsource = "contract"\ndated = "2026-11-30"\n')

    assert answered(*SOME, *LOAD)["search"]["points"][0]["accelerator"] != "l4"
    assert answered(*SOME, *LOAD, "--catalog", f"{prices}")["search"]["points"][0]["accelerator"] == "l4"


@pytest.mark.parametrize(
    "options, problem, remedy",
    [
        ((*MODEL, "--gpu", "h1000,l40s", *LOAD), 'accelerator "h1000"', "h100-sxm"),
        ((*MODEL, "--gpu", "any", "--price", "3", *LOAD), "--price: of which accelerator", "--catalog"),
        ((*MODEL, "--quant", "fp9", *LOAD), "--quant: 'fp9'", ""),
        ((*MODEL, "--gpu", "any", "--tp", "two", *LOAD), "--tp: 'two' is not", "number"),
        (("--model", "Llama-3.1-405B", "--gpu", "l4,t4", *LOAD), "does not fit", "--tp 32"),
        ((*APART, "--link", "fast", *LONG), "--link: 'fast' is no rate", "50GB/s"),
        ((*APART, "--link", "1Gb", *LONG), "70% is the most", "7.67 GB/s"),
        ((*APART, "--replicas", "1", *LONG[2:]), "1 replica is too few to be apart", "2 replicas or more"),
        ((*APART, *LONG[2:]), "what comes, or what is there", "--qps, --users, --replicas or --gpus"),
        ((*APART, "--prefill-tp", "two", *LONG), "--prefill-tp: 'two' is not", "number"),
        ((*APART, "--prefill-tp", "1", *LONG), "--model: meta-llama", "--prefill-tp 2"),
        ((*APART, "--prefill-gpu", "l40s", "--price", "3", *LONG), "--price: of which", "--catalog"),
        ((*APART, "--prefill-gpu", "l40s", "--gpus", "9", *LONG[2:]), "--gpus: of which", "--replicas"),
        # what keeps every deployment from being asked about, and is not memory
        ((*MODEL, "--disaggregated", "--prefill-gpu", "l40", *LONG), 'accelerator "l40"', "l40s or l4"),
        ((*MODEL, "--disaggregated", "--prefill-tp", "3", *LONG), "--prefill-tp: 32 attention", "a divisor"),
        ((*MODEL, "--gpu", "l4,l40s", "--replicas", "2", "--spare", "2", *LONG[2:]), "of 2", "--spare 0"),
        ((*MODEL, "--gpu", "l4,l40s", "--tp", "3,5", *LONG), "--tp: 32 attention heads cannot", "a divisor"),
        ((*MODEL, "--ep", "4", *LONG), "--ep: meta-llama/Llama-3.1-8B has no experts", "leave it at 1"),
        ((*MODEL, "--pp", "64", *LONG), "--pp: 32 layers are too few", "that many at most"),
        ((*APART[:6], "--prefill-tp", "8", *LONG), "belongs to --disaggregated", "write that too"),
    ],
)  # fmt: skip
def test_what_cannot_be(options: tuple[str, ...], problem: str, remedy: str) -> None:
    """A sentence that says what is impossible and what would make it possible; exit status 2; or JSON."""
    found = refused(*options)

    assert problem in found["problem"]
    assert remedy in found["problem"] + found["remedy"]


def test_rates_of_links() -> None:
    """A small b is a bit."""
    for text, expected in [("50GB/s", 50e9), ("400Gb", 50e9), ("400 Gbit/s", 50e9), ("1.5TB", 1.5e12)]:
        assert rate_of("--link", text) == expected, text
    for text in ("50", "0GB/s", "-1GB", "fast", ""):
        with pytest.raises(ConfigurationError, match="--link"):
            rate_of("--link", text)
