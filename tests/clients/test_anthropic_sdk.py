"""Does the official Anthropic SDK take the gateway for the real thing, in success and in refusal?"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import pytest
from anthropic import APIStatusError, AuthenticationError, NotFoundError, RateLimitError
from anthropic.types import MessageParam

from tests.emulator_process import EmulatorProcess
from tests.gateway_process import GatewayProcess
from tests.sdk import anthropic_at

KEY = "tg-a-key-that-only-tests-know"
ASKED: list[MessageParam] = [{"role": "user", "content": "How high is the tide?"}]


def error_type(error: APIStatusError) -> str:
    """The `type` in Anthropic's error envelope."""
    assert isinstance(error.body, dict)
    assert error.body["type"] == "error"
    return str(error.body["error"]["type"])


def test_a_message(engine: EmulatorProcess, front: GatewayProcess) -> None:
    """A message has text, a stop reason and the engine's usage."""
    with anthropic_at(front.base_url) as client:
        message = client.messages.create(model=engine.model, messages=ASKED, max_tokens=5)

    assert message.content[0].type == "text"
    assert message.content[0].text
    assert (message.stop_reason, message.usage.output_tokens) == ("max_tokens", 5)
    assert message.usage.input_tokens > 0


def test_a_streamed_message(engine: EmulatorProcess, front: GatewayProcess) -> None:
    """Its events, in Anthropic's own order, add up to the same."""
    with (
        anthropic_at(front.base_url) as client,
        client.messages.stream(model=engine.model, messages=ASKED, max_tokens=5) as events,
    ):
        kinds = [event.type for event in events]
        message = events.get_final_message()

    assert (kinds[0], kinds[-1]) == ("message_start", "message_stop")
    assert (message.stop_reason, message.usage.output_tokens) == ("max_tokens", 5)


def test_refusals_come_in_anthropics_envelope(
    engine: EmulatorProcess, gateway: Callable[..., GatewayProcess]
) -> None:
    """Its SDK finds its own error types: wrong key, unknown model, exhausted quota."""
    digest = hashlib.sha256(KEY.encode()).hexdigest()
    front = gateway(
        config={
            "pools": {engine.model: {"replicas": [{"url": engine.url}]}},
            "tenants": {
                "crew": {
                    "keys": {"mate": {"sha256": digest}},
                    "limits": {"requests_per_minute": 60, "burst_s": 1},
                }
            },
        }
    )

    with anthropic_at(front.base_url, api_key="tg-wrong") as client:
        with pytest.raises(AuthenticationError) as wrong_key:
            client.messages.create(model=engine.model, messages=ASKED, max_tokens=1)
        assert error_type(wrong_key.value) == "authentication_error"

    with anthropic_at(front.base_url, api_key=KEY) as client:
        with pytest.raises(NotFoundError) as unknown_model:
            client.messages.create(model="no-such-model", messages=ASKED, max_tokens=1)
        assert error_type(unknown_model.value) == "not_found_error"

        client.messages.create(model=engine.model, messages=ASKED, max_tokens=1)
        with pytest.raises(RateLimitError) as exhausted:
            client.messages.create(model=engine.model, messages=ASKED, max_tokens=1)
        assert error_type(exhausted.value) == "rate_limit_error"
        assert int(exhausted.value.response.headers["retry-after"]) >= 1


def test_a_message_cut_at_its_deadline_is_well_formed(
    slow_engine: EmulatorProcess, gateway: Callable[..., GatewayProcess]
) -> None:
    """Total expiry ends a stream as a length limit would: the SDK reads it to the end, and no error."""
    front = gateway(
        config={
            "pools": {
                slow_engine.model: {
                    "replicas": [{"url": slow_engine.url}],
                    "deadlines": {"ttft_s": 1.5, "total_s": 1.5},
                }
            }
        }
    )

    with (
        anthropic_at(front.base_url) as client,
        client.messages.stream(model=slow_engine.model, messages=ASKED, max_tokens=5000) as events,
    ):
        message = events.get_final_message()

    assert message.stop_reason == "max_tokens"
    assert message.content[0].type == "text"
    assert message.content[0].text
