"""A run: what a request meets on its way, what follows it, and that the same seed gives the same run."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

import msgspec
import pytest

from tests.sim.build import ask, fleet, replica, run
from tidegate.core.errors import CallerError, ConfigurationError
from tidegate.core.messages import Evict, Finished, FirstToken, Progressed, Reject, Truncate
from tidegate.core.reasons import Reason
from tidegate.core.request import Usage
from tidegate.policy.settings import Deadlines, GateSettings, PredictionSettings, QueueSettings
from tidegate.sim.clients import ClientSettings
from tidegate.sim.faults import Crash, Errors
from tidegate.sim.network import Network
from tidegate.sim.samples import Sample
from tidegate.sim.scenario import Scenario
from tidegate.workload.requests import PlannedRequest


def test_a_request_meets_the_wire_twice_and_a_step_for_each_token() -> None:
    """Sent at 5.0, it is there at 5.125; its three tokens take a second each; the last is back at 8.25."""
    [record] = run(fleet(), [ask(5.0)]).records

    assert (record.arrived_at, record.dispatched_at) == (5.0, 5.0)
    assert (record.first_token_at, record.ended_at) == (6.25, 8.25)
    assert (record.prompt_tokens, record.output_tokens, record.status, record.reason) == (10, 3, 200, None)
    assert (record.replica, record.attempts, record.tenant, record.priority) == (
        "r0",
        1,
        "default",
        "default",
    )


def test_what_the_governor_hears_of_a_stream() -> None:
    """The first token, progress at doublings beyond what is reserved, the engine's own total at the end."""
    reserved = PredictionSettings(output_tokens=40)
    heard = run(fleet(pool={"prediction": reserved}), [ask(0.0, 150)]).heard(FirstToken, Progressed, Finished)

    assert heard == [
        (1.25, FirstToken(1, 1)),
        (64.25, Progressed(1, 1, 64)),
        (128.25, Progressed(1, 1, 128)),
        (150.25, Finished(1, 1, 200, Usage(prompt_tokens=10, output_tokens=150), 150)),
    ]


def test_a_whole_answer_shows_nothing_before_its_end() -> None:
    """The gateway sees neither the first token nor progress of an answer that is not streamed."""
    ran = run(fleet(), [ask(0.0, 150, streams=False)])

    assert [type(event) for _, event in ran.heard(FirstToken, Progressed, Finished)] == [Finished]
    assert ran.records[0].ttft_s is None


def test_max_tokens_bounds_the_output() -> None:
    """A client that wants at most two tokens gets two of the three that the model would have said."""
    assert run(fleet(), [ask(0.0, 3, max_tokens=2)]).records[0].output_tokens == 2


def test_what_cannot_run_waits_at_the_gateway() -> None:
    """With room for one, the second is sent when the first is back, and not queued in the engine."""
    first, second = run(fleet(pool={"gate": GateSettings(max_concurrency=1)}), [ask(0.0), ask(0.5)]).records

    assert first.ended_at == second.dispatched_at == 3.25
    assert second.ended_at == 6.5


def test_a_prompt_too_large_is_refused_by_whoever_knows_first() -> None:
    """The engine itself answers 400 until the gateway has asked it for its size; then the gateway refuses."""
    huge = ask(0.0, prompt_tokens=100_000)
    ran = run(fleet(), [huge, msgspec.structs.replace(huge, at_s=5.0)])
    by_engine, by_gateway = ran.records

    assert (by_engine.status, by_engine.reason, by_engine.ended_at) == (400, None, 0.25)
    assert (by_gateway.status, by_gateway.reason, by_gateway.ended_at) == (400, Reason.NEVER_FITS, 5.0)
    assert ran.outcome.counts.finished == ran.outcome.counts.rejected == 1


def test_the_total_deadline_truncates_at_what_was_said() -> None:
    """At 2.5 s two tokens have been said; then the engine stops."""
    ran = run(fleet(pool={"deadlines": Deadlines(ttft_s=9.0, total_s=2.5)}), [ask(0.0, 100), ask(5.0, 1)])
    record, _ = ran.records

    assert (record.ended_at, record.output_tokens, record.reason) == (2.5, 2, Reason.TOTAL_TIMEOUT)
    assert [at for at, _ in ran.said(Truncate)] == [2.5]
    assert ran.outcome.counts.finished == 2
    assert ran.outcome.replicas["r0"].running == 0


def test_a_deadline_before_the_first_token_aborts() -> None:
    """Nothing has been sent to the client: the engine is stopped, and the client told so."""
    ran = run(fleet(pool={"deadlines": Deadlines(ttft_s=1.0, total_s=9.0)}), [ask(0.0, 100), ask(1.5, 1)])
    [(at, evict), _] = ran.said(Evict)

    assert at == 1.0
    assert isinstance(evict, Evict)
    assert evict.reason is Reason.TTFT_TIMEOUT
    assert ran.outcome.counts.evicted == 2


