"""How refusals are said: bodies in each API's form, and headers that SDKs obey."""

from __future__ import annotations

import json
from email.message import Message
from math import inf

import httpx2
import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.core.messages import Quota
from tidegate.core.reasons import ANSWERS, Reason
from tidegate.gateway.answers import duration, error_body, header_value, quota_lines, refusal_headers
from tidegate.gateway.apis import APIS, CHAT, MESSAGES, Api

REASONS = list(Reason)


@pytest.mark.parametrize("reason", REASONS)
def test_every_reason_is_said_in_openais_form(reason: Reason) -> None:
    """`code` is the reason, which is the label in metrics too."""
    error = json.loads(error_body(reason, "because", param="model", api=CHAT))["error"]

    assert error == {
        "message": "because",
        "type": ANSWERS[reason].error_type,
        "param": "model",
        "code": reason.value,
    }


@pytest.mark.parametrize(
    "reason,kind",
    [
        (Reason.MALFORMED, "invalid_request_error"),
        (Reason.UNAUTHENTICATED, "authentication_error"),
        (Reason.FORBIDDEN, "permission_error"),
        (Reason.UNKNOWN_MODEL, "not_found_error"),
        (Reason.METHOD, "invalid_request_error"),
        (Reason.BODY_TOO_LARGE, "request_too_large"),
        (Reason.TOKEN_QUOTA, "rate_limit_error"),
        (Reason.QUEUE_FULL, "overloaded_error"),
        (Reason.UPSTREAM_ERROR, "api_error"),
        (Reason.TOTAL_TIMEOUT, "timeout_error"),
    ],
)
def test_anthropics_form(reason: Reason, kind: str) -> None:
    """The messages route answers as Anthropic's own does."""
    said = json.loads(error_body(reason, "because", api=MESSAGES))

    assert said == {"type": "error", "error": {"type": kind, "message": "because"}}


def test_a_detail_is_bounded_and_never_empty() -> None:
    """What a client sent is not sent back at length, and there is always something to read."""
    long = json.loads(error_body(Reason.UNKNOWN_MODEL, "x" * 10_000))["error"]["message"]
    none = json.loads(error_body(Reason.QUEUE_FULL, ""))["error"]["message"]

    assert len(long) == 1_000
    assert none == "queue full"


@pytest.mark.parametrize(
    "wait_s,seconds,ms",
    [
        (None, b"1", b"1000"),
        (0.0, b"1", b"1000"),
        (0.02, b"1", b"20"),
        (1.0, b"1", b"1000"),
        (12.3, b"13", b"12300"),  # BerriAI/litellm#27823
        (0.1 + 0.2, b"1", b"300"),
        (120.0, b"120", b"120000"),
        (4000.0, b"120", b"120000"),
        (inf, b"120", b"120000"),
    ],
)
def test_a_refusal_that_passes_names_its_wait(wait_s: float | None, seconds: bytes, ms: bytes) -> None:
    """Rounded up, at least 1 s and at most the 120 s beyond which SDKs give up."""
    assert dict(refusal_headers(Reason.TOKEN_QUOTA, wait_s)) == {
        b"x-should-retry": b"true",
        b"retry-after": seconds,
        b"retry-after-ms": ms,
    }


@pytest.mark.parametrize("reason", REASONS)
def test_only_what_can_pass_asks_to_come_back(reason: Reason) -> None:
    """SDKs are told not to retry what will be refused again."""
    headers = dict(refusal_headers(reason, 3.0))

    assert headers[b"x-should-retry"] == (b"true" if ANSWERS[reason].retryable else b"false")
    assert (b"retry-after" in headers) == ANSWERS[reason].retryable


