"""Which heads are allowed in, and how is a head written?

Reading is strict where two parsers could disagree (request smuggling): a head that is not plainly
valid is refused, never repaired. llhttp, below, already refuses bare LF, folded lines, blanks before
the colon, both framings at once and repeated lengths; what it lets by is caught here.
Source of the rules: RFC 9110 (semantics) and RFC 9112 (HTTP/1.1).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from http import HTTPStatus
from typing import Final

from tidegate.core.errors import CallerError
from tidegate.core.reasons import Reason

Headers = list[tuple[bytes, bytes]]

OWN: Final = frozenset({b"connection", b"content-length", b"keep-alive", b"transfer-encoding"})
"""Response fields that are the server's to say; a handler's own are left out."""

_HOST_CHARACTERS: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.:[]_-"


def stripped(value: bytes) -> bytes:
    """A field's value without white space around it, which is rare: llhttp has taken what stood before."""
    return value.strip() if value and (value[0] <= 32 or value[-1] <= 32) else value


class RefusedError(Exception):
    """The peer's bytes are refused, inside a parser's callback; never leaves this package."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


@lru_cache(64)
def check_host(value: bytes) -> None:
    """Refuse a host that is empty or holds anything but the characters of names, addresses and ports."""
    if not value or value.translate(None, _HOST_CHARACTERS):
        raise RefusedError(Reason.MALFORMED, "invalid Host")


@lru_cache(64)  # one server is asked for few targets
def split_target(target: bytes, method: str) -> tuple[str, str]:
    """Path and query of a request target, both raw; raises `RefusedError` for what is not a target."""
    if not target.startswith(b"/"):
        target = _path_of(target, method)
    if b"#" in target:
        raise RefusedError(Reason.MALFORMED, "fragment in the request target")
    path, _, query = target.decode("ascii").partition("?")
    return path, query


def _path_of(target: bytes, method: str) -> bytes:
    """What an absolute-form target (or the asterisk of OPTIONS) asks for on this server."""
    if target == b"*" and method == "OPTIONS":
        return target
    scheme, separator, rest = target.partition(b"://")
    if not separator or scheme.lower() not in (b"http", b"https"):
        raise RefusedError(Reason.MALFORMED, "unsupported request target")
    end = min((at for at in map(rest.find, (b"/", b"?", b"#")) if at >= 0), default=len(rest))
    check_host(rest[:end])
    path = rest[end:]
    return path if path.startswith(b"/") else b"/" + path


def _status_line(status: int) -> bytes:
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = ""
    return b"HTTP/1.1 %d %b" % (status, phrase.encode("ascii"))


_STATUS_LINES: Final = {status.value: _status_line(status.value) for status in HTTPStatus}


def response_head(status: int, headers: Iterable[tuple[bytes, bytes]], rest: bytes) -> bytes:
    """A complete response head: status line, `headers` without the server's own fields, then `rest`.

    `rest` is finished lines including the blank one, and whatever follows. Raises CallerError if a
    header carries CR, LF or NUL.
    """
    return _beginning(status, tuple(headers)) + rest


@lru_cache(64)  # what differs from one answer to the next is in `rest`, for the most part
def _beginning(status: int, headers: tuple[tuple[bytes, bytes], ...]) -> bytes:
    lines = [_STATUS_LINES.get(status) or _status_line(status)]
    lines += [b": ".join(header) for header in headers if header[0].lower() not in OWN]
    head = b"\r\n".join(lines)
    # One look at the whole is cheaper than one at each value, and misses nothing.
    line_ends = len(lines) - 1
    if head.count(b"\n") != line_ends or head.count(b"\r") != line_ends or 0 in head:
        raise CallerError("a response header carries CR, LF or NUL")
    return head + b"\r\n"
