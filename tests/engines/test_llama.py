"""Does a real llama.cpp behind the gateway answer as it does without it, and is it used as it should be?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait

import pytest
from openai import BadRequestError

from tests.engines.llama import Llama
from tests.gateway_process import GatewayProcess, running_gateway
from tests.raw_http import eventually, post, posted, sent
from tests.sdk import chat, complete, openai_at

pytestmark = [pytest.mark.engine, pytest.mark.timeout(120, func_only=True)]

# Extra fields travel too: without the prompt cache, equal requests are computed equally.
SAME_EACH_TIME = {
    "temperature": 0,
    "seed": 1,
    "max_tokens": 24,
    "extra_body": {"cache_prompt": False, "ignore_eos": True},
}
END_OF_TEXT = "4"
"""Token id that ends an answer."""


@pytest.fixture(scope="module")
def front(llama: Llama, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """One gateway before the shared engine, told nothing but its URL."""
    with running_gateway(tmp_path_factory.mktemp("front"), llama.url) as gateway:
        yield gateway


@pytest.mark.parametrize("stream", [False, True])
def test_a_chat_answer_is_the_engines_own(llama: Llama, front: GatewayProcess, stream: bool) -> None:
    """Text, finish reason and usage are the same through the gateway as without it."""
    with openai_at(llama.url) as direct:
        expected = chat(direct, llama.alias, "Tides wait for", stream=stream, **SAME_EACH_TIME)
    with openai_at(front.base_url) as client:
        answer = chat(client, llama.alias, "Tides wait for", stream=stream, **SAME_EACH_TIME)

    assert answer == expected
    assert (answer.finish_reason, answer.output_tokens) == ("length", 24)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("prompt", ["import os", [300, 301, 302, 4000]], ids=["text", "token-ids"])
def test_a_completion_is_the_engines_own(
    llama: Llama, front: GatewayProcess, prompt: str | list[int], stream: bool
) -> None:
    """Prompts travel as text and as token ids, and come back with the engine's own text and usage."""
    with openai_at(llama.url) as direct:
        expected = complete(direct, llama.alias, prompt, stream=stream, **SAME_EACH_TIME)
    with openai_at(front.base_url) as client:
        answer = complete(client, llama.alias, prompt, stream=stream, **SAME_EACH_TIME)

    assert answer == expected
    assert isinstance(prompt, str) or answer.prompt_tokens == len(prompt)


def test_embeddings_pass_through(
    start_llama: Callable[..., Llama], gateway: Callable[..., GatewayProcess]
) -> None:
    """An embedding is the engine's own, though it generates no token."""
    llama = start_llama(slots=1, embedding=True)
    vectors = []
    for url in (llama.url, gateway(llama.url).base_url):
        with openai_at(url) as client:
            found = client.embeddings.create(model=llama.alias, input="spring tide", encoding_format="float")
            vectors.append(found.data[0].embedding)

    assert vectors[1] == pytest.approx(vectors[0])
    assert len(vectors[1]) == 128


def test_the_engines_400_passes_through_and_is_no_failure(llama: Llama, front: GatewayProcess) -> None:
    """A caller's mistake comes back in the engine's words, and however many of them open no breaker."""
    too_long = {"model": llama.alias, "prompt": "word " * 3 * llama.context_tokens, "max_tokens": 1}
    expected = post(llama.url + "/v1/completions", too_long)
    assert expected.status == 400

    for _ in range(20):
        reply = post(front.base_url + "/v1/completions", too_long)
        assert (reply.status, reply.json()) == (400, expected.json())

    with openai_at(front.base_url) as client:
        assert complete(client, llama.alias, "still here", stream=False, **SAME_EACH_TIME).output_tokens == 24
        with pytest.raises(BadRequestError):
            complete(client, llama.alias, "word " * 3 * llama.context_tokens, stream=True, max_tokens=1)


def test_a_stream_left_midway_frees_its_slot(
    start_llama: Callable[..., Llama], gateway: Callable[..., GatewayProcess]
) -> None:
    """When a client hangs up, the engine stops at once: it does not produce the rest for nobody."""
    llama = start_llama(slots=1, context_tokens=8192)
    front = gateway(llama.url)

    with posted(front.base_url + "/v1/completions", endless(llama, stream=True)) as response:
        assert response.status == 200
        assert response.read(200).startswith(b"data: {")
        assert llama.busy_slots() == 1

    eventually(lambda: llama.busy_slots() == 0, "the slot is free again")
    assert llama.metrics()["tokens_predicted_total"] < LONG / 2


