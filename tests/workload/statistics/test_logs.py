"""The figures of a trace are those that were published with it."""

from __future__ import annotations

from math import isnan

import pytest

from tests.shared_data import shared
from tidegate.config.traces import open_lines
from tidegate.core.records import Distribution
from tidegate.workload.statistics.logs import LogStatistics, statistics_of
from tidegate.workload.traces.formats import Format, detect, read_rows
from tidegate.workload.traces.rows import TraceRow


def figures(name: str) -> LogStatistics:
    """Of a trace of `../shared/data`, or of one that ships."""
    form, lines = detect(open_lines(shared(name) if "/" in name else name), name)
    return statistics_of(read_rows(lines, name, form), timed=form is not Format.PAIRS)


def five(found: Distribution) -> tuple[float, ...]:
    """As the published tables have them."""
    return (found.mean, found.p50, found.p95, found.p99, found.max)


def published(*values: float, unit: float = 1.0) -> object:
    """Figures that were rounded to whole numbers, or to `unit`; two of them a little further"""
    return pytest.approx(values, abs=0.55 * unit)


@pytest.mark.parametrize(
    "name, rows, span_s, rate_per_s, gap_cv, dispersions, peak",
    [
        ("azure-conv", 19_366, 3_501.7, 5.53, 1.09, (1.4, 4.0, 20.6), 1.54),
        ("azure-code", 8_819, 3_435.9, 2.57, 13.15, (13.2, 71.3, 160.5), 4.16),
        ("mooncake-fast25/conversation_trace.jsonl.gz", 12_031, 3_537, 3.40, 3.03, (7.9, 2.1, 2.9), None),
        ("mooncake-fast25/synthetic_trace.jsonl.gz", 3_993, 1_022, 3.91, 1.01, (1.1, 1.4, 13.0), None),
    ],
)
def test_arrivals_of_published_traces(
    name: str,
    rows: int,
    span_s: float,
    rate_per_s: float,
    gap_cv: float,
    dispersions: tuple[float, ...],
    peak: float | None,
) -> None:
    """Rate, burstiness and the busiest minute; published with the last window, in which the trace ends."""
    found = figures(name)

    assert found.requests == rows
    assert found.arrivals is not None
    assert found.arrivals.span_s == pytest.approx(span_s, abs=0.5)
    assert found.arrivals.rate_per_s == pytest.approx(rate_per_s, abs=0.005)
    assert found.arrivals.gap_cv == pytest.approx(gap_cv, abs=0.005)
    counts = found.arrivals.counts_with_rest
    assert [counts[window_s].dispersion for window_s in (1, 10, 60)] == published(*dispersions, unit=0.1)
    if peak is not None:
        assert counts[60].peak_ratio == pytest.approx(peak, abs=0.005)


@pytest.mark.parametrize(
    "name, prompts, outputs",
    [
        ("azure-conv", (1154.7, 1020, 4083, 4142, 14050), (211.1, 129, 451, 601, 1000)),
        ("azure-code", (2047.8, 1469, 7303, 7436, 7437), (27.9, 13, 90, 251, 1899)),
        (
            "mooncake-fast25/conversation_trace.jsonl.gz",
            (12035, 6909, 39551, 85400, 126195),
            (342.6, 350, 698, 1119, 2000),
        ),
        (
            "mooncake-fast25/synthetic_trace.jsonl.gz",
            (15326, 11587, 48905, 66456, 191378),
            (149.1, 69, 519, 768, 893),
        ),
        (
            "request-lengths/sharegpt_8k_llama2_tokenizer.csv.gz",
            (2340, 1730, 6563, 7434, 8141),
            (439, 415, 920, 998, 1024),
        ),
        (
            "request-lengths/arxiv_summarization_llama2_tokenizer.csv.gz",
            (2588, 2730, 3813, 3933, 4054),
            (291, 167, 736, 3271, 4056),
        ),
    ],
)
def test_lengths_of_published_traces(
    name: str, prompts: tuple[float, ...], outputs: tuple[float, ...]
) -> None:
    """Mean, P50, P95, P99 and maximum of both sides."""
    found = figures(name)

    assert five(found.prompt_tokens) == published(*prompts)
    assert five(found.output_tokens) == published(*outputs)


