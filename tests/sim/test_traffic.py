"""What a gateway is told of a request that a workload has planned."""

from __future__ import annotations

from tests.sim.build import ask, fleet, run
from tidegate.core.messages import Arrived
from tidegate.policy.settings import GateSettings, LimitSettings, QueueSettings, TenantSettings
from tidegate.sim.clients import ClientSettings


def test_a_prompt_has_the_bytes_that_it_says() -> None:
    """Its own where it names them, else as many as its tokens have in that scenario."""
    found = run(
        fleet(bytes_per_token=3.0),
        [ask(0.0, prompt_tokens=10), ask(1.0, prompt_tokens=10, prompt_bytes=77)],
    )
    requests = [event.request for _, event in found.heard(Arrived) if isinstance(event, Arrived)]

    assert [(request.prompt_bytes, request.body_bytes) for request in requests] == [(30, 30), (77, 77)]


def test_the_last_arrival_is_no_retry() -> None:
    """Clients that come back for longer than anybody new comes do not move it."""
    narrow = {"queue": QueueSettings(max_requests=1), "gate": GateSettings(max_concurrency=1)}
    found = run(fleet(pool=narrow), [ask(at_s) for at_s in (0.0, 0.0, 0.0, 1.0)])
    arrived = [at for at, _ in found.heard(Arrived)]

    assert found.outcome.retries > 0
    assert found.outcome.last_arrival_at == 1.0 < arrived[-1]


def test_a_tenants_key_has_its_limits() -> None:
    """What the key of a tenant may not is refused, and another tenant's requests are not."""
    limits = TenantSettings(keys={"k": LimitSettings(max_in_flight=1)})
    work = [ask(0.0, tenant=tenant) for tenant in ("a", "a", "b", "b")]
    scenario = fleet(
        governor={"tenants": {"a": limits, "b": limits}},
        keys={"a": "k"},
        clients=ClientSettings(max_retries=0),
    )
    ended = run(scenario, work).records

    assert [(each.tenant, each.key, each.reason is None) for each in ended] == [
        ("a", "k", True),
        ("a", "k", False),
        ("b", "", True),
        ("b", "", True),
    ]
