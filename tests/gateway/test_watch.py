"""The log at 3 a.m.: what changed, once, and what the fleet left unanswered."""

from __future__ import annotations

import pytest

from tests.gateway.fake_engine import answer, fake_engine
from tests.gateway.gateway_in_process import configured, run, serving, until
from tests.gateway.http_client import chat
from tests.policy.build import arrive, ended, govern, tell
from tidegate.core.messages import DrainAsked, Event, Probed
from tidegate.gateway.watch import SUM_UP_EVERY, Watch
from tidegate.policy.governor import Governor
from tidegate.policy.settings import QueueSettings


def watched(governor: Governor, at: list[float]) -> Watch:
    """A watch whose clock is the only entry of `at`."""
    return Watch(governor, lambda: at[0])


def test_what_becomes_of_a_replica_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    """Down and draining, and back: one line each, none while nothing changes."""
    caplog.set_level("INFO", "tidegate.watch")
    governor, at = govern(replicas=2), [0.0]
    watch = watched(governor, at)

    steps: list[tuple[float, list[Event], list[str]]] = [
        (1.0, [], []),
        (2.0, [Probed(replica="r0", ok=False)] * 3, ["replica r0 is down, was up; 0 in flight"]),
        (3.0, [], []),
        (4.0, [DrainAsked(replica="r1")], ["replica r1 is draining, was up; 0 in flight"]),
        (5.0, [Probed(replica="r0", ok=True)] * 2, ["replica r0 is up, was down; 0 in flight"]),
        (6.0, [DrainAsked(replica="r1", drain=False)], ["replica r1 is up, was draining; 0 in flight"]),
    ]
    for now, events, said in steps:
        caplog.clear()
        tell(governor, now, *events)
        at[0] = now
        watch.look()
        assert [record.getMessage() for record in caplog.records] == said, now


def test_what_the_fleet_left_unanswered_is_summed_up(caplog: pytest.LogCaptureFixture) -> None:
    """One line for ten looks, with the reasons; nothing when nothing was refused."""
    governor, at = govern(replicas=1, pool={"queue": QueueSettings(max_requests=2)}), [0.0]
    watch = watched(governor, at)
    for request_id in range(6):  # one runs, two wait, three are refused
        arrive(governor, 1.0, request_id)
    for record in governor.take_ended():
        watch.observe(record)

    for _ in range(2 * SUM_UP_EVERY):
        watch.look()

    assert [record.getMessage() for record in caplog.records] == [
        "in the last 10 s the fleet left unanswered: queue_full 3"
    ]
    assert ended(governor) == []


def test_one_bad_probe_of_a_discovered_engine_is_no_outage() -> None:
    """What a replica serves stays known while the governor, not a single probe, decides whether it lives."""

    async def main() -> None:
        often = {"health": {"interval_s": 0.05, "fall": 1000, "rise": 1}, "discover": True}
        async with fake_engine(answer()) as engine:
            engine.pages["/v1/models"] = (200, b'{"data":[{"id":"one"}]}')
            async with serving(configured(engine, pool=often)) as gateway:
                await until(lambda: gateway.service.not_ready() is None)
                engine.healthy = False
                seen = engine.probes
                await until(lambda: engine.probes >= seen + 3)
                assert (await gateway.ask(chat(model="one"))).status == 200

                engine.healthy = True
                engine.pages["/v1/models"] = (200, b'{"data":[{"id":"another"}]}')
                models = gateway.service.prober.models
                await until(lambda: [list(listed) for listed in models.values()] == [["another"]])
                assert (await gateway.ask(chat(model="another"))).status == 200
                assert (await gateway.ask(chat(model="one"))).status == 404

    run(main())
