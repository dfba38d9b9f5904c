"""Does each fault go wrong in the way that it is named for, and is it over when it is over?"""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from tests.emulator.inside import ENDLESS, HELLO, MODEL, Inside, payloads, served
from tests.raw_http import Reply, eventually, post, posted
from tests.server_process import answers_200
from tidegate.emulator.faults import Fault, Kind
from tidegate.emulator.replica_server import Options

SHORT = {**HELLO, "max_tokens": 8, "ignore_eos": True}


@pytest.fixture
def faulty(quick: Inside) -> Iterator[Inside]:
    """The shared replica; whatever was injected is cleared afterwards."""
    yield quick
    quick.look(lambda emulator: emulator.clear())
    eventually(lambda: quick.replica(lambda replica: replica.running) == 0, "all have left")


def asked_for(inside: Inside, index: int = 0, **fault: Any) -> Reply:
    """What is answered to somebody who asks for a fault."""
    return post(inside.urls[index] + "/emulator/fault", fault)


def inject(inside: Inside, index: int = 0, **fault: Any) -> None:
    """Ask over HTTP for a fault, and get it."""
    assert asked_for(inside, index, **fault).status == 200


def clear(inside: Inside, query: str = "", index: int = 0) -> None:
    """Ask over HTTP for its end."""
    request = urllib.request.Request(inside.urls[index] + "/emulator/fault" + query, method="DELETE")
    with urllib.request.urlopen(request, timeout=20) as response:
        assert response.status == 200


def said_until(response: http.client.HTTPResponse, tokens: int) -> str:
    """The text of a stream until it has at least so many tokens."""
    text = ""
    while len(text) < 4 * tokens:
        line = response.readline()
        assert line, "the stream ended before"
        if line.startswith(b"data: "):
            text += json.loads(line[6:])["choices"][0]["delta"]["content"]
    return text


def said_in(stream: bytes) -> str:
    """The text of what is left of a stream that ends as it should."""
    return text_of(payloads(stream.lstrip(b"\n")))


def text_of(chunks: list[dict[str, Any]]) -> str:
    """The text of a stream's events."""
    return "".join(chunk["choices"][0]["delta"]["content"] for chunk in chunks)


@pytest.mark.parametrize(("kind", "status"), [("error_500", 500), ("busy_503", 503)])
@pytest.mark.parametrize("stream", [False, True])
def test_errors_at_once(faulty: Inside, kind: str, status: int, stream: bool) -> None:
    """Until it is cleared every request gets the error, and the scrape still works."""
    inject(faulty, kind=kind, retry_after_s=7)

    for _ in range(2):
        reply = post(faulty.chat, {**SHORT, "stream": stream})
        assert (reply.status, reply.json()["error"]["code"]) == (status, status)
    assert reply.headers.get("retry-after") == "7"
    assert b"vllm:num_requests_running" in faulty.get("/metrics")
    clear(faulty)
    assert post(faulty.chat, SHORT).status == 200


def test_only_the_next_requests(faulty: Inside) -> None:
    """A counted fault strikes as many requests and then no more."""
    inject(faulty, kind="error_500", requests=2)

    assert [post(faulty.chat, SHORT).status for _ in range(4)] == [500, 500, 200, 200]


def test_it_ends_by_itself(faulty: Inside) -> None:
    """After its seconds, without being cleared."""
    inject(faulty, kind="busy_503", seconds=0.5)

    assert post(faulty.chat, SHORT).status == 503
    eventually(lambda: post(faulty.chat, SHORT).status == 200, "it is over")


def test_an_error_in_the_middle_of_a_stream(faulty: Inside) -> None:
    """As many tokens as asked for, an error event, and the terminator all the same; the seat is free."""
    inject(faulty, kind="error_500", after_tokens=5)

    *chunks, last = faulty.stream(ENDLESS)

    assert len(text_of(chunks)) == 4 * 5
    assert last["error"]["code"] == 500
    assert faulty.replica(lambda replica: replica.running) == 0
    assert post(faulty.chat, {**SHORT, "max_tokens": 9}).status == 500
    assert post(faulty.chat, {**SHORT, "max_tokens": 4}).status == 200, "it never says the fifth token"