@pytest.mark.parametrize(
    "name, rows, correlation",
    [
        ("request-lengths/sharegpt_8k_llama2_tokenizer.csv.gz", 30_731, 0.04),
        ("request-lengths/arxiv_summarization_llama2_tokenizer.csv.gz", 28_257, -0.46),
    ],
)
def test_pairs_have_no_arrivals_but_hang_together(name: str, rows: int, correlation: float) -> None:
    """Lists of lengths: rows and the correlation of both sides."""
    found = figures(name)

    assert (found.requests, found.arrivals) == (rows, None)
    assert found.length_correlation == pytest.approx(correlation, abs=0.005)


@pytest.mark.parametrize(
    "name, blocks, distinct, found_ratio, more_ratio",
    [
        ("conversation_trace", 288_500, 182_790, 0.366, 0.387),
        ("synthetic_trace", 121_877, 43_924, 0.640, 0.438),
    ],
)
def test_reuse_in_mooncake(
    name: str, blocks: int, distinct: int, found_ratio: float, more_ratio: float
) -> None:
    """Blocks, and what an unlimited cache finds of them."""
    reuse = figures(f"mooncake-fast25/{name}.jsonl.gz").reuse

    assert reuse is not None
    assert (reuse.blocks, reuse.distinct_blocks) == (blocks, distinct)
    assert reuse.found_blocks_ratio == pytest.approx(found_ratio, abs=0.0005)
    assert reuse.requests_found_more_ratio == pytest.approx(more_ratio, abs=0.0005)


def test_the_rounded_times_of_mooncake_show() -> None:
    """1,180 distinct instants: nine gaps of ten are zero."""
    arrivals = figures("mooncake-fast25/conversation_trace.jsonl.gz").arrivals

    assert arrivals is not None
    assert arrivals.instants == 1_180


@pytest.mark.parametrize(
    "name, prompt_mean, output_mean, output_p95, found_ratio",
    [("llama-3.1-8b", 857, 653, 773, 0.077), ("qwen3", 862, 665, 814, 0.080)],
)
def test_workloads_of_measured_runs(
    name: str, prompt_mean: float, output_mean: float, output_p95: float, found_ratio: float
) -> None:
    """300 requests at 10.3/s, made with exponential gaps; their lengths and their reuse."""
    found = figures(f"vllm-measured-requests/sharegpt-{name}-300-sps10.csv.gz")

    assert found.requests == 300
    assert found.arrivals is not None
    assert found.arrivals.rate_per_s == pytest.approx(10.3, abs=0.05)
    assert found.arrivals.gap_cv == pytest.approx(0.94, abs=0.005)
    assert found.prompt_tokens.mean == pytest.approx(prompt_mean, abs=0.5)
    assert (found.output_tokens.mean, found.output_tokens.p95) == published(output_mean, output_p95)
    assert found.reuse is not None
    assert found.reuse.found_blocks_ratio == pytest.approx(found_ratio, abs=0.0005)


def test_a_small_log_by_hand() -> None:
    """Every figure that only some traces have: conversations, models, failures, rows that repeat."""
    rows = [
        TraceRow(0.0, 10, 1, "a", 0, 0, took_s=1.5),
        TraceRow(2.0, 20, 0, "b"),
        TraceRow(2.0, 20, 0, "b"),
        TraceRow(4.0, 30, 3, "b", 0, 1),
        TraceRow(9.0, 40, 4, "b", 1, 0),
    ]

    found = statistics_of(rows)

    assert (found.requests, found.empty_outputs, found.repeated_rows) == (5, 2, 1)
    assert list(found.models.items()) == [("b", 4), ("a", 1)]
    assert found.sessions is not None
    assert (found.sessions.sessions, found.sessions.requests, found.sessions.turns.max) == (2, 3, 2)
    assert (found.sessions.gap_s.count, found.sessions.gap_s.mean) == (1, 4.0)
    assert (found.sessions.think_s.count, found.sessions.think_s.mean) == (1, 2.5)
    assert found.arrivals is not None
    assert (found.arrivals.span_s, found.arrivals.rate_per_s, found.arrivals.instants) == (9.0, 5 / 9, 4)
    assert found.reuse is None


def test_a_log_of_one_request() -> None:
    """What one request cannot tell is not a number, and nothing fails."""
    found = statistics_of([TraceRow(0.0, 10, 1)])

    assert found.arrivals is not None
    assert isnan(found.arrivals.rate_per_s)
    assert isnan(found.arrivals.gap_cv)
    assert isnan(found.length_correlation)
    assert isnan(found.arrivals.counts[60].dispersion)
