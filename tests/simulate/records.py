"""Records as a run could have left them, for tests of what is made of them."""

from __future__ import annotations

from hypothesis import strategies as st

from tidegate.core.reasons import Reason
from tidegate.core.records import RequestRecord


def record(at: float = 0.0, *, number: int = 0, **changes: object) -> RequestRecord:
    """An answered request: 0.5 s to its first token, then 9 tokens in 0.9 s."""
    values: dict[str, object] = {
        "request_id": number,
        "tenant": "acme",
        "priority": "chat",
        "pool": "llama",
        "replica": "a",
        "attempts": 1,
        "arrived_at": at,
        "dispatched_at": at + 0.1,
        "first_token_at": at + 0.5,
        "ended_at": at + 1.4,
        "prompt_tokens": 100,
        "output_tokens": 10,
    }
    return RequestRecord(**(values | changes))  # type: ignore[arg-type]


def refused(at: float = 0.0, *, number: int = 0, **changes: object) -> RequestRecord:
    """A request that waited a second and was then refused."""
    values: dict[str, object] = {
        "replica": "",
        "attempts": 0,
        "dispatched_at": None,
        "first_token_at": None,
        "ended_at": at + 1.0,
        "output_tokens": 0,
        "reason": Reason.QUEUE_TIMEOUT,
        "status": 503,
    }
    return record(at, number=number, **(values | changes))


_DELAYS = st.floats(0, 10)
_NAMES = st.sampled_from(["acme", "lab", "zoo"])


@st.composite
def records(draw: st.DrawFn) -> RequestRecord:
    """Any request that can be: never dispatched, cut before or after its first token, answered."""
    arrived_at = draw(st.floats(0, 100))
    dispatched_at = draw(st.none() | _DELAYS.map(lambda delay: arrived_at + delay))
    first_token_at = (
        None if dispatched_at is None else draw(st.none() | _DELAYS.map(lambda delay: dispatched_at + delay))
    )
    latest = max(each for each in (arrived_at, dispatched_at, first_token_at) if each is not None)
    return RequestRecord(
        request_id=draw(st.integers(0, 2**40)),
        tenant=draw(_NAMES),
        priority=draw(st.sampled_from(["chat", "batch"])),
        pool=draw(st.sampled_from(["llama", "qwen"])),
        replica="" if dispatched_at is None else draw(st.sampled_from(["a", "b"])),
        attempts=0 if dispatched_at is None else draw(st.integers(1, 3)),
        arrived_at=arrived_at,
        dispatched_at=dispatched_at,
        first_token_at=first_token_at,
        ended_at=latest + draw(_DELAYS),
        prompt_tokens=draw(st.integers(0, 10**6)),
        output_tokens=0 if first_token_at is None else draw(st.integers(0, 1_000)),
        charged_credits=draw(st.floats(0, 1e6)),
        reason=draw(st.none() | st.sampled_from(list(Reason))),
        status=draw(st.sampled_from([200, 400, 499, 503])),
    )
