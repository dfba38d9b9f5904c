"""Events come out whole and untouched, wherever the reads cut them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.core.errors import UpstreamError
from tidegate.net.sse import EventSplitter, data_of

MULTIBYTE = 'data: {"content":"潮門 🌊 ñ"}'.encode()


def split(pieces: list[bytes]) -> tuple[list[bytes], bytes]:
    splitter = EventSplitter()
    events = [event for piece in pieces for event in splitter.feed(piece)]
    return events + splitter.finish(), splitter.tail


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"], ids=["LF", "CRLF", "CR"])
def test_every_cut_of_a_stream_gives_the_same_events(end: bytes) -> None:
    """A stream cut in two at any byte, inside a character or a line end included, gives the same events."""
    lines = [[MULTIBYTE], [b": ping", b"event: delta", b"data: 1", b"data: 2"], [b"data: [DONE]"]]
    events = [end.join([*event, b"", b""]) for event in lines]
    stream = b"".join(events)

    for cut in range(len(stream) + 1):
        assert split([stream[:cut], stream[cut:]]) == (events, b""), cut
    assert split([stream[at : at + 1] for at in range(len(stream))]) == (events, b"")


@pytest.mark.parametrize("blank", [b"\n\n", b"\r\n\r\n", b"\r\r", b"\n\r\n", b"\r\n\n", b"\r\n\r", b"\r\r\n"])
def test_mixed_line_ends(blank: bytes) -> None:
    """Any two line ends in a row end an event."""
    events = [b"data: a" + blank, b"data: b" + blank]

    assert split([b"".join(events)]) == (events, b"")


def test_an_event_comes_with_the_read_that_ends_it() -> None:
    """An event is not held back once it cannot become longer, except after a lone CR."""
    splitter = EventSplitter()

    for piece, events in [
        (b"data: 1\n", []),
        (b"\n", [b"data: 1\n\n"]),
        (b"data: 2\r\n\r\n", [b"data: 2\r\n\r\n"]),
        (b"data: 3\r\r", []),
        (b"data", [b"data: 3\r\r"]),
        (b": 4\n\ndata: 5\n\nda", [b"data: 4\n\n", b"data: 5\n\n"]),
    ]:
        assert splitter.feed(piece) == events, piece
    assert splitter.tail == b"da"


@given(
    st.lists(st.sampled_from([b"\n", b"\r", b"\r\n", b"data: x", b":", b"a", b"\n\n", "é".encode()])),
    st.data(),
)
def test_events_and_tail_are_the_input(parts: list[bytes], data: st.DataObject) -> None:
    """Joined, what comes out is what went in; and the cuts do not matter."""
    stream = b"".join(parts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]

    events, tail = split(pieces)

    assert b"".join(events) + tail == stream
    assert (events, tail) == split([stream])


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n"])
@pytest.mark.parametrize("read_bytes", [1_400, 2**20 + 100])
def test_a_line_of_one_mebibyte(end: bytes, read_bytes: int) -> None:
    """A long line passes byte for byte, up to the limit and not beyond."""
    event = b"data: " + b"x" * (2**20 - 6 - len(end)) + end
    reads = [event[at : at + read_bytes] for at in range(0, len(event), read_bytes)]

    assert split(reads) == ([event], b"")
    with pytest.raises(UpstreamError, match="1048576"):
        split([b"data: ", *reads])


def test_events_before_one_that_is_too_long_are_delivered() -> None:
    """The limit is of one event, not of a read; the one beyond it fails the read that cannot end it."""
    splitter = EventSplitter(limit=10)

    assert splitter.feed(b"data: 1\n\ndata: 2\n\ndata: 345678") == [b"data: 1\n\n", b"data: 2\n\n"]
    with pytest.raises(UpstreamError):
        splitter.feed(b"9")


@pytest.mark.parametrize(
    "event, data",
    [
        (b"data: {}\n\n", b"{}"),
        (b"data:{}\n\n", b"{}"),
        (b"data:  two\n\n", b" two"),
        (b"data: a\r\n\r\n", b"a"),
        (b"data: a\r\r", b"a"),
        (b"data: a\ndata: b\n\n", b"a\nb"),
        (b"event: delta\ndata: a\n\n", b"a"),
        (b"event: x\n\n", b""),
        (b": comment\n\n", b""),
        (b": c\ndata: a\n: d\n\n", b"a"),
        (b"data\n\n", b""),
        (b"database: a\n\n", b""),
        (b"\ndata: a\n\n", b"a"),
        (b"id: 1\nretry: 5\ndata: event\n\n", b"event"),
        (b"\n\n", b""),
    ],
)
def test_fields_of_an_event(event: bytes, data: bytes) -> None:
    """One space after the colon is not content; several data lines are joined; comments are nothing."""
    assert data_of(event) == data