# -- clients --------------------------------------------------------------------------------------

FULL = {"gate": GateSettings(max_concurrency=1), "queue": QueueSettings(max_requests=1)}


def test_a_refused_client_comes_back_when_told_to() -> None:
    """Told to wait a second (the drain is not known yet, jitter only adds), each retry is a new request."""
    ran = run(fleet(pool=FULL), [ask(0.0), ask(0.1), ask(0.2)])
    third = [record for record in ran.records if record.request_id >= 3]

    assert [record.reason for record in third] == [Reason.QUEUE_FULL, Reason.QUEUE_FULL, Reason.QUEUE_FULL]
    assert 1.2 < third[1].arrived_at < 1.31
    assert ran.outcome.retries == 2
    assert ran.outcome.counts.arrived == 5
    assert len(ran.said(Reject)) == 3


def test_a_client_that_obeys_nothing_backs_off_by_itself() -> None:
    """It comes back after half a second, then after one, each less up to a quarter."""
    scenario = fleet(pool=FULL, clients=ClientSettings(obeys=False))
    arrivals = [record.arrived_at for record in run(scenario, [ask(0.0), ask(0.1), ask(0.2)]).records][2:]

    assert 0.375 <= arrivals[1] - arrivals[0] <= 0.5
    assert 0.75 <= arrivals[2] - arrivals[1] <= 1.0


@pytest.mark.parametrize(
    ("clients", "left_at", "said"),
    [
        (ClientSettings(patience_s=1.0), 1.0, 0),  # the first token would come at 1.25
        (ClientSettings(patience_s=1.5), None, 50),
        (ClientSettings(hang_up_after_s=3.5), 3.5, 3),
        (ClientSettings(hang_up_after_s=50.5), None, 50),
    ],
)
def test_clients_leave(clients: ClientSettings, left_at: float | None, said: int) -> None:
    """Who leaves is not served on, and does not come back."""
    ran = run(fleet(clients=clients), [ask(0.0, 50), ask(45.0, 1)])
    record = ran.records[0]

    assert (record.reason, record.ended_at) == (
        (None, 50.25) if left_at is None else (Reason.CLIENT_GONE, left_at)
    )
    assert record.output_tokens == said
    assert (ran.outcome.replicas["r0"].counters.decode_tokens > 10) == (left_at is None)


class Thinker:
    """One client that asks three times, each two seconds after its answer."""

    def __init__(self) -> None:
        self.answered: list[tuple[float, bool]] = []

    def starts(self) -> Iterator[PlannedRequest]:
        yield ask(0.0)

    def after(self, planned: PlannedRequest, ended_at_s: float, ok: bool) -> PlannedRequest | None:
        self.answered.append((ended_at_s, ok))
        return ask(ended_at_s + 2.0) if len(self.answered) < 3 else None


def test_a_closed_loop_asks_again_when_it_has_been_answered() -> None:
    """What follows an answer comes from the workload, which is told when and how each request ended."""
    thinker = Thinker()
    records = run(fleet(), thinker).records

    assert [record.arrived_at for record in records] == [0.0, 5.25, 10.5]
    assert thinker.answered == [(3.25, True), (8.5, True), (13.75, True)]


def test_a_closed_loop_hears_of_a_failure_once_its_retries_are_spent() -> None:
    """The workload is not asked while a client is coming back."""
    thinker = Thinker()
    scenario = fleet(replica("r0", asked_at_s=1e9), clients=ClientSettings(max_retries=1))
    ran = run(scenario, thinker, for_s=1.0)

    assert [ok for _, ok in thinker.answered] == [False]
    assert [record.reason for record in ran.records] == [Reason.NO_REPLICA] * 2


def test_a_workload_does_not_go_back_in_time() -> None:
    """Requests that do not ascend are a fault of the workload, and are not put right in silence."""
    with pytest.raises(CallerError, match="asks at 1 s, and it is 2 s already"):
        run(fleet(), [ask(2.0), ask(1.0)])


def test_a_class_that_there_is_not_is_named() -> None:
    """A workload may name classes of its own; they must be the governor's."""
    with pytest.raises(ConfigurationError, match="asks for the class 'gold'; there are: default"):
        run(fleet(), [ask(0.0, priority="gold")])


# -- the run --------------------------------------------------------------------------------------


def test_nobody_comes_after_the_end_and_who_has_come_is_served() -> None:
    """`for_s` ends the arrivals, not the answers."""
    ran = run(fleet(), (ask(float(second)) for second in range(100)), for_s=2.5)

    assert [record.arrived_at for record in ran.records] == [0.0, 1.0, 2.0]
    assert ran.outcome.counts.finished == 3
    assert ran.outcome.counts.in_flight == 0
    assert ran.outcome.simulated_s >= max(record.ended_at for record in ran.records)


