"""A traffic file becomes a workload of every kind, or the list of all that is wrong with it."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from tests.server_process import REPOSITORY
from tests.shared_data import shared
from tidegate.config import parse
from tidegate.config.traffic import ArrivalConfig, RatePoint
from tidegate.config.traffic_loading import load_traffic, parse_traffic
from tidegate.core.errors import ConfigurationError
from tidegate.workload.laws.arrivals import Arrivals, Constant, Poisson, Renewal
from tidegate.workload.laws.gaps import Even, Gamma, Memoryless, Weibull
from tidegate.workload.laws.rates import Diurnal, Piecewise, Steady
from tidegate.workload.requests import PlannedRequest

FLEET = """
pools: {llama: {replicas: [{url: "http://a:1"}], aliases: [small]}}
classes: {interactive: {}, batch: {}}
"""


def starts(text: str, count: int = 50, base: Path = Path(), seed: int = 1) -> list[PlannedRequest]:
    """The first requests of the only source of a file."""
    return list(
        islice(parse_traffic(f"sources:\n  it: {text}", "t.yaml", base=base).workload(seed).starts(), count)
    )


@pytest.mark.parametrize(
    "config, arrivals",
    [
        (ArrivalConfig(rate_per_s=3), Poisson(3)),
        (ArrivalConfig(rate_per_s=3, gaps="even"), Constant(3)),
        (ArrivalConfig(rate_per_s=3, gaps="gamma", cv=2), Renewal(Steady(3), Gamma(2))),
        (ArrivalConfig(daily=Diurnal(3), gaps="weibull", cv=2), Renewal(Diurnal(3), Weibull(2))),
        (ArrivalConfig(daily=Diurnal(3), gaps="even"), Renewal(Diurnal(3), Even())),
        (
            ArrivalConfig(
                points=(RatePoint(at_s=0, per_s=1), RatePoint(at_s=9, per_s=2)), linear=True, period_s=20
            ),
            Renewal(Piecewise(((0, 1), (9, 2)), True, 20), Memoryless()),
        ),
    ],
)
def test_arrivals_as_they_are_written(config: ArrivalConfig, arrivals: Arrivals) -> None:
    """Rate and gaps are chosen apart; the plainest form of what is meant is made."""
    assert config.arrivals() == arrivals


def test_the_example_is_one() -> None:
    """Three sources: what comes by itself, conversations, and workers; each its tenant's and class's."""
    traffic = load_traffic(REPOSITORY / "docs" / "examples" / "traffic" / "day.yaml")

    first = list(islice(traffic.workload(1).starts(), 2_000))

    assert {(planned.tenant, planned.priority) for planned in first} == {
        ("chat", "interactive"),
        ("reports", "batch"),
    }
    assert sum(planned.tenant == "reports" for planned in first) == 16
    assert sum(planned.session is not None for planned in first) > 16
    assert [planned.at_s for planned in first] == sorted(planned.at_s for planned in first)


def test_an_open_source() -> None:
    """Laws of its own, and what its clients say of themselves."""
    found = starts(
        "{kind: open, tenant: acme, class: batch, model: small, max_tokens: 7, streams: false,"
        " arrivals: {rate_per_s: 2, gaps: even}, lengths: {prompt_tokens: {type: fixed, value: 9},"
        " output_tokens: {type: quantiles, shares: [0, 1], values: [3, 3]}}}",
        3,
    )

    assert found == [
        PlannedRequest(
            at_s=at_s,
            tenant="acme",
            priority="batch",
            model="small",
            max_tokens=7,
            streams=False,
            prompt_tokens=9,
            output_tokens=3,
        )
        for at_s in (0.0, 0.5, 1.0)
    ]


def test_sources_have_dice_of_their_own() -> None:
    """Two that are alike but for their names ask at other instants, for other lengths."""
    alike = (
        "{kind: open, tenant: %s, arrivals: {rate_per_s: 2},"
        " lengths: {prompt_tokens: {type: exponential, mean: 99},"
        " output_tokens: {type: exponential, mean: 99}}}"
    )
    text = f"sources: {{one: {alike % 'one'}, other: {alike % 'other'}}}"
    found = list(islice(parse_traffic(text, "t.yaml").workload(1).starts(), 60))

    one, other = (
        [planned for planned in found if planned.tenant == tenant][:20] for tenant in ("one", "other")
    )

    assert not {planned.at_s for planned in one} & {planned.at_s for planned in other}
    assert [planned.prompt_tokens for planned in one] != [planned.prompt_tokens for planned in other]


def test_a_trace_as_a_source() -> None:
    """Cut, sped up, made heavier and spread, as its settings say; it asks as its source does."""
    text = "{kind: trace, trace: azure-conv, tenant: acme, for_s: 60%s}"

    plain, heavy, fast = (starts(text % more, 10_000) for more in ("", ", rate_factor: 3", ", time_scale: 2"))

    assert {planned.tenant for planned in plain} == {"acme"}
    assert len(heavy) == 3 * len(plain)
    assert len(fast) > len(plain)
    assert max(planned.at_s for planned in fast) < 60
    rounded = "{kind: trace, trace: %s, for_s: 10%s}"
    trace = shared("mooncake-fast25/conversation_trace.jsonl.gz")
    assert len({planned.at_s for planned in starts(rounded % (trace, ""))}) < 10
    assert len({planned.at_s for planned in starts(rounded % (trace, ", spread: true"))}) > 30


def test_recorded_sessions_as_a_source() -> None:
    """They start when the file says, and go on as they did."""
    found = starts(
        f"{{kind: recorded-sessions, trace: {shared('agentic-coding/sessions.jsonl.gz')},"
        " starts: {rate_per_s: 0.1, gaps: even}}",
        3,
    )

    assert [planned.at_s for planned in found] == [0.0, 10.0, 20.0]
    assert found[0].prefix_block_tokens == 64


def test_a_pool_as_a_source() -> None:
    """ServeGen's clients, from two files."""
    folder = shared("servegen")
    found = starts(
        "{kind: client-pool, rates: mm-image.client_rates.csv.gz, lengths: mm-image.client_lengths.csv.gz,"
        " tenant: pool, tenant_per_client: true, from_s: 3600, for_s: 600}",
        500,
        Path(folder),
    )

    assert len({planned.tenant for planned in found}) > 5
    assert max(planned.at_s for planned in found) < 600