def test_a_whole_answer_left_midway_frees_its_slot(
    start_llama: Callable[..., Llama], gateway: Callable[..., GatewayProcess]
) -> None:
    """llama.cpp notices a lost client only while it streams: so it is asked for a stream, and notices."""
    llama = start_llama(slots=2)
    front = gateway(llama.url)

    with sent(front.base_url + "/v1/completions", endless(llama, stream=False)):
        eventually(lambda: llama.busy_slots() == 1, "the engine works on it")
    eventually(lambda: front.status()["in_flight"] == 0, "the gateway has forgotten it")
    eventually(lambda: llama.busy_slots() == 0, "the engine has stopped")
    assert llama.metrics()["tokens_predicted_total"] < LONG / 2

    with openai_at(front.base_url) as client:
        assert complete(client, llama.alias, "still here", stream=False, **SAME_EACH_TIME).output_tokens == 24


def test_connections_that_the_engine_closes_unannounced_are_no_trouble(
    llama: Llama, front: GatewayProcess
) -> None:
    """llama.cpp closes a connection after a stream while promising to keep it: no client notices."""
    with openai_at(front.base_url) as client:
        answers = {
            complete(client, llama.alias, "ebb", stream=bool(turn % 2), **SAME_EACH_TIME)
            for turn in range(20)
        }

    assert len(answers) == 1


def test_a_stream_without_content_has_no_first_token(
    llama: Llama, gateway: Callable[..., GatewayProcess]
) -> None:
    """llama.cpp opens a chat stream with a chunk that only names the role: that is no token yet."""
    front = gateway(llama.url)
    with openai_at(front.base_url) as client:
        empty = chat(client, llama.alias, "Say nothing", stream=True, logit_bias={END_OF_TEXT: 100})
        eventually(lambda: ended_and_begun(front) == (1, 0), "one ended, without a first token")
        chat(client, llama.alias, "Say something", stream=True, **SAME_EACH_TIME)
        eventually(lambda: ended_and_begun(front) == (2, 1), "one more ended, with one")

    assert (empty.text, empty.finish_reason) == ("", "stop")


def ended_and_begun(front: GatewayProcess) -> tuple[float, float]:
    """How many requests the metrics have seen end, and in how many of them a first token."""
    return (
        front.sample("tidegate_e2e_request_latency_seconds_count"),
        front.sample("tidegate_time_to_first_token_seconds_count"),
    )


@pytest.mark.parametrize("max_concurrency", [None, 2], ids=["slots-as-told", "configured"])
def test_what_exceeds_the_gate_waits_in_the_gateway(
    llama: Llama, gateway: Callable[..., GatewayProcess], max_concurrency: int | None
) -> None:
    """Twelve requests never queue in an engine of four slots, where nothing could reorder them."""
    pool = {"replicas": [{"url": llama.url}], "gate": {"max_concurrency": max_concurrency}}
    front = gateway(config={"pools": {llama.alias: pool}})

    seen: list[tuple[float, int]] = []
    with openai_at(front.base_url) as client, ThreadPoolExecutor(12) as threads:
        asked = [
            threads.submit(complete, client, llama.alias, f"request {i}", stream=False, **LONGER)
            for i in range(12)
        ]
        while wait(asked, timeout=0.01).not_done:
            seen.append((llama.metrics()["requests_deferred"], llama.busy_slots()))

    assert [request.result().output_tokens for request in asked] == [300] * 12
    assert max(deferred for deferred, _ in seen) == 0
    assert max(busy for _, busy in seen) <= (max_concurrency or llama.slots)


LONGER = SAME_EACH_TIME | {"max_tokens": 300}
LONG = 8000
"""Output tokens that take the engine seconds."""


def endless(llama: Llama, stream: bool) -> dict[str, object]:
    """A request that nobody would wait for."""
    return {"model": llama.alias, "prompt": "sea", "max_tokens": LONG, "stream": stream, "ignore_eos": True}
