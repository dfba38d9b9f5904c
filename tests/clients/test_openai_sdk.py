"""Does the official OpenAI SDK take the gateway for the real thing, in success and in refusal?"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from typing import Any

import pytest
from openai import (
    AsyncOpenAI,
    AuthenticationError,
    BadRequestError,
    NotFoundError,
    OpenAI,
    PermissionDeniedError,
    RateLimitError,
)
from openai.types.responses import Response

from tests.emulator_process import EmulatorProcess
from tests.gateway_process import GatewayProcess
from tests.raw_http import eventually
from tests.sdk import TIMEOUT_S, chat, complete, openai_at

KEY = "tg-a-key-that-only-tests-know"
ENDLESS = {"max_tokens": 5000, "extra_body": {"ignore_eos": True}}
"""An answer that nobody waits for."""
LENGTHY = "Tell the tides of all coasts."
"""The emulator has much to say to this: its answers' lengths follow from their prompts."""


def fleet(engine: EmulatorProcess, **pool: Any) -> dict[str, Any]:
    """The `pools` of a configuration with one replica."""
    return {engine.model: {"replicas": [{"url": engine.url}], **pool}}


@pytest.mark.parametrize("stream", [False, True])
def test_chat(engine: EmulatorProcess, front: GatewayProcess, stream: bool) -> None:
    """A chat answer has text, a finish reason and the engine's usage."""
    with openai_at(front.base_url) as client:
        answer = chat(client, engine.model, "How high is the tide?", stream=stream, max_tokens=5)

    assert answer.text
    assert (answer.finish_reason, answer.output_tokens) == ("length", 5)
    assert answer.prompt_tokens > 0


@pytest.mark.parametrize("stream", [False, True])
def test_completions(engine: EmulatorProcess, front: GatewayProcess, stream: bool) -> None:
    """So has a completion, and token ids are counted exactly."""
    with openai_at(front.base_url) as client:
        answer = complete(client, engine.model, [1, 2, 3, 4, 5, 6, 7], stream=stream, max_tokens=5)

    assert answer.text
    assert (answer.finish_reason, answer.prompt_tokens, answer.output_tokens) == ("length", 7, 5)


def test_the_stream_helper(engine: EmulatorProcess, front: GatewayProcess) -> None:
    """The SDK's accumulating helper, stricter than a plain stream, puts a whole answer together."""
    with (
        openai_at(front.base_url) as client,
        client.chat.completions.stream(
            model=engine.model,
            messages=[{"role": "user", "content": "How high is the tide?"}],
            stream_options={"include_usage": True},
        ) as events,
    ):
        kinds = {event.type for event in events}
        final = events.get_final_completion()

    assert kinds >= {"chunk", "content.delta", "content.done"}
    assert final.choices[0].finish_reason == "stop"
    assert final.choices[0].message.content
    assert final.usage is not None


@pytest.mark.parametrize("stream", [False, True])
def test_responses(engine: EmulatorProcess, front: GatewayProcess, stream: bool) -> None:
    """The responses API, whole or as events, has text and the engine's usage."""
    with openai_at(front.base_url) as client:
        response = respond(client, engine.model, stream=stream, max_output_tokens=5)

    assert response.output_text
    assert response.usage is not None
    assert response.usage.output_tokens == 5


def respond(client: OpenAI, model: str, *, stream: bool, **options: Any) -> Response:
    """The final response; of a stream, what its last event carries."""
    if not stream:
        whole: Response = client.responses.create(model=model, input="ebb", **options)
        return whole
    with client.responses.create(model=model, input="ebb", stream=True, **options) as events:
        *_, last = list(events)
    assert last.type in ("response.completed", "response.incomplete")
    final: Response = last.response
    return final


def test_models_are_listed(engine: EmulatorProcess, front: GatewayProcess) -> None:
    """The models list names what the fleet serves."""
    with openai_at(front.base_url) as client:
        assert [model.id for model in client.models.list()] == [engine.model]


def test_many_at_once(engine: EmulatorProcess, front: GatewayProcess) -> None:
    """Concurrent streams over shared connections stay apart."""

    async def lengths() -> list[int]:
        async with AsyncOpenAI(base_url=front.base_url + "/v1", api_key="none", max_retries=0) as client:
            return await asyncio.gather(*(one(client, n) for n in range(1, 21)))

    async def one(client: AsyncOpenAI, max_tokens: int) -> int:
        usage = 0
        async with await client.completions.create(
            model=engine.model,
            prompt="ebb",
            max_tokens=max_tokens,
            stream=True,
            stream_options={"include_usage": True},
            extra_body={"ignore_eos": True},
        ) as chunks:
            async for chunk in chunks:
                usage = chunk.usage.completion_tokens if chunk.usage else usage
        return usage

    assert asyncio.run(lengths()) == list(range(1, 21))