def weather(*faults: Crash | Errors) -> Scenario:
    """Three replicas that are hardly enough, clients without patience, and faults."""
    return fleet(
        replica("r0"),
        replica("r1"),
        replica("r2"),
        pool={"gate": GateSettings(max_concurrency=3), "queue": QueueSettings(max_requests=5)},
        clients=ClientSettings(hang_up_after_s=40.0),
        faults=faults,
    )


def requests() -> list[PlannedRequest]:
    """Two hundred of them, one each 1.3 s, of 1 to 20 tokens."""
    return [ask(1.3 * index, 1 + index * 7 % 20) for index in range(200)]


def test_the_same_seed_gives_the_same_run_to_the_byte() -> None:
    """And another seed another one, with the same arrivals."""
    flaky = weather(Errors(replica="r0", at_s=0.0, share=0.3))
    runs = [msgspec.json.encode(run(flaky, requests(), seed).records) for seed in (1, 1, 2)]

    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


def test_one_more_fault_moves_nobody_elses_dice() -> None:
    """Which requests a partial failure strikes on one replica does not depend on another replica's crash."""
    flaky = Errors(replica="r0", at_s=0.0, share=0.3)
    runs = [
        run(weather(flaky, *more), requests()[:20])
        for more in ([], [Errors(replica="r1", at_s=0.0, share=0.0)])
    ]

    assert runs[0].records == runs[1].records


def test_samples_tell_how_things_stand() -> None:
    """A sample each two seconds: queues, batches, the tokens of each tenant, refusals by reason."""
    samples: list[Sample] = []
    scenario = fleet(pool=FULL, clients=ClientSettings(max_retries=0))
    run(scenario, [ask(0.0, tenant="a"), ask(0.1), ask(0.2)], sample_s=2.0, on_sample=samples.append)

    assert [sample.at_s for sample in samples] == [0.0, 2.0, 4.0, 6.0]
    assert [sample.pools["m"].queued for sample in samples] == [0, 1, 0, 0]
    assert [sample.replicas["r0"].running for sample in samples] == [0, 1, 1, 1]
    assert [sample.tenant_tokens for sample in samples] == [{}, {"default": 0}, {"a": 13}, {}]
    assert [sample.refusals for sample in samples] == [{}, {"queue_full": 1}, {}, {}]
    assert 0 < samples[1].replicas["r0"].kv_used_ratio < 0.001


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"network": Network(delay_s=-1.0)}, "network.delay_s: a delay is from 0 s on, not -1"),
        ({"network": Network(scrape_delay_s=inf)}, "network.scrape_delay_s: a delay is from 0 s on, not inf"),
        ({"clients": ClientSettings(max_retries=-1)}, "clients.max_retries: is at least 0, not -1"),
        ({"clients": ClientSettings(patience_s=0.0)}, "clients.patience_s: is a time above 0 s, not 0"),
        ({"callers": {"a": "gold"}}, "callers.a: no class is named 'gold'; there are: default"),
        ({"default_class": "gold"}, "default_class: no class is named 'gold'; there are: default"),
        ({"models": {"x": "y"}}, "models.x: no pool is named 'y'; there are: m"),
        ({"bytes_per_token": 0.0}, "bytes_per_token: is above 0, not 0"),
        ({"pools": {}}, "pools: a scenario has at least one"),
        ({"pools": {"n": ()}}, "pools.n: is not a pool of the governor; there are: m"),
        (
            {"pools": {"m": (replica("a"), replica("a"))}},
            "pools.m.a: pool m has a replica of that name already",
        ),
        ({"pools": {"m": (replica("a", weight=0.0),)}}, "pools.m.a.weight: is above 0, not 0"),
        ({"pools": {"m": (replica("a", asked_at_s=inf),)}}, "pools.m.a.asked_at_s: is from 0 s on, not inf"),
        (
            {"faults": (Crash(replica="z", at_s=0.0),)},
            "fault crash: no replica is named 'z'; there are: r0",
        ),
        (
            {"faults": (Crash(replica="r0", at_s=-1.0, restart_after_s=0.0),)},
            "fault crash of 'r0': at_s is an instant from 0 s on, not -1\n"
            "fault crash of 'r0': restart_after_s is a time above 0 s, not 0",
        ),
        (
            {"faults": (Errors(replica="r0", at_s=0.0, share=2.0, status=404),)},
            "fault errors of 'r0': share is from 0 to 1, not 2\n"
            "fault errors of 'r0': status is one that blames the replica (429 or 5xx), not 404",
        ),
    ],
)
def test_a_scenario_that_cannot_be_is_refused(wrong: dict[str, object], said: str) -> None:
    """The message says which value, and what may stand there."""
    with pytest.raises(ConfigurationError) as caught:
        run(msgspec.structs.replace(fleet(), **wrong), [])

    assert str(caught.value) == said