@pytest.mark.parametrize(
    "text, said",
    [
        ("", ["t.yaml: is empty; it needs sources"]),
        ("sources: {}", ["t.yaml:1:1: needs at least one source"]),
        ("sources: {it: {}}", ["sources.it: lacks kind; it is one of open, clients, sessions, trace"]),
        ("sources: {it: {kind: opn}}", ['sources.it.kind: is not known; did you mean "open"?']),
        (
            "sources:\n  it: {kind: clients, clients: 0, lengths: {trace: azure-conv}}\n"
            "  other: {kind: trace, trace: azure-conv, for_s: 0, colour: red}",
            [
                "t.yaml:2:7: sources.it: clients of a closed loop are 1 to",
                "t.yaml:3:53: sources.other.colour: is not a setting",
            ],
        ),
        (
            "sources: {it: {kind: trace, trace: nowhere.csv}}",
            ["t.yaml: sources.it: trace nowhere.csv: No such file or directory"],
        ),
        (
            "sources: {it: {kind: trace, trace: azure-conv, from_s: 99999}}",
            ["t.yaml: sources.it: azure-conv: nothing arrives where from_s and for_s point"],
        ),
        (
            "sources: {it: {kind: sessions, starts: {rate_per_s: 1}, turns: {type: fixed, value: -1},"
            " new_tokens: {type: fixed, value: 1}, output_tokens: {type: fixed, value: 1}}}",
            ["sources.it.turns: fixed: value is a number at least 0, not -1"],
        ),
    ],
)
def test_a_file_that_cannot_be(text: str, said: list[str]) -> None:
    """Every mistake has its line and its place in the file."""
    with pytest.raises(ConfigurationError) as error:
        parse_traffic(text, "t.yaml")

    for problem in said:
        assert problem in str(error.value)


@pytest.mark.parametrize(
    "arrivals, said",
    [
        ("{}", "needs one of rate_per_s, points and daily; it has none of them"),
        ("{rate_per_s: 1, daily: {mean_per_s: 1}}", "it has rate_per_s, daily"),
        ("{rate_per_s: 0}", "rate_per_s: a rate that is 0 for ever"),
        ("{rate_per_s: .inf}", "rate_per_s: a rate is at least 0 requests per second, not inf"),
        ("{rate_per_s: 1, cv: 2}", "cv belongs to gaps: gamma or weibull"),
        ("{rate_per_s: 1, gaps: gamma}", "cv belongs to gaps: gamma or weibull"),
        ("{rate_per_s: 1, gaps: gamma, cv: -1}", "cv of gamma gaps is 0.001 to 10000, not -1"),
        ("{rate_per_s: 1, linear: true}", "linear and period_s belong to points"),
        ("{points: [{at_s: 1, per_s: 1}]}", "points of a rate begin at 0 s"),
        ("{daily: {mean_per_s: 1, swing: 2}}", "swing of a diurnal rate is 0 to 1, not 2"),
    ],
)
def test_arrivals_that_cannot_be(arrivals: str, said: str) -> None:
    """Each is said at its place."""
    with pytest.raises(ConfigurationError) as error:
        starts(f"{{kind: open, arrivals: {arrivals}, lengths: {{trace: azure-code}}}}")

    assert "sources.it.arrivals" in str(error.value)
    assert said in str(error.value)


@pytest.mark.parametrize(
    "lengths",
    [
        "{}",
        "{prompt_tokens: {type: fixed, value: 1}}",
        "{trace: azure-code, output_tokens: {type: fixed, value: 1}}",
    ],
)
def test_lengths_that_cannot_be(lengths: str) -> None:
    """Two laws, or a trace."""
    with pytest.raises(ConfigurationError, match="needs prompt_tokens and output_tokens, or trace alone"):
        starts(f"{{kind: open, arrivals: {{rate_per_s: 1}}, lengths: {lengths}}}")


def test_traffic_is_held_against_the_fleet() -> None:
    """A tenant, a class or a model that is not there is named at its line; aliases are models."""
    text = "sources:\n  it: {kind: trace, trace: azure-code, tenant: acme, class: %s, model: %s}"

    parse_traffic(text % ("batch", "small"), "t.yaml").check(parse(FLEET, "f.yaml"))
    with pytest.raises(ConfigurationError) as error:
        parse_traffic(text % ("bach", "big"), "t.yaml").check(parse(FLEET + "tenants: {acne: {}}", "f.yaml"))

    said = [problem.split(": ", 1)[1] for problem in error.value.problems]
    assert all(problem.startswith("t.yaml:2:") for problem in error.value.problems)
    assert said == [
        'sources.it.tenant: names the tenant "acme", which does not exist; did you mean "acne"?',
        'sources.it.class: names the class "bach", which does not exist; did you mean "batch"?',
        'sources.it.model: names the model "big", which does not exist; known are "llama", "small"',
    ]
