"""What of the head of an engine's answer goes on to the client, and what does governing add?"""

from __future__ import annotations

from typing import Final

from tidegate.core.messages import Dispatch
from tidegate.gateway.answers import header_value, quota_lines
from tidegate.net.headers import Headers

OURS: Final = frozenset(
    {
        b"connection",
        b"content-length",
        b"date",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-connection",
        b"retry-after",
        b"retry-after-ms",
        b"server",
        b"server-timing",
        b"set-cookie",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        b"x-request-id",
        b"x-should-retry",
        b"x-tidegate-degraded",
    }
)
"""Headers of an engine that say nothing to the client: framing is ours, and so are identity and limits."""


def passed_on(headers: Headers) -> Headers:
    """An engine's headers, less ours and those that concern only its connection (RFC 9110, 7.6.1)."""
    kept = [pair for pair in headers if pair[0] not in OURS and not pair[0].startswith(b"x-ratelimit-")]
    connection = value_of(headers, b"connection")
    if connection and connection.lower() not in (b"keep-alive", b"close"):
        named = {name.strip().lower() for name in connection.split(b",")}
        kept = [pair for pair in kept if pair[0] not in named]
    return kept


def governed_lines(command: Dispatch, request_id: bytes, upstream_s: float) -> bytes:
    """Header lines of every governed answer: identity, timing, what limits leave, what was degraded."""
    quota, degraded = command.quota, command.degraded
    lines = b"x-request-id: %b\r\nserver-timing: queue;dur=%b, upstream;dur=%b\r\n%b" % (
        request_id,
        _milliseconds(command.queued_s),
        _milliseconds(upstream_s),
        b"" if quota is None else quota_lines(quota),
    )
    if degraded:
        lines += b"x-tidegate-degraded: %b\r\n" % header_value(", ".join(degraded))
    return lines


def _milliseconds(seconds: float) -> bytes:
    """With one digit behind the point."""
    tenths = int(seconds * 1e4 + 0.5)
    return b"%d.%d" % (tenths // 10, tenths % 10)


def value_of(headers: Headers, name: bytes) -> bytes:
    """The first value of that (lower-case) name; b"" if there is none."""
    for known, value in headers:
        if known == name:
            return value
    return b""


def is_stream(status: int, headers: Headers) -> bool:
    """Whether an answer is a stream of events that can be read as it comes."""
    return (
        status == 200
        and value_of(headers, b"content-type").startswith(b"text/event-stream")
        and value_of(headers, b"content-encoding") in (b"", b"identity")
    )


def retry_after_s(headers: Headers) -> float | None:
    """A Retry-After in seconds; the other form, a date, is not used by engines."""
    value = value_of(headers, b"retry-after")
    return float(value) if value.isdigit() and len(value) < 7 else None
