"""What a gateway is told of a request that a workload has planned."""

from __future__ import annotations

from tests.sim.build import ask, fleet, run
from tidegate.core.messages import Arrived


def test_a_prompt_has_the_bytes_that_it_says() -> None:
    """Its own where it names them, else as many as its tokens have in that scenario."""
    found = run(
        fleet(bytes_per_token=3.0),
        [ask(0.0, prompt_tokens=10), ask(1.0, prompt_tokens=10, prompt_bytes=77)],
    )
    requests = [event.request for _, event in found.heard(Arrived) if isinstance(event, Arrived)]

    assert [(request.prompt_bytes, request.body_bytes) for request in requests] == [(30, 30), (77, 77)]
