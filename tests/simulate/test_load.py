"""Is the load the one that the options describe?"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tidegate.core.errors import ConfigurationError
from tidegate.simulate.load import Asker, Load, check, span_of, workload_of
from tidegate.workload.requests import PlannedRequest

TRACE = "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(
    f"2023-11-16 18:00:{second:02d},{100 + second},{10 + second}\n" for second in range(0, 60, 2)
)
BOTH = (Asker(name="acme", share=3.0), Asker(name="lab", model="small", priority="batch"))


@pytest.fixture
def trace(tmp_path: Path) -> str:
    """Thirty requests, one each two seconds."""
    path = tmp_path / "trace.csv"
    path.write_text(TRACE)
    return str(path)


def planned(seed: int = 1, **options: Any) -> list[PlannedRequest]:
    """The requests of a load, which can be."""
    load = Load(**{"askers": BOTH, **options})
    check(load)
    return list(workload_of(load, seed).starts())


def test_drawn_arrivals() -> None:
    """Poisson at the rate, for as long, of one length; the same for the same seed and no other."""
    found = planned(rate_per_s=20.0, for_s=100.0, prompt_tokens=7)

    assert len(found) == pytest.approx(2_000, rel=0.1)
    assert found[-1].at_s < 100
    assert {(each.prompt_tokens, each.output_tokens) for each in found} == {(7, 128)}
    assert found == planned(rate_per_s=20.0, for_s=100.0, prompt_tokens=7)
    assert found != planned(seed=2, rate_per_s=20.0, for_s=100.0, prompt_tokens=7)


def test_bursts() -> None:
    """A CV of 3 makes gaps that vary three times as much as their mean."""
    found = planned(rate_per_s=20.0, for_s=1_000.0, cv=3.0)
    gaps = [after.at_s - before.at_s for before, after in pairwise(found)]
    mean = sum(gaps) / len(gaps)
    deviation = (sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5

    assert mean == pytest.approx(1 / 20, rel=0.1)
    assert deviation / mean == pytest.approx(3, rel=0.1)


def test_a_number_of_requests() -> None:
    """It ends a run by itself, however long that takes."""
    assert len(planned(requests=10)) == 10
    assert len(planned(requests=10, rate_per_s=0.001)) == 10
    assert len(planned(requests=10, rate_per_s=1.0, for_s=3.0)) < 10


def test_who_asks_for_what() -> None:
    """Tenants by their shares, each for its model and class."""
    found = planned(rate_per_s=50.0, for_s=100.0)
    acme = [each for each in found if each.tenant == "acme"]
    lab = [each for each in found if each.tenant == "lab"]

    assert len(acme) / len(lab) == pytest.approx(3, rel=0.1)
    assert {(each.model, each.priority) for each in acme} == {("", "")}
    assert {(each.model, each.priority) for each in lab} == {("small", "batch")}


def test_a_trace_as_it_was(trace: str) -> None:
    """Its instants and its pairs of lengths; the seed moves only who asks."""
    found = planned(trace=trace)

    assert [(each.at_s, each.prompt_tokens, each.output_tokens) for each in found[:2]] == [
        (0.0, 100, 10),
        (2.0, 102, 12),
    ]
    assert [each.at_s for each in planned(seed=2, trace=trace)] == [each.at_s for each in found]


@pytest.mark.parametrize(
    "options, instants",
    [
        ({"from_s": 10.0, "for_s": 5.0}, [0.0, 2.0, 4.0]),
        ({"time_scale": 4.0, "for_s": 1.0}, [0.0, 0.5]),
        ({"requests": 2}, [0.0, 2.0]),
    ],
)
def test_a_part_of_a_trace(trace: str, options: dict[str, Any], instants: list[float]) -> None:
    """From where, for how long, how fast, and how many."""
    assert [each.at_s for each in planned(trace=trace, **options)] == instants


def test_a_trace_at_another_rate(trace: str) -> None:
    """Twice the rate is twice as many requests in the same time."""
    assert len(planned(trace=trace, rate_per_s=1.0)) == pytest.approx(60, abs=2)


def test_other_lengths(trace: str) -> None:
    """Either side of a trace may be replaced, and drawn arrivals may have a trace's pairs."""
    assert {each.output_tokens for each in planned(trace=trace, output_tokens=5)} == {5}
    drawn = planned(lengths=trace, rate_per_s=5.0, for_s=100.0)

    assert {each.prompt_tokens - each.output_tokens for each in drawn} == {90}
    assert len({each.prompt_tokens for each in drawn}) > 20


@pytest.mark.parametrize(
    "options, problem",
    [
        ({"rate_per_s": 0.0}, "--rate is above 0, not 0"),
        ({"for_s": 0.0}, "--for is above 0, not 0"),
        ({"requests": 0}, "--requests is at least 1, not 0"),
        ({"prompt_tokens": 0}, "--prompt-tokens is at least 1, not 0"),
        ({"time_scale": 2.0}, "--time-scale is for traces; name one with --trace"),
        ({"from_s": 2.0}, "--from is for traces; name one with --trace"),
        ({"spread": True}, "--spread is for traces; name one with --trace"),
        (
            {"trace": "azure-conv", "cv": 2.0},
            "--cv and --lengths are for arrivals that are drawn, not for a trace",
        ),
        (
            {"trace": "azure-conv", "from_s": 1e6},
            "trace azure-conv: nothing arrives where --from and --for point",
        ),
        (
            {"trace": "none"},
            "trace none: No such file or directory; give a file, or one of azure-conv, azure-code",
        ),
    ],
)
def test_what_cannot_be(options: dict[str, Any], problem: str) -> None:
    """An option that cannot be is named before anything runs."""
    with pytest.raises(ConfigurationError) as caught:
        planned(**options)
    assert caught.value.problems == [problem]


def test_how_long_it_lasts(trace: str) -> None:
    """About, for a bar: by time, by number, or by the trace."""
    assert span_of(Load(askers=BOTH)) == 600
    assert span_of(Load(askers=BOTH, requests=100, rate_per_s=20.0)) == 5
    assert span_of(Load(askers=BOTH, trace=trace)) == 58
    assert span_of(Load(askers=BOTH, trace=trace, requests=15)) == 29


@pytest.mark.parametrize(
    "load, words",
    [
        (Load(askers=()), "5 requests/s, Poisson, 512 prompt tokens, 128 output tokens, for 10m"),
        (
            Load(askers=(), cv=2.0, rate_per_s=1.5, lengths="azure-code", requests=9),
            "1.5 requests/s, gaps of CV 2, lengths of azure-code, 9 requests",
        ),
        (Load(askers=(), trace="azure-conv", time_scale=2.0), "trace azure-conv, 2 times as fast"),
        (Load(askers=(), trace="x", rate_per_s=9.0, for_s=60.0), "trace x, at 9 requests/s, for 1m"),
    ],
)
def test_in_words(load: Load, words: str) -> None:
    """A load is told in one line."""
    assert str(load) == words
