"""Does a replica answer over HTTP as vLLM does?"""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from tests.emulator.inside import ENDLESS, HELLO, MODEL, QUICK, Inside, payloads, served
from tests.raw_http import eventually, post, posted, sent
from tidegate.emulator.replica_server import Options
from tidegate.sim.profiles import Profile

TEN = {"max_tokens": 10, "ignore_eos": True}


def test_a_chat_stream(quick: Inside) -> None:
    """A role, then the text, the reason on its last event, and usage only if asked for."""
    chunks = quick.stream({**HELLO, **TEN})

    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert len("".join(chunk["choices"][0]["delta"]["content"] for chunk in chunks)) == 4 * 10
    *before, last = [chunk["choices"][0]["finish_reason"] for chunk in chunks]
    assert (set(before), last) == ({None}, "length")
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert len({chunk["id"] for chunk in chunks}) == 1
    assert not any("usage" in chunk for chunk in chunks)


def test_a_stream_says_what_the_whole_answer_says(quick: Inside) -> None:
    """The same prompt gets the same text, choice by choice, and the same usage."""
    body = {**HELLO, "max_tokens": 40, "n": 3}
    whole = post(quick.chat, body).json()
    chunks = quick.stream({**body, "stream_options": {"include_usage": True}})

    texts, reasons = {0: "", 1: "", 2: ""}, {}
    for chunk in chunks[:-1]:
        (choice,) = chunk["choices"]
        texts[choice["index"]] += choice["delta"]["content"]
        reasons[choice["index"]] = choice["finish_reason"]
    assert texts == {choice["index"]: choice["message"]["content"] for choice in whole["choices"]}
    assert reasons == {choice["index"]: choice["finish_reason"] for choice in whole["choices"]}
    assert len(set(texts.values())) == 3
    assert (chunks[-1]["choices"], chunks[-1]["usage"]) == ([], whole["usage"])
    assert whole["usage"]["completion_tokens"] == sum(len(text) // 4 for text in texts.values())
    assert whole["usage"]["prompt_tokens"] == 8 + 3  # the template, and 11 bytes


def test_continuous_usage_counts_one_choice(quick: Inside) -> None:
    """As vLLM does: each event tells its own choice's tokens, the last one those of all."""
    options = {"include_usage": True, "continuous_usage_stats": True}
    chunks = quick.stream({**HELLO, "n": 2, "max_tokens": 3, "ignore_eos": True, "stream_options": options})

    said = [0, 0]
    for chunk in chunks[:-1]:
        (choice,) = chunk["choices"]
        said[choice["index"]] += len(choice["delta"]["content"]) // 4
        assert chunk["usage"]["completion_tokens"] == said[choice["index"]]
    assert said == [3, 3]
    assert chunks[-1]["usage"]["completion_tokens"] == 6


@pytest.mark.parametrize(
    ("prompt", "prompt_tokens", "answers"),
    [
        ("12345678", 2, 1),
        ("123456789", 3, 1),
        (["1234", "5678", "1"], 3, 3),
        ([5, 6, 7], 3, 1),
        ([[5, 6, 7], [8]], 4, 2),
        ("äöüß", 2, 1),
    ],
)
def test_prompts_of_completions(quick: Inside, prompt: Any, prompt_tokens: int, answers: int) -> None:
    """Four bytes are a token, ids are exact, and each prompt of a list is answered."""
    body = {"prompt": prompt, "max_tokens": 2, "ignore_eos": True}
    whole = post(quick.url + "/v1/completions", body).json()

    assert [choice["index"] for choice in whole["choices"]] == list(range(answers))
    assert whole["usage"]["prompt_tokens"] == prompt_tokens
    assert whole["usage"]["completion_tokens"] == 2 * answers
    with posted(quick.url + "/v1/completions", {**body, "stream": True}) as response:
        pieces = [chunk["choices"][0] for chunk in payloads(response.read())]
    joined = dict.fromkeys(range(answers), "")
    for piece in pieces:
        joined[piece["index"]] += piece["text"]
    assert joined == {choice["index"]: choice["text"] for choice in whole["choices"]}


def test_continuous_usage_counts_its_own_prompt(quick: Inside) -> None:
    """Where a request has several, each event tells the one that it answers; the last one their sum."""
    options = {"include_usage": True, "continuous_usage_stats": True}
    body = {"prompt": [[1, 2, 3], [4]], "max_tokens": 2, "stream": True, "stream_options": options}
    with posted(quick.url + "/v1/completions", body) as response:
        *chunks, total = payloads(response.read())

    assert {(c["choices"][0]["index"], c["usage"]["prompt_tokens"]) for c in chunks} == {(0, 3), (1, 1)}
    assert total["usage"]["prompt_tokens"] == 4


def test_how_long_answers_are(quick: Inside) -> None:
    """A bound, a floor, neither, or exactly the bound; and a prompt's own length if nothing binds."""

    def said(text: str, **options: Any) -> tuple[int, str]:
        message = {"role": "user", "content": text}
        answer = post(quick.chat, {"messages": [message], **options}).json()
        return answer["usage"]["completion_tokens"], answer["choices"][0]["finish_reason"]

    natural = {text: said(text, max_tokens=600)[0] for text in ("a", "b", "c")}
    assert len(set(natural.values())) > 1
    for text, tokens in natural.items():
        assert said(text, max_completion_tokens=tokens + 1) == (tokens, "stop")
        assert said(text, max_tokens=5) == (5, "length")
        assert said(text, max_tokens=tokens + 3, min_tokens=tokens + 3) == (tokens + 3, "length")
        assert said(text)[0] == min(tokens, 256)
    assert said("a", max_tokens=7, ignore_eos=True) == (7, "length")


@pytest.mark.parametrize(
    ("path", "body", "status", "kind"),
    [
        ("/v1/chat/completions", {**HELLO, "model": "other"}, 404, "NotFoundError"),
        ("/v1/chat/completions", {**HELLO, "max_tokens": 2048}, 400, "BadRequestError"),
        ("/v1/chat/completions", {**HELLO, "max_tokens": 0}, 400, "BadRequestError"),
        ("/v1/chat/completions", {**HELLO, "n": 0}, 400, "BadRequestError"),
        ("/v1/chat/completions", {**HELLO, "n": "two"}, 400, "BadRequestError"),
        ("/v1/chat/completions", {**HELLO, "max_tokens": 5, "min_tokens": 6}, 400, "BadRequestError"),
        ("/v1/chat/completions", {"model": MODEL}, 400, "BadRequestError"),
        ("/v1/chat/completions", {"messages": []}, 400, "BadRequestError"),
        ("/v1/chat/completions", {**HELLO, "stream_options": {}}, 400, "BadRequestError"),
        ("/v1/completions", {"prompt": "x" * 4 * 2048}, 400, "BadRequestError"),
        ("/v1/completions", {"prompt": ""}, 400, "BadRequestError"),
        ("/v1/embeddings", {"input": "a", "dimensions": 0}, 400, "BadRequestError"),
        ("/v1/embeddings", {"input": "a", "dimensions": 10**9}, 400, "BadRequestError"),
        ("/v1/completions", {"prompt": []}, 400, "BadRequestError"),
        ("/v1/completions", {"prompt": ["a", 5]}, 400, "BadRequestError"),
        ("/v1/embeddings", {"input": [[]]}, 400, "BadRequestError"),
        ("/v1/nothing", {}, 404, "NotFoundError"),
        ("/health", {}, 404, "NotFoundError"),
    ],
)
def test_refusals(quick: Inside, path: str, body: dict[str, Any], status: int, kind: str) -> None:
    """Each is said in vLLM's form, and leaves nothing behind in the replica."""
    reply = post(quick.url + path, body)
    error = reply.json()["error"]

    assert (reply.status, error["code"], error["type"]) == (status, status, kind)
    assert error["message"]
    assert quick.replica(lambda replica: (replica.running, replica.waiting)) == (0, 0)


def test_the_longest_prompt_that_fits(quick: Inside) -> None:
    """To the token: one more is refused in the words that clients look for."""
    body = {"prompt": [7] * 2040, "max_tokens": 8, "ignore_eos": True}

    assert post(quick.url + "/v1/completions", body).json()["usage"]["total_tokens"] == 2048
    refused = post(quick.url + "/v1/completions", {**body, "max_tokens": 9})
    assert "maximum context length is 2048 tokens" in refused.json()["error"]["message"]
    without_bound = post(quick.url + "/v1/completions", {"prompt": [7] * 2047}).json()
    assert without_bound["usage"]["completion_tokens"] == 1


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_gives_its_seat_back(quick: Inside, stream: bool) -> None:
    """At once, not when the answer would have been complete; and it counts as no success."""
    done = quick.look(lambda emulator: emulator.replica(emulator.ports[0]).engine.meter.cut)
    with sent(quick.chat, {**ENDLESS, "stream": stream}):
        eventually(lambda: quick.replica(lambda replica: replica.running) == 1, "it runs")
        assert quick.replica(lambda replica: replica.kv_used_ratio) > 0

    eventually(lambda: quick.replica(lambda replica: replica.running) == 0, "its seat is free")
    assert quick.replica(lambda replica: replica.kv_used_ratio) == 0
    assert quick.look(lambda emulator: emulator.replica(emulator.ports[0]).engine.meter.cut) == done


def replaced(**changes: int) -> Profile:
    """The quick profile, with these bounds."""
    return Profile(curve=QUICK.curve, replica=msgspec.structs.replace(QUICK.replica, **changes))


def test_a_client_that_does_not_read_costs_no_memory() -> None:
    """What it is owed is kept as a count, and still arrives whole."""
    body = {**HELLO, "model": None, "n": 100, "max_tokens": 200, "ignore_eos": True, "stream": True}
    wide = replaced(max_num_seqs=100, kv_tokens=32_768)
    long_name = "m" * 2000  # makes more than the system's socket buffers hold
    with served(wide, Options(model=long_name)) as inside, posted(inside.chat, body) as response:
        eventually(lambda: inside.replica(lambda replica: replica.running + replica.waiting) == 0, "all done")
        chunks = payloads(response.read())

    said = dict.fromkeys(range(100), 0)
    for chunk in chunks:
        said[chunk["choices"][0]["index"]] += len(chunk["choices"][0]["delta"]["content"]) // 4
    assert set(said.values()) == {200}
    assert len(chunks) < 100 * 200, "late tokens share events"


def test_a_bounded_queue_refuses() -> None:
    """With one seat taken and one place in the queue taken, the third is told to go elsewhere."""
    with served(replaced(max_num_seqs=1), Options(model=MODEL, max_waiting=1)) as inside:
        with sent(inside.chat, ENDLESS):
            eventually(lambda: inside.replica(lambda replica: replica.running) == 1, "one runs")
            with sent(inside.chat, ENDLESS):
                eventually(lambda: inside.replica(lambda replica: replica.waiting) == 1, "one waits")
                refused = post(inside.chat, {**HELLO, "stream": True})
        assert (refused.status, refused.json()["error"]["type"]) == (503, "ServiceUnavailableError")
        eventually(lambda: inside.replica(lambda replica: replica.running) == 0, "all have left")
        assert post(inside.chat, {**HELLO, "max_tokens": 1}).status == 200


def test_embeddings(quick: Inside) -> None:
    """The same text has the same vector of length one, in numbers and in base64 of as many floats."""
    url = quick.url + "/v1/embeddings"
    first = post(url, {"input": ["red", "blue", "red"], "dimensions": 16}).json()
    vectors = [item["embedding"] for item in first["data"]]

    assert [item["index"] for item in first["data"]] == [0, 1, 2]
    assert vectors[0] == vectors[2] != vectors[1]
    assert sum(value * value for value in vectors[0]) == pytest.approx(1)
    assert first["usage"] == {"prompt_tokens": 3, "total_tokens": 3}
    encoded = post(url, {"input": "red", "dimensions": 16, "encoding_format": "base64"}).json()
    assert len(encoded["data"][0]["embedding"]) == 4 * -(-16 * 4 // 3)


def test_rerank(quick: Inside) -> None:
    """The best first, no more than asked for, each with its place in the request."""
    body = {"query": "tide", "documents": ["a", {"text": "b"}, "c"], "top_n": 2}
    results = post(quick.url + "/v1/rerank", body).json()["results"]

    assert len(results) == 2
    assert results[0]["relevance_score"] >= results[1]["relevance_score"]
    for result in results:
        assert result["document"]["text"] == "abc"[result["index"]]


def test_what_a_replica_tells_of_itself(quick: Inside) -> None:
    """Its model and context, a version, its health, and how it counts."""
    (model,) = json.loads(quick.get("/v1/models"))["data"]

    assert (model["id"], model["max_model_len"]) == (MODEL, 2048)
    assert quick.get("/health") == b""
    assert json.loads(quick.get("/version"))["version"]
    counted = post(quick.url + "/tokenize", {"prompt": "12345"}).json()
    assert (counted["count"], len(counted["tokens"]), counted["max_model_len"]) == (2, 2, 2048)
    assert post(quick.url + "/tokenize", {"messages": HELLO["messages"]}).json()["count"] == 11


def test_replicas_are_apart() -> None:
    """Work on one port is on no other."""
    with served(replicas=2) as inside, sent(inside.urls[1] + "/v1/chat/completions", ENDLESS):
        second = inside.emulator.ports[1]

        def running(port: int) -> int:
            return inside.look(lambda emulator: emulator.replica(port).engine.replica.running)

        eventually(lambda: running(second) == 1, "the second one runs it")
        assert running(inside.emulator.ports[0]) == 0