@pytest.mark.parametrize(
    "reason,final,requests",
    [
        (Reason.QUEUE_FULL, False, 3),
        (Reason.UPSTREAM_ERROR, False, 1),
        (Reason.UPSTREAM_BUSY, False, 3),
        (Reason.UPSTREAM_BUSY, True, 1),
    ],
)
def test_the_openai_sdk_retries_as_told(reason: Reason, final: bool, requests: int) -> None:
    """A 503 with a wait is tried twice more; a 502 or 503 that says no is not, though SDKs would."""
    seen: list[httpx2.Request] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        seen.append(request)
        headers = [*refusal_headers(reason, 0.001, final), (b"content-type", b"application/json")]
        return httpx2.Response(ANSWERS[reason].status, headers=headers, content=error_body(reason, "full"))

    http_client = httpx2.Client(transport=httpx2.MockTransport(answer))
    client = openai.OpenAI(api_key="x", base_url="http://gate/v1", http_client=http_client)
    with pytest.raises(openai.InternalServerError) as raised:
        client.models.list()

    assert len(seen) == requests
    assert raised.value.code == reason.value


@pytest.mark.parametrize(
    "seconds,written",
    [
        (0.0, b"0s"),
        (-1.0, b"0s"),
        (0.0001, b"1ms"),
        (0.02, b"20ms"),
        (0.9999, b"1s"),
        (1.0, b"1s"),
        (1.2, b"2s"),
        (59.5, b"1m0s"),
        (360.0, b"6m0s"),
        (3600.0, b"1h0m0s"),
        (90061.0, b"25h1m1s"),
    ],
)
def test_durations_in_openais_form(seconds: float, written: bytes) -> None:
    """Rounded up, so that nobody comes too early."""
    assert duration(seconds) == written


def test_quotas_say_what_exists() -> None:
    """Limits that are not set have no header; nothing left is 0, never less."""
    assert quota_lines(Quota()) == b""
    assert pairs(quota_lines(Quota(limit_tokens=6000, remaining_tokens=-5, reset_tokens_s=1.0))) == {
        b"x-ratelimit-limit-tokens": b"6000",
        b"x-ratelimit-remaining-tokens": b"0",
        b"x-ratelimit-reset-tokens": b"1s",
    }
    assert pairs(quota_lines(Quota(limit_requests=60, remaining_requests=59, reset_requests_s=inf))) == {
        b"x-ratelimit-limit-requests": b"60",
        b"x-ratelimit-remaining-requests": b"59",
        b"x-ratelimit-reset-requests": b"24h0m0s",
    }


def pairs(lines: bytes) -> dict[bytes, bytes]:
    """Header lines, taken apart."""
    return {name: value for name, _, value in (line.partition(b": ") for line in lines.splitlines())}


@given(text=st.text(), longest=st.integers(0, 50))
def test_any_text_can_be_a_header_value(text: str, longest: int) -> None:
    """No CR, LF, control or wide character gets into a header (Keith-CY/carrier#745)."""
    value = header_value(text + "\r\nx-evil: 1", longest)

    assert len(value) <= longest
    assert all(0x20 <= byte <= 0x7E for byte in value)
    message = Message()
    message["x"] = value.decode()
    assert message["x"] == value.decode()


@given(
    reason=st.sampled_from(REASONS),
    wait_s=st.none() | st.floats(allow_nan=False),
    detail=st.text(),
    api=st.none() | st.sampled_from(list(APIS.values())),
    count=st.none() | st.integers(-(10**12), 10**12),
    reset_s=st.none() | st.floats(min_value=-1e6, max_value=1e9) | st.just(inf),
)
def test_whatever_is_refused_headers_are_clean(
    reason: Reason,
    wait_s: float | None,
    detail: str,
    api: Api | None,
    count: int | None,
    reset_s: float | None,
) -> None:
    """Every header is printable ASCII, and every body is JSON."""
    quota = Quota(limit_requests=count, remaining_requests=count, reset_requests_s=reset_s)
    for name, value in [*refusal_headers(reason, wait_s), *pairs(quota_lines(quota)).items()]:
        assert name.islower()
        assert value
        assert all(0x20 < byte < 0x7F for byte in value)
    assert json.loads(error_body(reason, detail, api=api))["error"]["message"]
