"""Does a real vLLM behind the gateway answer as it does without it, on every route that it has?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait

import pytest
from openai import NotFoundError

from tests.engines.vllm import Vllm
from tests.gateway_process import GatewayProcess, running_gateway
from tests.raw_http import eventually, post, posted, sent
from tests.sdk import anthropic_at, chat, complete, openai_at

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(300, func_only=True)]

SAME_EACH_TIME = {"temperature": 0, "seed": 1, "max_tokens": 24, "extra_body": {"ignore_eos": True}}


@pytest.fixture(scope="module")
def front(vllm: Vllm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """One gateway before the shared engine, told nothing but its URL."""
    with running_gateway(tmp_path_factory.mktemp("front"), vllm.url) as gateway:
        yield gateway


@pytest.mark.parametrize("stream", [False, True])
def test_a_chat_answer_is_the_engines_own(vllm: Vllm, front: GatewayProcess, stream: bool) -> None:
    """Text, finish reason and usage are the same through the gateway as without it."""
    with openai_at(vllm.url) as direct:
        expected = chat(direct, vllm.model, "Tides wait for", stream=stream, **SAME_EACH_TIME)
    with openai_at(front.base_url) as client:
        answer = chat(client, vllm.model, "Tides wait for", stream=stream, **SAME_EACH_TIME)

    assert answer == expected
    assert (answer.finish_reason, answer.output_tokens) == ("length", 24)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("prompt", ["import os", [300, 301, 302, 4000]], ids=["text", "token-ids"])
def test_a_completion_is_the_engines_own(
    vllm: Vllm, front: GatewayProcess, prompt: str | list[int], stream: bool
) -> None:
    """Prompts travel as text and as token ids, and come back with the engine's own text and usage."""
    with openai_at(vllm.url) as direct:
        expected = complete(direct, vllm.model, prompt, stream=stream, **SAME_EACH_TIME)
    with openai_at(front.base_url) as client:
        answer = complete(client, vllm.model, prompt, stream=stream, **SAME_EACH_TIME)

    assert answer == expected
    assert isinstance(prompt, str) or answer.prompt_tokens == len(prompt)


def test_usage_comes_only_to_who_asked(vllm: Vllm, front: GatewayProcess) -> None:
    """The gateway meters every stream by the engine's usage, and keeps to itself what was not asked for."""
    body = {"model": vllm.model, "prompt": "ebb", "stream": True, "max_tokens": 4}
    unasked = post(front.base_url + "/v1/completions", body)
    asked = post(front.base_url + "/v1/completions", body | {"stream_options": {"include_usage": True}})

    assert (unasked.body.count(b'"usage":{'), asked.body.count(b'"usage":{')) == (0, 1)
    assert unasked.body.endswith(b"data: [DONE]\n\n")
    assert asked.body.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize("stream", [False, True])
def test_the_responses_route(vllm: Vllm, front: GatewayProcess, stream: bool) -> None:
    """OpenAI's responses API reaches the engine, and its usage reaches the client."""
    seen = []
    for url in (vllm.url, front.base_url):
        with openai_at(url) as client:
            request = {
                "model": vllm.model,
                "input": "Tides wait for",
                "temperature": 0,
                "max_output_tokens": 16,
            }
            if stream:
                with client.responses.create(stream=True, **request) as events:  # type: ignore[call-overload]
                    *_, last = list(events)
                assert last.type in ("response.completed", "response.incomplete")
                response = last.response
            else:
                response = client.responses.create(**request)  # type: ignore[call-overload]
        seen.append((response.output_text, response.usage.input_tokens, response.usage.output_tokens))

    assert seen[0] == seen[1]
    assert seen[1][2] > 0


