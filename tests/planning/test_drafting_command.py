"""Does `tidegate plan --draft` say what guesses give, and refuse those that cannot be?"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.planning.test_commands import answered, invoke, refused
from tidegate.catalog.catalog import Catalog
from tidegate.config import load
from tidegate.config.profiles import profile_of
from tidegate.perf.speculative import Verifying
from tidegate.planning.drafts import speculation_of
from tidegate.planning.options import Options
from tidegate.planning.replicas import curve_of

SMALL = ("--model", "Llama-3.1-8B", "--gpu", "h100-sxm", "--input", "500", "--output", "200", "--qps", "4")
ASKED = (*SMALL, "--ttft", "1s", "--tpot", "20ms")
EAGLE = ("--draft", "eagle", "--draft-tokens", "4", "--acceptance", "0.8")


def test_json_tells_what_guesses_give() -> None:
    """Under `speculation`, units in the keys."""
    found = answered(*ASKED, *EAGLE)["speculation"]
    assert found["draft"] == "EAGLE head"
    assert found["accepted_tokens_per_step"] == pytest.approx(3.3616)
    assert (found["draft_tokens"], found["acceptance_ratio"], found["draft_tp"]) == (4, 0.8, 1)
    assert found["token_alone_s"] < found["plain_token_alone_s"] / 2
    assert found["draft_weights_bytes"] > 2**28
    assert "break_even_concurrency" in found
    assert answered(*ASKED)["speculation"] is None


def test_the_table_has_a_line_of_it() -> None:
    """The sentence of the JSON, and what turning it off changes."""
    text = " ".join(invoke(*ASKED, *EAGLE).stdout.split())
    assert "drafts EAGLE head drafts 4 tokens a step, each right in 80%: 3.36 tokens per step" in text
    assert "no drafting" in text
    assert "an acceptance of 70%" in text


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("ngram", "n-gram lookup"),
        ("N-gram", "n-gram lookup"),
        ("mtp", "MTP head"),
        ("medusa", "Medusa heads"),
        ("7%", "head of 2 layers"),
        ("1%", "head of 1 layer"),
        ("1.5GiB", "head of 1.5 GiB"),
        ("500MB", "head of 0.466 GiB"),
        ("Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-8B-Instruct"),
    ],
)
def test_ways_to_say_what_drafts(written: str, name: str) -> None:
    """A word, a share of the layers, a size, or a model; three tokens where nothing is said."""
    catalog = Catalog.shipped()
    options = Options(model="Llama-3.1-8B", draft=written, acceptance="70%")
    found = speculation_of(options, catalog.model("Llama-3.1-8B"), catalog)
    assert found is not None
    assert (found.draft.name, found.draft_tokens, found.acceptance_ratio) == (name, 3, 0.7)


@pytest.mark.parametrize(
    ("options", "problem", "remedy"),
    [
        ((*SMALL, "--draft", "eagle"), "--draft: how often is a guess right", "--acceptance 0.7"),
        ((*SMALL, "--draft", "eagle", "--acceptance", "80"), "--acceptance: '80'", "80 % is 0.8"),
        ((*SMALL, "--draft", "eagle", "--acceptance", "1.5"), "--acceptance: '1.5'", ""),
        (
            (*SMALL, *EAGLE[:2], "--acceptance", "0.8", "--draft-tokens", "0"),
            "--draft-tokens: '0'",
            "at least 1",
        ),
        (
            (*SMALL, *EAGLE[:2], "--acceptance", "0.8", "--draft-tokens", "40"),
            "--max-batched-tokens",
            "that many",
        ),
        ((*SMALL, "--draft", "Llama-3.1-70B", "--acceptance", "0.8"), "70.6 billion parameters", "smaller"),
        ((*SMALL, "--draft", "Qwen3-0.6B", "--acceptance", "0.8"), "a vocabulary of 151,936", "family"),
        ((*SMALL, "--draft", "eagel", "--acceptance", "0.8"), "eagel", "ngram, eagle, mtp, medusa"),
        ((*SMALL, "--draft", "200%", "--acceptance", "0.8"), "--draft: '200%'", ""),
        ((*SMALL, "--acceptance", "0.8"), "--acceptance belongs to --draft", "leave it out"),
        ((*SMALL, *EAGLE, "--disaggregated"), "--draft and --disaggregated", "leave one out"),
        ((*SMALL, *EAGLE, "--pp", "2"), "--draft and --pp", "leave one out"),
        (
            ("--profile", "h100-8b", "--input", "500", "--output", "200", "--qps", "4", *EAGLE),
            "--draft and --profile: a profile says itself",
            "leave one out",
        ),
        (
            ("--throughput", "2000", "--output", "500", "--tpot", "20ms", "--qps", "4", *EAGLE),
            "--draft and --throughput: two figures",
            "leave one out",
        ),
    ],
)
def test_what_cannot_be(options: tuple[str, ...], problem: str, remedy: str) -> None:
    """A sentence that names what, and what would do; as data with --json."""
    found = refused(*options)
    assert any(problem in each["problem"] and remedy in each["remedy"] for each in found), found


def test_what_is_written_guesses_as_the_plan_does(tmp_path: Path) -> None:
    """`--emit` has drafting in the curve, and how often guesses are right; `compare` counts them."""
    paths = [tmp_path / "guessing.yaml", tmp_path / "plain.yaml"]
    for path, more in zip(paths, (EAGLE, ()), strict=True):
        assert invoke(*ASKED, *more, "--emit", str(path)).exit_code == 0
    (pool,) = load(paths[0], environ={}).simulation.pools.values()
    profile = profile_of(pool)
    guessing = profile.replica.speculation
    assert guessing is not None
    assert (guessing.draft_tokens, guessing.acceptance_ratio) == (4, 0.8)
    assert curve_of(profile) == Verifying(curve=profile.curve, draft_tokens=4, acceptance_ratio=0.8)

    result = invoke("compare", *map(str, paths), "--json")
    found = json.loads(result.stdout)
    first, second = found["a"], found["b"]
    assert first["tpot_p95_s"] < second["tpot_p95_s"] / 2
    assert not any("speculation" in note for note in first["notes"])


def test_a_profile_guesses_as_it_says(tmp_path: Path) -> None:
    """With `speculation` in its file a replica makes tokens faster than without; no `--draft` is needed."""
    told = "curve: {type: linear, a_s: 0.01, b_s_per_sequence: 1.0e-5, d_s_per_prefill_token: 2.0e-5}\n"
    engine = "replica: {max_num_seqs: 64, max_batched_tokens: 4096, kv_tokens: 400000, context_tokens: 8192"
    paths = [tmp_path / "guessing.yaml", tmp_path / "plain.yaml"]
    for path, more in zip(
        paths, (", speculation: {draft_tokens: 3, acceptance_ratio: 0.7}}", "}"), strict=True
    ):
        path.write_text(f"{told}{engine}{more}\n")
    guessing, plain = (
        answered("--profile", str(path), "--input", "500", "--output", "200", "--qps", "2") for path in paths
    )
    assert plain["tpot_s"]["mean"] / guessing["tpot_s"]["mean"] == pytest.approx(2.5, rel=0.1)
    assert guessing["speculation"] is None


def test_a_search_takes_guesses_for_given() -> None:
    """Of each accelerator; what it finds guesses as was asked."""
    found = answered(
        *SMALL[:2], "--gpu", "h100-sxm,l40s", *SMALL[4:], "--ttft", "1s", "--tpot", "20ms", *EAGLE
    )
    assert found["speculation"]["draft"] == "EAGLE head"
    assert found["search"] is not None
    assert all(each["kind"] == "aggregated" for each in found["search"]["points"])
    for each in found["search"]["speeds"]:
        assert each["tokens_per_s"] < each["most_tokens_per_s"]