def test_an_error_with_the_last_token(faulty: Inside) -> None:
    """A whole answer that is complete when the fault's time comes is struck none the less."""
    inject(faulty, kind="error_500", after_tokens=8)

    assert post(faulty.chat, SHORT).status == 500


def test_answers_under_way_are_struck(faulty: Inside) -> None:
    """A fault that comes while an answer is being given ends that one as well."""
    with posted(faulty.chat, ENDLESS) as response:
        said_until(response, 2)
        inject(faulty, kind="error_500", after_tokens=3)
        assert payloads(response.read().lstrip(b"\n"))[-1]["error"]["code"] == 500


def test_garbage(faulty: Inside) -> None:
    """Status 200 and a body that is no JSON, whole or streamed, from the start or later."""
    inject(faulty, kind="garbage")
    whole = post(faulty.chat, SHORT)
    with pytest.raises(ValueError):
        whole.json()
    assert whole.status == 200

    inject(faulty, kind="garbage", after_tokens=3)
    with posted(faulty.chat, ENDLESS) as response:
        assert len(said_until(response, 3)) == 4 * 3
        rest = response.read()
    with pytest.raises(AssertionError):
        payloads(rest)


@pytest.mark.parametrize("stream", [False, True])
def test_a_connection_that_breaks(faulty: Inside, stream: bool) -> None:
    """After so many tokens the answer breaks off, and the client sees that it is incomplete."""
    inject(faulty, kind="crash", after_tokens=3)

    with pytest.raises((http.client.HTTPException, ConnectionError)):
        post(faulty.chat, {**SHORT, "stream": stream})
    assert answers_200(faulty.url + "/health")
    assert faulty.replica(lambda replica: replica.running) == 0


def test_a_stall_holds_everything_and_loses_nothing(faulty: Inside) -> None:
    """Under way or new, nothing moves; health and metrics stay well; then all goes on where it was."""
    with posted(faulty.chat, {**ENDLESS, "max_tokens": 1000}) as response:
        begun = said_until(response, 3)
        inject(faulty, kind="stall")
        stuck = faulty.look(_produced)
        with posted(faulty.chat, {**SHORT, "stream": True}) as late:
            eventually(lambda: faulty.replica(lambda replica: replica.waiting) == 1, "it waits")
            assert answers_200(faulty.url + "/health")
            assert b"vllm:num_requests_waiting{" in faulty.get("/metrics")
            assert faulty.look(_produced) == stuck
            clear(faulty)
            assert len(said_in(late.read())) == 4 * 8
        assert len(begun + said_in(response.read())) == 4 * 1000


def test_one_stream_that_goes_silent(faulty: Inside) -> None:
    """It stops at its token, others go on; cleared, it says the rest."""
    with posted(faulty.chat, {**ENDLESS, "max_tokens": 300}) as response:
        said_until(response, 1)
        inject(faulty, kind="stall", after_tokens=6, requests=1)
        with posted(faulty.chat, {**SHORT, "stream": True}) as silent:
            assert len(said_until(silent, 6)) == 4 * 6
            assert post(faulty.chat, SHORT).status == 200, "only one request was struck"
            clear(faulty)
            assert len(said_in(silent.read())) == 4 * 2
        assert response.read().endswith(b"[DONE]\n\n")


def test_slow(faulty: Inside) -> None:
    """Every step is so many times as long, as the replica's own metrics say, until it is over."""
    inject(faulty, kind="slow", factor=20)
    before_s = faulty.look(_itl_s)
    post(faulty.chat, {**SHORT, "max_tokens": 11})
    slow_s = faulty.look(_itl_s) - before_s
    clear(faulty)
    post(faulty.chat, {**SHORT, "max_tokens": 11})
    after_s = faulty.look(_itl_s) - before_s - slow_s

    # A timer that is late tells of several steps at once, as equally long: the prompt's too, of 1.011 ms.
    assert slow_s == pytest.approx(10 * 20e-3, abs=20 * 11e-6)
    assert after_s == pytest.approx(10 * 1e-3, abs=11e-6)


