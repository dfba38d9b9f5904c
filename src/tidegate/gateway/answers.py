"""How is a refusal said over HTTP, so that people understand it and official SDKs do the right thing?

The SDKs of OpenAI and Anthropic read `retry-after-ms`, then `retry-after`, obey `x-should-retry`, and
do not come back at all when told to wait longer than 120 s (openai 3.57, anthropic 2.14).
"""

from __future__ import annotations

from math import ceil, inf
from typing import Final

import msgspec

from tidegate.core.messages import Quota
from tidegate.core.reasons import ANSWERS, Reason
from tidegate.gateway.apis import Api, Form
from tidegate.net.headers import Headers

LONGEST_WAIT_S = 120
DAY_S: Final = 86_400.0
ROUNDING: Final = 5e-7
"""Less than this above a whole unit is no more than the unit: 0.1 * 3 is more than 0.3 in its last digits."""
DETAIL_CHARACTERS = 1_000
"""As much of a detail is said: it may quote what the client sent."""

_ANTHROPIC_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}
"""By status; source: Anthropic's API reference on errors (which says 529 where HTTP has 503)."""


def error_body(reason: Reason, detail: str, param: str | None = None, api: Api | None = None) -> bytes:
    """The JSON that says `reason` in the API's own form; OpenAI's where no API is known."""
    answer = ANSWERS[reason]
    message = detail[:DETAIL_CHARACTERS] or reason.value.replace("_", " ")
    if api is not None and api.form is Form.MESSAGES:
        fallback = "invalid_request_error" if answer.status < 500 else "api_error"
        error = {"type": _ANTHROPIC_TYPES.get(answer.status, fallback), "message": message}
        return msgspec.json.encode({"type": "error", "error": error})
    return msgspec.json.encode(
        {"error": {"message": message, "type": answer.error_type, "param": param, "code": reason.value}}
    )


def refusal_headers(reason: Reason, retry_after_s: float | None = None, final: bool = False) -> Headers:
    """Whether to come back, and when: a refusal that a later try can outlive always names a wait.

    `final`: retries have been made here already. Whoever knows `x-should-retry` is to leave it at that, or
    three tries of each client would be three of ours each (HKUDS/nanobot#2760).
    """
    if not ANSWERS[reason].retryable:
        return [(b"x-should-retry", b"false")]
    wait_s = min(max(retry_after_s or 0.0, 0.0), LONGEST_WAIT_S) or 1.0
    return [
        (b"x-should-retry", b"false" if final else b"true"),
        (b"retry-after", b"%d" % max(ceil(wait_s - ROUNDING), 1)),
        (b"retry-after-ms", b"%d" % max(ceil(wait_s * 1000 - ROUNDING), 1)),
    ]


def quota_lines(quota: Quota) -> bytes:
    """What is left of the tightest limits, in OpenAI's `x-ratelimit-*`; those not set are left out.

    Header lines and not pairs, because every governed answer has them.
    """
    lines = b""
    limit = quota.limit_requests
    if limit is not None:
        left, full_s = quota.remaining_requests or 0, quota.reset_requests_s or 0.0
        lines = (
            b"x-ratelimit-limit-requests: %d\r\nx-ratelimit-remaining-requests: %d\r\n"
            b"x-ratelimit-reset-requests: %b\r\n" % (limit, max(left, 0), duration(full_s))
        )
    limit = quota.limit_tokens
    if limit is not None:
        left, full_s = quota.remaining_tokens or 0, quota.reset_tokens_s or 0.0
        lines += (
            b"x-ratelimit-limit-tokens: %d\r\nx-ratelimit-remaining-tokens: %d\r\n"
            b"x-ratelimit-reset-tokens: %b\r\n" % (limit, max(left, 0), duration(full_s))
        )
    return lines


def duration(seconds: float) -> bytes:
    """A wait in OpenAI's form, rounded up: `20ms`, `1s`, `6m0s`, `1h0m0s`; never is said as a day."""
    if seconds <= 0:
        return b"0s"
    milliseconds: int = ceil((seconds if seconds < inf else DAY_S) * 1000 - ROUNDING)
    if milliseconds < 1000:
        return b"%dms" % milliseconds
    minutes, rest_s = divmod(-(-milliseconds // 1000), 60)
    hours, rest_minutes = divmod(minutes, 60)
    if hours:
        return b"%dh%dm%ds" % (hours, rest_minutes, rest_s)
    return b"%dm%ds" % (minutes, rest_s) if minutes else b"%ds" % rest_s


def header_value(text: str, longest: int = 256) -> bytes:
    """Any text as a header value: printable ASCII, other characters as `?`, cut to `longest`."""
    kept = "".join(c if " " <= c <= "~" else "?" for c in text[:longest])
    return kept.strip().encode("ascii")