@pytest.mark.parametrize("stream", [False, True])
def test_the_messages_route(vllm: Vllm, front: GatewayProcess, stream: bool) -> None:
    """Anthropic's messages API reaches the engine, and its usage reaches the client."""
    seen = []
    for url in (vllm.url, front.base_url):
        with anthropic_at(url) as client:
            request = {
                "model": vllm.model,
                "messages": [{"role": "user", "content": "Tides wait for"}],
                "max_tokens": 16,
                "extra_body": {"temperature": 0},
            }
            if stream:
                with client.messages.stream(**request) as events:  # type: ignore[arg-type]
                    message = events.get_final_message()
            else:
                message = client.messages.create(**request)  # type: ignore[call-overload]
        text = "".join(block.text for block in message.content if block.type == "text")
        seen.append((text, message.stop_reason, message.usage.input_tokens, message.usage.output_tokens))

    assert seen[0] == seen[1]
    assert seen[1][3] > 0


def test_the_models_list_names_the_engines_model(vllm: Vllm, front: GatewayProcess) -> None:
    """What the gateway learned from the engine's URL is what it offers."""
    with openai_at(front.base_url) as client:
        assert [model.id for model in client.models.list()] == [vllm.model]


def test_an_unknown_model_is_refused_by_the_gateway(vllm: Vllm, front: GatewayProcess) -> None:
    """A model that no pool serves is a 404 of the gateway's own; the engine does not hear of it."""
    with openai_at(front.base_url) as client, pytest.raises(NotFoundError) as refusal:
        chat(client, "no-such-model", "hello", stream=False)

    assert refusal.value.code == "model_not_found"
    engine_words = post(vllm.url + "/v1/completions", {"model": "no-such-model", "prompt": "x"}).json()
    assert refusal.value.body != engine_words["error"]


def test_the_engines_400_passes_through_and_is_no_failure(vllm: Vllm, front: GatewayProcess) -> None:
    """A caller's mistake comes back in the engine's words, and however many of them open no breaker."""
    too_long = {"model": vllm.model, "prompt": "word " * 3 * vllm.context_tokens, "max_tokens": 1}
    expected = post(vllm.url + "/v1/completions", too_long)
    assert expected.status == 400

    for _ in range(20):
        reply = post(front.base_url + "/v1/completions", too_long)
        assert (reply.status, reply.json()) == (400, expected.json())

    with openai_at(front.base_url) as client:
        assert complete(client, vllm.model, "still here", stream=False, **SAME_EACH_TIME).output_tokens == 24


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_left_midway_frees_its_seat(vllm: Vllm, front: GatewayProcess, stream: bool) -> None:
    """When a client hangs up, the engine stops at once: it does not produce the rest for nobody."""
    body = {"model": vllm.model, "prompt": "sea", "max_tokens": 2000, "stream": stream, "ignore_eos": True}
    url = front.base_url + "/v1/completions"
    before = vllm.metric("generation_tokens_total")

    with posted(url, body) if stream else sent(url, body):
        eventually(lambda: vllm.running() == 1, "the engine works on it")

    eventually(lambda: vllm.running() == 0, "the seat is free again")
    assert vllm.metric("generation_tokens_total") - before < 1500


def test_what_exceeds_the_gate_waits_in_the_gateway(
    vllm: Vllm, gateway: Callable[..., GatewayProcess]
) -> None:
    """Twelve requests never queue in an engine of four seats, where nothing could reorder them."""
    pool = {"replicas": [{"url": vllm.url}], "gate": {"max_concurrency": vllm.seats}}
    front = gateway(config={"pools": {vllm.model: pool}})
    options = SAME_EACH_TIME | {"max_tokens": 100}

    seen: list[tuple[int, float]] = []
    with openai_at(front.base_url) as client, ThreadPoolExecutor(12) as threads:
        asked = [
            threads.submit(complete, client, vllm.model, f"request {i}", stream=False, **options)
            for i in range(12)
        ]
        while wait(asked, timeout=0.01).not_done:
            seen.append((vllm.running(), vllm.metric("num_requests_waiting")))

    assert [request.result().output_tokens for request in asked] == [100] * 12
    assert max(running + waiting for running, waiting in seen) <= vllm.seats