def test_a_crash_closes_the_port_and_loses_all() -> None:
    """What ran breaks off, nobody listens, and what comes back has an empty cache and counts from zero."""
    with served(replicas=2) as inside:
        first, second = inside.emulator.ports
        assert post(inside.chat, SHORT).status == 200
        with posted(inside.chat, ENDLESS) as response:
            said_until(response, 2)
            inject(inside, index=1, kind="crash", port=first)
            with pytest.raises((http.client.HTTPException, ConnectionError)):
                response.read()
        eventually(lambda: not answers_200(inside.url + "/health"), "nobody listens")
        with pytest.raises(urllib.error.URLError):
            inside.get("/health")
        assert answers_200(inside.urls[1] + "/health")

        clear(inside, f"?port={first}", index=1)
        eventually(lambda: answers_200(inside.url + "/health"), "it is back")
        assert inside.emulator.ports == [first, second]
        assert b'generation_tokens_total{engine="0",model_name="quick"} 0.0' in inside.get("/metrics")
        assert post(inside.chat, SHORT).status == 200


def test_a_crash_that_heals_itself() -> None:
    """It is back after its seconds, even where crash and recovery follow at once."""
    with served(options=Options(model=MODEL, faults=True)) as inside:
        for seconds in (0.0, 0.05):
            assert post(inside.chat, SHORT).status == 200
            inject(inside, kind="crash", seconds=seconds)
            eventually(lambda: answers_200(inside.url + "/health"), "it is back")
            assert b'generation_tokens_total{engine="0",model_name="quick"} 0.0' in inside.get("/metrics")
            eventually(lambda: _well(inside), "and answers")


def test_injected_without_http() -> None:
    """A demo in the same process strikes one replica, or all."""
    with served(replicas=2) as inside:
        urls = [url + "/v1/chat/completions" for url in inside.urls]
        second = inside.emulator.ports[1]
        inside.look(lambda emulator: emulator.inject(Fault(kind=Kind.BUSY_503, port=second)))
        assert [post(url, SHORT).status for url in urls] == [200, 503]
        inside.look(lambda emulator: emulator.inject(Fault(kind=Kind.ERROR_500)))
        assert [post(url, SHORT).status for url in urls] == [500, 500]
        inside.look(lambda emulator: emulator.clear())
        assert [post(url, SHORT).status for url in urls] == [200, 200]


@pytest.mark.parametrize(
    "fault",
    [
        {"kind": "explode"},
        {"seconds": 1},
        {"kind": "stall", "second": 1},
        {"kind": "stall", "seconds": -1},
        {"kind": "slow", "requests": 1},
        {"kind": "slow", "factor": 0},
        {"kind": "busy_503", "retry_after_s": -1},
    ],
)
def test_what_is_no_fault(faulty: Inside, fault: dict[str, Any]) -> None:
    """It is refused with a word on why, and nothing goes wrong."""
    reply = asked_for(faulty, **fault)

    assert (reply.status, reply.json()["error"]["type"]) == (400, "BadRequestError")
    assert post(faulty.chat, SHORT).status == 200


def test_another_port_that_does_not_exist(faulty: Inside) -> None:
    """A 404, not a fault somewhere else."""
    assert asked_for(faulty, kind="stall", port=1).status == 404
    with pytest.raises(urllib.error.HTTPError, match="404"):
        clear(faulty, "?port=one")


def test_nobody_may_inject_unless_allowed() -> None:
    """Without the option the path does not exist."""
    with served(options=Options(model=MODEL)) as inside:
        assert asked_for(inside, kind="crash").status == 404
        assert post(inside.chat, SHORT).status == 200


def _produced(emulator: Any) -> int:
    meter = emulator.replica(emulator.ports[0]).engine.meter
    produced: int = meter.generation_tokens
    return produced


def _itl_s(emulator: Any) -> float:
    total: float = emulator.replica(emulator.ports[0]).engine.meter.itl_s.sum
    return total


def _well(inside: Inside) -> bool:
    try:
        return post(inside.chat, SHORT).status == 200
    except OSError:
        return False
