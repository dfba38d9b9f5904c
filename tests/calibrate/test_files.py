"""Runs that nobody designed: what records of the bench and scrapes of /metrics say of a known engine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from random import Random

import msgspec
import pytest

from tests.calibrate.virtual import TRUE, VirtualEngine
from tests.shared_data import shared
from tidegate.bench.load import LoadRecord
from tidegate.calibrate.held_out import split
from tidegate.calibrate.pages import read_page
from tidegate.calibrate.report import report_of
from tidegate.calibrate.scrapes import pages_of, points_of
from tidegate.calibrate.sources import Found, of_records, of_scrapes
from tidegate.calibrate.told import Told
from tidegate.config.profiles import ProfileFile
from tidegate.core.curve import Linear
from tidegate.core.errors import ConfigurationError

CURVE = TRUE.curve
assert isinstance(CURVE, Linear)


def arrivals(
    count: int, rate_per_s: float, *, prompts: tuple[float, float] = (6.0, 1.2)
) -> Iterator[tuple[float, int, int]]:
    """Poisson, at a rate that goes up and down, with log-normal lengths."""
    rng, at = Random(3), 0.0
    for index in range(count):
        at += rng.expovariate(rate_per_s * (1 + (index // 40) % 3))
        prompt = int(min(6000, rng.lognormvariate(*prompts))) + 16
        yield at, prompt, int(min(900, rng.lognormvariate(5, 0.8))) + 8


@lru_cache
def served() -> tuple[list[LoadRecord], list[tuple[float, str]]]:
    """Some minutes of an engine, as its clients and its metrics saw them."""
    return VirtualEngine().serve(arrivals(400, 1.5), scrape_every_s=1.0)


def written(path: Path, lines: list[bytes]) -> Path:
    """A file of these lines."""
    path.write_bytes(b"\n".join(lines))
    return path


def records_in(path: Path, records: list[LoadRecord]) -> Path:
    """As `tidegate bench --out` writes them."""
    return written(path, [msgspec.json.encode(each) for each in records])


def profile_of(found: Found) -> ProfileFile:
    """The profile that it makes."""
    return report_of(found, file="f", date="").profile


def test_records_of_a_bench_run(tmp_path: Path) -> None:
    """Poisson arrivals of mixed lengths give all constants, those of decoding within 5 %."""
    profile = profile_of(of_records(records_in(tmp_path / "r.jsonl", served()[0]), Told()))
    found, measured = profile.curve, profile.measured

    assert isinstance(found, Linear)
    assert measured is not None
    for name, tolerance in [
        ("a_s", 0.02),
        ("b_s_per_sequence", 0.1),
        ("c_s_per_context_token", 0.05),
        ("d_s_per_prefill_token", 0.05),
        ("e_s_per_prefill_token_squared", 0.5),
    ]:
        assert getattr(found, name) == pytest.approx(getattr(CURVE, name), rel=tolerance), name
    assert measured.held_out_error_ratio is not None
    assert measured.held_out_error_ratio < 0.02
    assert measured.held_out_points > 50
    # Nobody said what fits into the engine: no more is taken to than was seen.
    assert measured.assumed == ("max_num_seqs", "max_batched_tokens", "kv_tokens", "context_tokens")
    assert profile.replica.max_num_seqs == round(measured.sequences.most) <= TRUE.replica.max_num_seqs


def test_scrapes_of_the_same_run(tmp_path: Path) -> None:
    """A page a second gives the constants of decoding within 15 %, and says what it cannot know."""
    lines = [msgspec.json.encode({"at_s": at, "page": page}) for at, page in served()[1]]
    found = of_scrapes(written(tmp_path / "s.jsonl", lines), Told())
    profile = profile_of(found)
    curve, measured = profile.curve, profile.measured

    assert isinstance(curve, Linear)
    assert measured is not None
    for name in ("a_s", "b_s_per_sequence", "c_s_per_context_token", "d_s_per_prefill_token"):
        assert getattr(curve, name) == pytest.approx(getattr(CURVE, name), rel=0.15), name
    assert curve.e_s_per_prefill_token_squared == 0
    assert any("e (prompt tokens squared) is unknown" in warning for warning in measured.warnings)
    # Nobody had to wait for a seat, so that there may be more of them; the pages tell the rest.
    assert measured.assumed == ("max_num_seqs", "max_batched_tokens", "context_tokens")
    assert profile.replica.kv_tokens == TRUE.replica.kv_tokens
    assert measured.held_out_error_ratio is not None
    assert measured.held_out_error_ratio < 0.06


def test_seats_that_others_wait_for(tmp_path: Path) -> None:
    """Of an engine that had more to do than it has seats, pages show how many there are."""
    _, pages = VirtualEngine().serve(arrivals(300, 4.0), scrape_every_s=1.0)
    lines = [msgspec.json.encode({"at_s": at, "page": page}) for at, page in pages]

    assert of_scrapes(written(tmp_path / "s", lines), Told()).told.max_num_seqs == TRUE.replica.max_num_seqs


def test_a_folder_of_scrapes(tmp_path: Path) -> None:
    """Each file is a page, of the instant that it is named by, else of its own time; the order is time's."""
    pages = served()[1][:12]
    for at, page in pages:
        (tmp_path / f"{at}.txt").write_text(page)
    assert [each.at_s for each in pages_of(tmp_path)] == [at for at, _ in pages]

    for number, (at, page) in enumerate(pages):
        (tmp_path / f"{at}.txt").unlink()
        named = tmp_path / f"scrape-{len(pages) - number}.prom"
        named.write_text(page)
        os.utime(named, (1e9 + at, 1e9 + at))
    assert [each.at_s - 1e9 for each in pages_of(tmp_path)] == [at for at, _ in pages]


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (500, 520, "batch and context were not varied independently"),
        (60, 4000, ""),
    ],
)
def test_one_context_only(tmp_path: Path, low: int, high: int, said: str) -> None:
    """A run of equal prompts cannot tell batch from context; it is said, with the runs that would help.

    Whoever takes the profile is told as well, of longer sequences than there were.
    """
    rng, at, asked = Random(1), 0.0, []
    for index in range(300):
        at += rng.expovariate(2.0 * (1 + (index // 30) % 3))
        asked.append((at, rng.choice((low, high)), 8))
    records, _ = VirtualEngine().serve(asked)
    told = Told(context_tokens=4096)
    profile = profile_of(of_records(records_in(tmp_path / "r", records), told))
    measured = profile.measured

    assert measured is not None
    beyond = [each for each in profile.beyond() if "4,096 tokens of context in one sequence" in each]
    assert bool(beyond) == bool(said)
    found = [warning for warning in measured.warnings if "independently" in warning]
    assert bool(found) == bool(said), measured.warnings
    if said:
        assert said in found[0]
        assert "errors stated here hold for such traffic only" in found[0]
        assert "with prompts of about 128 and of 2,048 tokens" in found[0]


PAGE = served()[1][40][1]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no vllm:num_requests_running"),
        ("llamacpp:requests_processing 0\n", "has no vllm:num_requests_running"),
        (PAGE.replace("inter_token_latency_seconds_sum", "x"), "has no vllm:inter_token_latency_seconds_sum"),
        (PAGE + PAGE.replace('engine="0"', 'engine="1"'), "speaks of 2 engines at once"),
    ],
)
def test_pages_that_say_too_little(text: str, said: str) -> None:
    """Another engine's page, or one of several engines, is refused with the series that is missing."""
    with pytest.raises(ConfigurationError, match=f"^here: {said}"):
        read_page(text, 0.0, "here")


def test_a_page_of_real_vllm() -> None:
    """What vLLM 0.32 wrote after a load is read: sums, counts, and the size of its cache."""
    page = read_page(Path(shared("../research/engine-metrics-vllm.txt")).read_text(), 0.0, "vllm")

    assert page["inter_token_latency_seconds_count"] == 3115
    assert page["inter_token_latency_seconds_sum"] == pytest.approx(33.5097, rel=1e-5)
    assert page["iteration_tokens_total_count"] == 1004
    assert (page.block_tokens, page.kv_tokens, page.prefix_cache) == (32, 2048, True)


def test_names_of_older_builds() -> None:
    """They are understood as those of today, and count once where a build writes both."""
    older = PAGE.replace("kv_cache_usage_perc", "gpu_cache_usage_perc").replace(
        "inter_token_latency_seconds", "time_per_output_token_seconds"
    )
    sizeless = PAGE.replace("kv_cache_size_tokens", "x")
    both = PAGE + "".join(line + "\n" for line in older.splitlines() if line not in PAGE)

    for page in (older, both, sizeless):
        assert read_page(page, 0.0, "here") == read_page(PAGE, 0.0, "here")


def test_files_that_are_none(tmp_path: Path) -> None:
    """What is missing, not of its kind, or too little, is said in a line that names the place."""
    few = records_in(tmp_path / "few", served()[0][:4])
    short = [msgspec.structs.replace(each, output_tokens=1) for each in served()[0]]
    idle = [msgspec.json.encode({"at_s": at, "page": PAGE}) for at in range(20)]
    sizeless = [
        msgspec.json.encode({"at_s": at, "page": page.replace("cache_config_info", "x")})
        for at, page in served()[1]
    ]
    for path, of, said in [
        (tmp_path / "none", of_records, "--records .*none: No such file"),
        (tmp_path / "none", of_scrapes, "--scrapes .*none: No such file"),
        (
            written(tmp_path / "a", [b'{"url": "x", "total": {}}']),
            of_records,
            "a:1: is not a record as `tidegate bench",
        ),
        (written(tmp_path / "b", [b"", b"{"]), of_records, "b:1: is not a record"),
        (written(tmp_path / "c", [b"{}"]), of_scrapes, "c:1: is not a scrape with at_s and page"),
        (written(tmp_path / "d", [b'{"at_s": 1, "page": ""}']), of_scrapes, "d:1: has no vllm:num_requests"),
        (written(tmp_path / "e", idle[:1]), of_scrapes, "holds 1 pages; it takes two"),
        (written(tmp_path / "f", idle), of_scrapes, "0 of 19 intervals between scrapes had a steady batch"),
        (written(tmp_path / "g", sizeless), of_scrapes, "how large the KV cache is .*: give --kv-tokens"),
        (few, of_records, "few: has 4 requests, 4 of them ok: it takes 8 streamed answers"),
        (records_in(tmp_path / "h", short), of_records, "has 400 requests, 400 of them ok: it takes 8"),
    ]:
        with pytest.raises(ConfigurationError, match=said):
            of(path, Told())

    assert len(of_scrapes(tmp_path / "g", Told(kv_tokens=65_536)).points) > 50


def test_an_engine_that_was_started_anew(tmp_path: Path) -> None:
    """Counters that fall begin a new engine: the interval is no point."""
    pages = served()[1]
    twice = [*pages[:60], *((at + 1000, page) for at, page in pages[20:60])]
    whole = [msgspec.json.encode({"at_s": at, "page": page}) for at, page in pages[:60]]
    lines = [msgspec.json.encode({"at_s": at, "page": page}) for at, page in twice]
    once = len(of_scrapes(written(tmp_path / "whole", whole), Told()).points)

    assert len(of_scrapes(written(tmp_path / "twice", lines), Told()).points) < 2 * once


def test_what_is_held_out_of_a_run() -> None:
    """Two stretches of time, a quarter of the points; nothing of a run that has few."""
    (point, *_) = points_of([read_page(page, at, "p") for at, page in served()[1]])
    points = [point] * 200
    judged = [index for index, each in enumerate(split(points)) if each.held_out]

    assert len(judged) / len(points) == pytest.approx(0.25, abs=0.03)
    assert sum(one + 1 != two for one, two in pairwise(judged)) == 1
    assert not any(each.held_out for each in split(points[:20]))