def test_a_client_that_leaves_is_forgotten(engine: EmulatorProcess, front: GatewayProcess) -> None:
    """After `stream.close()` nothing of the request is left in the gateway."""
    with openai_at(front.base_url) as client:
        chunks = client.completions.create(model=engine.model, prompt="ebb", stream=True, **ENDLESS)  # type: ignore[call-overload]
        next(iter(chunks))
        assert front.status()["in_flight"] == 1
        chunks.close()

    eventually(lambda: front.status()["in_flight"] == 0, "nothing is in flight")


def test_an_unknown_model(front: GatewayProcess) -> None:
    """A model that nobody serves is the SDK's NotFoundError, with OpenAI's own code."""
    with openai_at(front.base_url) as client, pytest.raises(NotFoundError) as refusal:
        chat(client, "no-such-model", "hello", stream=False)

    assert refusal.value.code == "model_not_found"
    assert "no-such-model" in refusal.value.message


def test_a_malformed_request(engine: EmulatorProcess, front: GatewayProcess) -> None:
    """A bound that is no bound is a BadRequestError that names the parameter."""
    with openai_at(front.base_url) as client, pytest.raises(BadRequestError) as refusal:
        chat(client, engine.model, "hello", stream=False, max_tokens=-1)

    assert refusal.value.param == "max_tokens"


def test_keys_decide_who_may_use_what(
    engine: EmulatorProcess, gateway: Callable[..., GatewayProcess]
) -> None:
    """A wrong key is an AuthenticationError; a right one for another model a PermissionDeniedError."""
    digest = hashlib.sha256(KEY.encode()).hexdigest()
    front = gateway(
        config={
            "pools": fleet(engine) | {"other": {"replicas": [{"url": engine.url, "model": engine.model}]}},
            "tenants": {"crew": {"pools": [engine.model], "keys": {"mate": {"sha256": digest}}}},
        }
    )

    with (
        openai_at(front.base_url, api_key="tg-wrong") as client,
        pytest.raises(AuthenticationError) as refusal,
    ):
        chat(client, engine.model, "hello", stream=False, max_tokens=1)
    assert refusal.value.code == "invalid_api_key"

    with openai_at(front.base_url, api_key=KEY) as client:
        assert chat(client, engine.model, "hello", stream=False, max_tokens=1).output_tokens == 1
        assert [model.id for model in client.models.list()] == [engine.model]
        with pytest.raises(PermissionDeniedError):
            chat(client, "other", "hello", stream=False, max_tokens=1)


def test_a_quota_is_a_rate_limit_that_names_its_wait(
    engine: EmulatorProcess, gateway: Callable[..., GatewayProcess]
) -> None:
    """An exhausted quota is a RateLimitError with Retry-After, and the SDK's own retry heeds it."""
    front = gateway(
        config={"pools": fleet(engine), "limits": {"requests_per_minute": 60, "burst_s": 1}},
    )

    with openai_at(front.base_url) as client:
        raw = client.completions.with_raw_response.create(model=engine.model, prompt="ebb", max_tokens=1)
        assert raw.headers["x-ratelimit-remaining-requests"] == "0"
        with pytest.raises(RateLimitError) as refusal:
            complete(client, engine.model, "ebb", stream=False, max_tokens=1)
    assert refusal.value.code == "request_quota_exceeded"
    assert int(refusal.value.response.headers["retry-after"]) >= 1

    with OpenAI(base_url=front.base_url + "/v1", api_key="none", max_retries=3, timeout=TIMEOUT_S) as patient:
        assert complete(patient, engine.model, "ebb", stream=False, max_tokens=1).output_tokens == 1


@pytest.mark.parametrize("route", ["chat", "completions"])
def test_an_answer_cut_at_its_deadline_is_well_formed(
    slow_engine: EmulatorProcess, gateway: Callable[..., GatewayProcess], route: str
) -> None:
    """Total expiry ends a stream as a length limit would: the SDK reads it to the end, and no error."""
    front = gateway(config={"pools": fleet(slow_engine, deadlines={"ttft_s": 1.5, "total_s": 1.5})})
    ask: Callable[..., Any] = chat if route == "chat" else complete

    with openai_at(front.base_url) as client:
        answer = ask(client, slow_engine.model, "ebb", stream=True, **ENDLESS)

    assert answer.finish_reason == "length"
    assert 0 < answer.output_tokens < 5000


def test_a_response_cut_at_its_deadline_is_well_formed(
    slow_engine: EmulatorProcess, gateway: Callable[..., GatewayProcess]
) -> None:
    """So it is on the responses API: after the text so far, the last event says what ended it."""
    front = gateway(config={"pools": fleet(slow_engine, deadlines={"ttft_s": 1.5, "total_s": 1.5})})

    with (
        openai_at(front.base_url) as client,
        client.responses.create(model=slow_engine.model, input=LENGTHY, stream=True) as stream,
    ):
        events = list(stream)

    assert any(event.type == "response.output_text.delta" for event in events)
    last = events[-1]
    assert last.type == "response.incomplete"
    assert last.response.incomplete_details is not None
    assert last.response.incomplete_details.reason == "max_output_tokens"
