"""Progress that is not told would have changed nothing: who is told all of it decides the same."""

from __future__ import annotations

import msgspec
from hypothesis import event, given, settings
from hypothesis import strategies as st

from tests.sim.build import Run, Watched, ask, fleet, replica, run
from tidegate.core.messages import FIRST_PROGRESS_TOKENS, Command, Dispatch, Progressed
from tidegate.policy.settings import (
    ClassSettings,
    Deadlines,
    GateSettings,
    LimitSettings,
    PredictionSettings,
    QueueSettings,
)
from tidegate.sim.clients import ClientSettings
from tidegate.sim.faults import Crash
from tidegate.sim.scenario import Scenario
from tidegate.workload.requests import PlannedRequest

PROMPTS, OUTPUTS = (10, 150), (1, 20, 32, 33, 64, 100, 300)


class ToldAll(Watched):
    """A governor that hears of every mark."""

    def _checked(self, commands: list[Command], now: float) -> list[Command]:
        return super()._checked([_from_the_first(command) for command in commands], now)


def _from_the_first(command: Command) -> Command:
    if isinstance(command, Dispatch):
        return msgspec.structs.replace(command, progress_from_tokens=FIRST_PROGRESS_TOKENS)
    return command


REQUESTS = st.lists(
    st.builds(
        ask,
        st.integers(0, 200).map(float),
        output_tokens=st.sampled_from(OUTPUTS),
        prompt_tokens=st.sampled_from(PROMPTS),
        tenant=st.sampled_from(["a", "b", "c"]),
        max_tokens=st.sampled_from([None, None, 50, 128]),
        streams=st.sampled_from([True, True, True, False]),
    ),
    max_size=14,
).map(lambda asked: sorted(asked, key=lambda each: each.at_s))


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    """Two replicas of a token a second: room, queue and limits so small that what progress says matters."""
    pool = {
        "prediction": PredictionSettings(output_tokens=draw(st.sampled_from([1.0, 31.5, 32.0, 40.0, 256.0]))),
        "gate": GateSettings(
            max_concurrency=draw(st.sampled_from([1, 2, 4])), kv_tokens=draw(st.sampled_from([300, 1_000]))
        ),
        "queue": QueueSettings(max_requests=draw(st.sampled_from([1, 3, 20]))),
        "deadlines": Deadlines(ttft_s=draw(st.sampled_from([50.0, 1e6])), total_s=250.0),
    }
    limits = LimitSettings(tokens_per_minute=draw(st.sampled_from([60.0, 600.0])), burst_s=60.0)
    governor = {
        "classes": {name: ClassSettings(max_wait_s=1e3, guaranteed_share=0.2) for name in ("high", "low")},
        "limits": limits if draw(st.booleans()) else None,
    }
    patience = ClientSettings(hang_up_after_s=draw(st.sampled_from([None, 90.0])), max_retries=1)
    crash = Crash(replica="r0", at_s=draw(st.sampled_from([70.0, 120.0])), restart_after_s=20.0)
    return fleet(
        replica("r0"),
        replica("r1"),
        pool=pool,
        governor=governor,
        clients=patience,
        faults=(crash,) if draw(st.booleans()) else (),
        callers={"a": "high", "b": "low", "c": "low"},
    )


def _said(ran: Run) -> list[tuple[float, Command]]:
    return [(at, _from_the_first(command)) for at, command in ran.watched.commands]


@settings(max_examples=60)
@given(scenarios(), REQUESTS, st.integers(0, 3))
def test_marks_below_what_is_reserved_change_nothing(
    scenario: Scenario, asked: list[PlannedRequest], seed: int
) -> None:
    """The same commands at the same instants, and the same records, with every mark told and without."""
    told = run(scenario, asked, seed)
    told_all = run(scenario, asked, seed, watch=ToldAll)
    left_out = len(told_all.heard(Progressed)) - len(told.heard(Progressed))
    event("some were left out" if left_out else "none were left out")
    event("some were told" if told.heard(Progressed) else "none were told")

    assert left_out >= 0
    assert _said(told) == _said(told_all)
    assert told.records == told_all.records
