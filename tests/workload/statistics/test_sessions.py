"""The figures of recorded sessions are those that were published with them."""

from __future__ import annotations

from functools import cache

import pytest

from tests.shared_data import shared
from tidegate.config.traces import open_lines
from tidegate.core.records import Distribution
from tidegate.workload.statistics.sessions import SessionStatistics, session_statistics
from tidegate.workload.traces.agentic import read_sessions


@cache
def coding() -> SessionStatistics:
    """Of the sessions of coding agents."""
    return session_statistics(read_sessions(open_lines(shared("agentic-coding/sessions.jsonl.gz"))))


@pytest.mark.parametrize(
    "name, published",
    [
        ("prompt_tokens", (122_379, 103_659, 300_667, 498_519, 894_371)),
        ("new_tokens", (4_509, 727, 10_941, 94_290, 851_858)),
        ("output_tokens", (440, 216, 1_554, 3_686, 18_195)),
        ("turns", (69.5, 45.5, 233, 341, 561)),
        ("gap_s", (151.5, 18, 309, 2_190, 77_611)),
        ("think_s", (172.3, 10, 449, 3_014, 77_589)),
        ("took_s", (9.8, 6.1, 28.5, 60.7, 300)),
        ("ttft_s", (3.6, 2.5, 9.8, 19.6, 59.5)),
    ],
)
def test_spreads_of_coding_sessions(name: str, published: tuple[float, ...]) -> None:
    """Mean, P50, P95, P99 and maximum, to the digits that were published."""
    found: Distribution = getattr(coding(), name)

    assert (found.mean, found.p50, found.p95, found.p99, found.max) == pytest.approx(
        published, rel=1e-4, abs=0.5
    )


def test_lengths_of_coding_sessions() -> None:
    """To the last request: in the longest a sub-agent's, 100 s after the last instant that was published."""
    found = coding().span_s

    assert (found.mean, found.p50, found.p95, found.p99) == pytest.approx(
        (10_436, 3_589, 53_056, 94_890), abs=0.5
    )
    assert found.max == pytest.approx(440_282, rel=3e-4)


def test_counts_and_reuse_of_coding_sessions() -> None:
    """Sessions, requests, sub-agents, what was recorded of each, and what their prompts had in common."""
    found = coding()

    assert (found.sessions, found.requests) == (710, 49_334)
    assert (found.agents, found.sessions_with_agents) == (63, 17)
    assert (found.think_s.count, found.took_s.count, found.ttft_s.count) == (49_218, 45_022, 4_153)
    assert (found.tool_tokens, found.system_tokens) == pytest.approx((11_549, 2_789), abs=0.5)
    assert (found.gap_cv.p50, found.gap_cv.p95) == pytest.approx((2.4, 7.2), abs=0.05)
    assert found.reuse.found_blocks_ratio == pytest.approx(0.963, abs=0.0005)
    spread = found.found_blocks_ratio
    assert (spread.p5, spread.p50, spread.p95) == pytest.approx((0.745, 0.955, 0.983), abs=0.0005)
