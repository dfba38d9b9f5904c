"""Several sources make one workload, and none moves another."""

from __future__ import annotations

from itertools import islice
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.core.errors import ConfigurationError
from tidegate.workload.dice import dice
from tidegate.workload.laws.arrivals import Constant, Poisson, Renewal
from tidegate.workload.laws.gaps import Gamma
from tidegate.workload.laws.lengths import Independent
from tidegate.workload.laws.numbers import Exponential, Fixed
from tidegate.workload.requests import OpenLoop, PlannedRequest, Sender, Workload, replayed, sent
from tidegate.workload.sources.closed_loop import ClosedLoop, ClosedLoopSettings
from tidegate.workload.sources.mixes import Mix
from tidegate.workload.sources.sessions import Sessions, SessionSettings
from tidegate.workload.traces.rows import TraceRow

LENGTHS = Independent(Exponential(100), Exponential(10))


def open_part(seed: int, name: str, arrivals: Poisson | Renewal) -> OpenLoop:
    """A tenant that waits for nothing."""
    return OpenLoop(
        sent(
            Sender(tenant=name),
            arrivals,
            LENGTHS.lengths(dice(seed, name, "lengths")),
            dice(seed, name, "arrivals"),
        )
    )


def parts(seed: int) -> dict[str, Workload]:
    """One of each kind."""
    talk = SessionSettings(
        starts=Poisson(1),
        turns=Fixed(3),
        new_tokens=Fixed(9),
        output_tokens=Fixed(9),
        think_s=Exponential(2),
        sender=Sender(tenant="talk"),
    )
    loop = ClosedLoopSettings(
        clients=3, lengths=LENGTHS, think_s=Exponential(2), sender=Sender(tenant="loop")
    )
    rows = [TraceRow(float(at_s), 100, 5, session=at_s % 2) for at_s in range(9)]
    return {
        "chat": open_part(seed, "chat", Poisson(2)),
        "batch": open_part(seed, "batch", Renewal.steady(1, Gamma(3))),
        "talk": Sessions(talk, seed, "talk"),
        "loop": ClosedLoop(loop, seed, "loop"),
        "trace": OpenLoop(replayed(rows, dice(seed, "trace"), name="trace")),
    }


def run(workload: Workload, until_s: float, took_s: float = 1.5) -> list[PlannedRequest]:
    """All requests before an instant, in order of time, if each answer takes so long."""
    starts = workload.starts()
    upcoming = next(starts, None)
    waiting: list[PlannedRequest] = []
    found: list[PlannedRequest] = []
    while True:
        waiting.sort(key=lambda planned: planned.at_s)
        if upcoming is not None and (not waiting or upcoming.at_s <= waiting[0].at_s):
            planned, upcoming = upcoming, next(starts, None)
        elif waiting:
            planned = waiting.pop(0)
        else:
            return found
        if planned.at_s >= until_s:
            return found
        found.append(planned)
        if (following := workload.after(planned, planned.at_s + took_s, True)) is not None:
            waiting.append(following)


@given(
    st.integers(0, 2**32), st.sets(st.sampled_from(["chat", "batch", "talk", "loop", "trace"]), min_size=1)
)
def test_a_source_does_the_same_in_any_company(seed: int, company: set[str]) -> None:
    """Its requests are those that it makes alone, in all that they are."""
    together = run(Mix([parts(seed)[name] for name in sorted(company)]), 8.0)

    assert [planned.at_s for planned in together] == sorted(planned.at_s for planned in together)
    for name in sorted(company):
        tenant = "default" if name == "trace" else name
        alone = run(parts(seed)[name], 8.0)
        assert [planned for planned in together if planned.tenant == tenant] == alone


@given(st.integers(0, 2**32))
def test_a_mix_is_a_function_of_its_seed(seed: int) -> None:
    """The same seed makes the same requests; sessions and blocks of different sources never meet."""
    first, second = (run(Mix(list(parts(seed).values())), 8.0) for _ in range(2))

    assert first == second
    by_tenant: dict[str, set[int | None]] = {}
    for planned in first:
        by_tenant.setdefault(planned.tenant, set()).add(planned.session)
    assert not by_tenant["talk"] & by_tenant["loop"]


def test_a_mix_is_lazy_and_in_the_order_of_its_parts() -> None:
    """Endless parts are merged as they are asked for; of equal instants the first part's comes first."""
    steady = [
        OpenLoop(sent(Sender(tenant=name), Constant(1), LENGTHS.lengths(dice(0, name)), dice(0)))
        for name in ("b", "a")
    ]

    starts = list(islice(Mix(steady).starts(), 6))

    assert [planned.tenant for planned in starts] == ["b", "a"] * 3
    assert starts[-1].at_s < inf


def test_mixes_that_cannot_be() -> None:
    """There is a part, and two that number sessions have two names."""
    with pytest.raises(ConfigurationError, match="at least one source"):
        Mix([])
    loop = ClosedLoopSettings(clients=1, lengths=LENGTHS)
    with pytest.raises(ConfigurationError, match="two sources of a mix have the same name"):
        list(Mix([ClosedLoop(loop, 0, "a"), ClosedLoop(loop, 0, "a")]).starts())


def test_a_request_without_a_source() -> None:
    """What is nobody's has no next."""
    mix = Mix(list(parts(0).values()))

    assert mix.after(PlannedRequest(at_s=0, prompt_tokens=1, output_tokens=1), 1.0, True) is None
    assert mix.after(PlannedRequest(at_s=0, prompt_tokens=1, output_tokens=1, session=9), 1.0, True) is None
