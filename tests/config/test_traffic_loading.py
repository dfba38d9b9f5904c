"""Does a traffic file ask for no more than the gateway would give?"""

from __future__ import annotations

import pytest

from tidegate.config import parse
from tidegate.config.traffic_loading import parse_traffic
from tidegate.core.errors import ConfigurationError

FLEET = """
pools:
  large: {replicas: [{url: "http://a:1"}]}
  small: {replicas: [{url: "http://b:1"}], aliases: [tiny]}
classes: {chat: {}, batch: {}}
tenants: {lab: {class: batch, pools: [small]}, acme: {class: chat}}
"""
POOL = (
    'sources.it.tenant: may not use the pool "large"; '
    "name another model here, or add it to the tenant's pools"
)
CLASS = 'sources.it.class: is "chat", which is not among the tenant\'s classes; add it there'


@pytest.mark.parametrize(
    ("asks", "said"),
    [
        ("tenant: lab, model: tiny, class: batch", []),
        ("tenant: acme, model: large, class: batch", []),
        ("tenant: lab, model: large", [POOL]),
        ("tenant: lab", [POOL]),  # which stands first
        ("tenant: lab, model: small, class: chat", [CLASS]),
    ],
)
def test_what_a_tenant_may_not_have(asks: str, said: list[str]) -> None:
    """A pool that the gateway would refuse, a class that it would not give: named at its line."""
    traffic = parse_traffic(f"sources:\n  it: {{kind: trace, trace: azure-code, {asks}}}", "t.yaml")
    found: list[str] = []
    try:
        traffic.check(parse(FLEET, "f.yaml"))
    except ConfigurationError as error:
        found = error.problems

    assert [problem.split(": ", 1)[1] for problem in found] == said
    assert all(problem.startswith("t.yaml:2:") for problem in found)


def test_a_trace_at_a_rate_that_no_memory_holds() -> None:
    """A factor that makes more rows than can be held is refused before any is made, with what to do."""
    text = "sources: {a: {kind: trace, trace: azure-code, rate_factor: 2000}}"

    with pytest.raises(ConfigurationError) as caught:
        parse_traffic(text, "t.yaml")

    (problem,) = caught.value.problems
    assert problem == (
        "t.yaml: sources.a: 2000 times the trace's rate makes 17,638,000 requests, "
        "and 10,000,000 are the most; take a shorter part of the trace, or a lower rate"
    )
