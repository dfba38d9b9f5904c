"""The reader is pure: what it finds depends on the bytes alone, not on how they were cut."""

from __future__ import annotations

import tracemalloc
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.core.reasons import Reason
from tidegate.net.connection import Connection
from tidegate.net.limits import ServerLimits
from tidegate.net.reader import RequestReader
from tidegate.net.server import Handler, Server

LIMITS = ServerLimits(head_bytes=200, headers=6, target_bytes=40, body_bytes=60, pipelined=3)


def owner() -> Connection:
    """A connection whose clock stands still; nothing else is asked of it."""
    server = Server(cast(Handler, None))
    server.now = lambda: 0.0
    return Connection(server, "")


def read(pieces: list[bytes]) -> list[Any]:
    """Every exchange that comes of these reads, taken out as fast as it comes."""
    reader = RequestReader(owner(), LIMITS)
    found = []
    for piece in pieces:
        reader.feed(piece)
        while True:
            while reader.queue and (reader.queue[0].whole or reader.queue[0].refusal):
                exchange = reader.queue.popleft()
                refused_for = exchange.refusal[0] if exchange.refusal else None
                found.append((exchange.path, exchange.body, exchange.keep_alive, refused_for))
            if not reader.read_on():
                break
        assert len(reader.queue) <= 1
    return [*found, *((exchange.path, exchange.headers) for exchange in reader.queue)]


PARTS = [
    b"GET / HTTP/1.1\r\n",
    b"POST /a?b HTTP/1.1\r\n",
    b"GET /old HTTP/1.0\r\n",
    b"Host: a\r\n",
    b"Content-Length: 5\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Connection: close\r\n",
    b"Connection: upgrade\r\nUpgrade: h2c\r\n",
    b"X: y\r\n",
    b"\r\n",
    b"abcde",
    b"5\r\nabcde\r\n",
    b"0\r\n\r\n",
    b"0\r\nX: y\r\n\r\n",
    b"\n",
]
REQUESTS = [
    b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\n",
    b"POST /2 HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nabcde",
    b"POST /3 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"3;x\r\nabc\r\n2\r\nde\r\n0\r\nX: y\r\n\r\n",
    b"POST /4 HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: h2c\r\nContent-Length: 2\r\n\r\nab",
    b"GET /5 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    b"GET /6 HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    b"POST /7 HTTP/1.1\r\nHost: a\r\nContent-Length: 61\r\n\r\n",
]


@given(st.lists(st.sampled_from(REQUESTS) | st.sampled_from(PARTS), max_size=12), st.data())
def test_cuts_make_no_difference(parts: list[bytes], data: st.DataObject) -> None:
    """However the bytes are cut, the same requests are found and the same thing is refused."""
    stream = b"".join(parts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]

    assert read(pieces) == read([stream])


@given(st.lists(st.sampled_from(REQUESTS[:4]), max_size=40))
def test_valid_requests_are_all_found(requests: list[bytes]) -> None:
    """Pipelined requests come out whole and in order, more of them than the queue may hold included."""
    paths = [request.split()[1].decode() for request in requests]
    bodies = {"/1": b"", "/2": b"abcde", "/3": b"abcde", "/4": b"ab"}

    assert read([b"".join(requests)]) == [(path, bodies[path], True, None) for path in paths]


@given(st.binary(max_size=400) | st.lists(st.sampled_from(PARTS), max_size=30).map(b"".join))
def test_no_bytes_break_the_reader(stream: bytes) -> None:
    """Any bytes give requests and at most one refusal, which is last."""
    refusals = [one for one in read([stream]) if isinstance(one, tuple) and isinstance(one[-1], Reason)]

    assert len(refusals) <= 1


def test_a_target_is_judged_by_its_own_method() -> None:
    """The asterisk is for OPTIONS alone, whatever was asked before; the same of a path is the same again."""
    asterisk = b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n"
    plain = b"POST /a?b HTTP/1.1\r\nHost: a\r\n\r\n"

    found = read([asterisk, asterisk, plain, plain, asterisk.replace(b"OPTIONS", b"POST")])

    assert [each[0] for each in found] == ["*", "*", "/a", "/a", ""]
    assert found[-1][3] is Reason.MALFORMED


def test_no_host_is_taken_for_the_one_before() -> None:
    """Each head must name a host that is one, whatever the last one said."""
    good, bad = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", b"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n"

    found = read([good, good, bad])

    assert [each[3] for each in found] == [None, None, Reason.MALFORMED]


def test_what_waits_is_bounded() -> None:
    """With nobody answering, the queue stops at its bound and one slice's worth of requests, in any cut."""
    request = b"POST /2 HTTP/1.1\r\nHost: a\r\nContent-Length: 60\r\n\r\n" + b"x" * 60
    for read_bytes in (100, 20_000, 2_000_000):
        reader = RequestReader(owner(), LIMITS)
        stream = request * 10_000
        for at in range(0, len(stream), read_bytes):
            if reader.crowded:
                break
            reader.feed(stream[at : at + read_bytes])
        assert reader.crowded
        assert len(reader.queue) <= 16_384 / len(request) + LIMITS.pipelined + 2


def test_a_body_in_tiny_chunks_takes_no_more_than_its_size() -> None:
    """Thousands of chunks are put together as they come: each by itself would cost twenty times its bytes."""
    reader = RequestReader(owner(), ServerLimits())
    chunks = b"2\r\nab\r\n" * 10_000
    tracemalloc.start()
    try:
        reader.feed(b"POST /4 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
        before_bytes, _ = tracemalloc.get_traced_memory()
        for _ in range(10):
            reader.feed(chunks)
        held_bytes = tracemalloc.get_traced_memory()[0] - before_bytes
    finally:
        tracemalloc.stop()
    reader.feed(b"0\r\n\r\n")

    assert reader.queue[0].body == b"ab" * 100_000
    assert held_bytes < 3 * 200_000


@pytest.mark.parametrize("head_bytes", [200, 16_384, 16_385, 40_000, 65_536])
@pytest.mark.parametrize("before_bytes", [0, 100, 16_000])
def test_a_head_is_taken_up_to_its_bound(head_bytes: int, before_bytes: int) -> None:
    """Exactly the bound is taken and one byte more is not, however it is cut and whatever came before it."""
    limits = ServerLimits(head_bytes=head_bytes, headers=1000)
    before = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % before_bytes + b"x" * before_bytes
    start = b"GET /%b HTTP/1.1\r\nHost: a\r\n"
    for excess_bytes, refused in [(-1, False), (0, False), (1, True), (4_464, True), (70_000, True)]:
        fields = b"X: %b\r\n\r\n"
        fill = head_bytes + excess_bytes - len(start % b"") - len(fields % b"")
        head = start % (b"p" * 50) + fields % (b"y" * (fill - 50))
        assert len(head) == head_bytes + excess_bytes
        stream = (before if before_bytes else b"") + head
        for read_bytes in (len(stream), 16_384, 9_999, len(stream) - 1):
            reader = RequestReader(owner(), limits)
            for at in range(0, len(stream), read_bytes):
                reader.feed(stream[at : at + read_bytes])
            *earlier, last = reader.queue
            assert len(earlier) == (1 if before_bytes else 0)
            assert (last.refusal is not None) == refused, (excess_bytes, read_bytes)
            assert last.refusal is None or last.refusal[0] is Reason.HEAD_TOO_LARGE
