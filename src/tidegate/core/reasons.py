"""Why was a request refused or cut, and how is that said over HTTP?

One table: a `Reason` is the label in metrics, the `code` in the error body, and a status. Policy
names the reason; nothing else in the project invents a status for a refusal.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Reason(StrEnum):
    """Every way in which a request ends other than by its engine's own answer."""

    MALFORMED = "malformed_request"
    NEVER_FITS = "never_fits"
    UNAUTHENTICATED = "invalid_api_key"
    FORBIDDEN = "model_not_allowed"
    UNKNOWN_MODEL = "model_not_found"
    UNKNOWN_ROUTE = "route_not_found"
    METHOD = "method_not_allowed"
    SLOW_REQUEST = "request_timeout"
    BODY_TOO_LARGE = "request_too_large"
    HEAD_TOO_LARGE = "headers_too_large"
    REQUEST_QUOTA = "request_quota_exceeded"
    TOKEN_QUOTA = "token_quota_exceeded"  # noqa: S105 - a reason, not a credential
    CONCURRENCY_QUOTA = "concurrency_quota_exceeded"
    QUEUE_FULL = "queue_full"
    WAIT_TOO_LONG = "predicted_wait_too_long"
    SHED = "shed_under_pressure"
    DISPLACED = "displaced_from_queue"
    QUEUE_TIMEOUT = "queue_timeout"
    TTFT_TIMEOUT = "first_token_timeout"
    TOTAL_TIMEOUT = "total_timeout"
    NO_REPLICA = "no_replica_available"
    UPSTREAM_BUSY = "upstream_busy"
    UPSTREAM_ERROR = "upstream_error"
    UPSTREAM_TIMEOUT = "upstream_timeout"
    SHUTTING_DOWN = "shutting_down"
    CLIENT_GONE = "client_gone"


class Answer(NamedTuple):
    """How a reason is said: HTTP status, OpenAI error `type`, and whether a later try can succeed."""

    status: int
    error_type: str
    retryable: bool


INVALID, LIMITED, UNAVAILABLE = "invalid_request_error", "rate_limit_error", "server_error"

ANSWERS: dict[Reason, Answer] = {
    Reason.MALFORMED: Answer(400, INVALID, False),
    Reason.NEVER_FITS: Answer(400, INVALID, False),
    Reason.UNAUTHENTICATED: Answer(401, "authentication_error", False),
    Reason.FORBIDDEN: Answer(403, "permission_error", False),
    Reason.UNKNOWN_MODEL: Answer(404, INVALID, False),
    Reason.UNKNOWN_ROUTE: Answer(404, INVALID, False),
    Reason.METHOD: Answer(405, INVALID, False),
    Reason.SLOW_REQUEST: Answer(408, INVALID, False),
    Reason.BODY_TOO_LARGE: Answer(413, INVALID, False),
    Reason.HEAD_TOO_LARGE: Answer(431, INVALID, False),
    Reason.REQUEST_QUOTA: Answer(429, LIMITED, True),
    Reason.TOKEN_QUOTA: Answer(429, LIMITED, True),
    Reason.CONCURRENCY_QUOTA: Answer(429, LIMITED, True),
    # The fleet, not the tenant's own quota, is short: 503 tells operators and SDKs apart from 429.
    Reason.QUEUE_FULL: Answer(503, UNAVAILABLE, True),
    Reason.WAIT_TOO_LONG: Answer(503, UNAVAILABLE, True),
    Reason.SHED: Answer(503, UNAVAILABLE, True),
    Reason.DISPLACED: Answer(503, UNAVAILABLE, True),
    Reason.QUEUE_TIMEOUT: Answer(503, UNAVAILABLE, True),
    Reason.TTFT_TIMEOUT: Answer(504, UNAVAILABLE, False),
    Reason.TOTAL_TIMEOUT: Answer(504, UNAVAILABLE, False),
    Reason.NO_REPLICA: Answer(503, UNAVAILABLE, True),
    Reason.UPSTREAM_BUSY: Answer(503, UNAVAILABLE, True),
    Reason.UPSTREAM_ERROR: Answer(502, UNAVAILABLE, False),
    Reason.UPSTREAM_TIMEOUT: Answer(504, UNAVAILABLE, False),
    Reason.SHUTTING_DOWN: Answer(503, UNAVAILABLE, True),
    # Nobody is there to read it; 499 is what nginx logs, and what our records show.
    Reason.CLIENT_GONE: Answer(499, INVALID, False),
}
