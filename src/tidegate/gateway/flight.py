"""One request on its way: from the client's exchange to a replica and back.

It does what the governor commands and reports what happens; it decides nothing. Towards the client it
keeps three promises: nothing is sent before an answer is certain (so that a failed attempt can be
replaced unseen), what was sent is never started again, and an answer that broke never looks complete.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.core.errors import UpstreamError
from tidegate.core.messages import (
    Abort,
    Cancelled,
    Dispatch,
    Evict,
    Failed,
    FailureKind,
    Finished,
    FirstToken,
    Progressed,
    Reject,
    Truncate,
)
from tidegate.core.reasons import Reason
from tidegate.core.request import Request, Usage
from tidegate.gateway.answers import header_value, quota_lines
from tidegate.gateway.assembly import Assembly, can_assemble
from tidegate.gateway.bodies import Body
from tidegate.gateway.long_answers import Ends
from tidegate.gateway.streams import Relay
from tidegate.gateway.usage import usage_of
from tidegate.net.client import Call
from tidegate.net.exchange import Exchange
from tidegate.net.headers import Headers

if TYPE_CHECKING:
    from tidegate.gateway.app import Gateway

HOLD_BYTES = 256 * 1024
"""A whole answer is held up to here, so that one that breaks can still be replaced or refused."""
ERROR_BYTES = 16 * 1024
"""As much of an engine's error answer is read, for the message that the client gets."""
FIRST_PROGRESS_TOKENS = 32

OURS = frozenset(
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

KIND_OF_STATUS = {
    401: FailureKind.DENIED,
    403: FailureKind.DENIED,
    429: FailureKind.BUSY,
    503: FailureKind.BUSY,
}


class Flight:
    """A governed request. Also the sink of whatever attempt is running."""

    __slots__ = (
        "_api",
        "_attempt",
        "_body",
        "_call",
        "_dispatch",
        "_ends",
        "_error",
        "_exchange",
        "_gateway",
        "_headers",
        "_id",
        "_parts",
        "_progress_at",
        "_relay",
        "_request",
        "_seen_first",
        "_sent_at",
        "_size",
        "_status",
        "_streaming",
        "_upstream",
    )

    def __init__(
        self, gateway: Gateway, exchange: Exchange, request: Request, body: Body | None, request_id: bytes
    ) -> None:
        self._gateway = gateway
        self._exchange = exchange
        self._request = request
        self._api = body.api if body is not None else None  # None: an extra route, passed on as it is
        self._body = body  # until the answer begins: a long prompt must not be kept for a long stream
        self._id = request_id
        self._call: Call | None = None
        self._relay: Relay | Assembly | None = None
        self._attempt = 0
        self._seen_first = False
        exchange.on_gone = self._on_gone
        exchange.on_paused = self._on_paused

    # -- commands ---------------------------------------------------------------------------------

    def dispatch(self, command: Dispatch) -> None:
        """Send an attempt."""
        gateway, body = self._gateway, self._body
        self._dispatch = command
        self._attempt = command.attempt
        self._upstream = upstream = gateway.upstreams[command.replica]
        self._sent_at = gateway.driver.now()
        self._status = 0
        self._headers: Headers = []
        self._parts: list[bytes] = []
        self._ends: Ends | None = None
        self._size = 0
        self._error = False
        self._streaming = False
        self._progress_at = FIRST_PROGRESS_TOKENS
        if body is None:
            sent = self._exchange.body
        else:
            pool = gateway.config.pools[command.pool]
            assembled = not body.stream and gateway.assembles(upstream) and can_assemble(body.api)
            sent = body.write(
                model=upstream.model if upstream.model != body.model else None,
                max_tokens=command.max_tokens,
                inject_usage=pool.inject_usage,
                as_stream=assembled,
                keep=gateway.allowed_fields[command.pool],
            )
            ratio = gateway.bytes_per_token(command.pool)
            if assembled:
                self._relay = Assembly(
                    body.api, choices=body.answers, prompts=body.prompts, bytes_per_token=ratio
                )
            elif body.stream:
                self._relay = Relay(
                    body.api,
                    withhold_usage=pool.inject_usage and not body.wants_usage,
                    choices=body.answers,
                    bytes_per_token=ratio,
                    prompt_tokens=int(body.prompt_bytes / ratio) + body.prompt_tokens_known,
                )
        self._call = upstream.send(self._exchange, self._id, sent, self)

    def refuse(self, command: Reject | Evict) -> None:
        """Say no. Where a part of an answer has been sent already, break it off instead."""
        self._drop_call()
        exchange = self._exchange
        if exchange.started:
            exchange.abort()
            return
        self._gateway.refuse(
            exchange,
            command.reason,
            command.detail,
            request_id=self._id,
            api=self._api,
            retry_after_s=command.retry_after_s,
            quota=command.quota,
        )

    def truncate(self, command: Truncate) -> None:
        """End a stream well-formed at an event boundary, and stop the engine."""
        self._drop_call()
        relay = self._relay
        assert isinstance(relay, Relay)
        if command.reason is Reason.SHUTTING_DOWN:
            last = relay.error("the gateway is shutting down", command.reason.value)
        else:
            last = relay.truncate()
        self._begin_stream()
        self._report_finished(200, relay.usage, relay.output_tokens)
        self._exchange.end(last)

    def abort(self, command: Abort) -> None:
        """Stop the attempt."""
        self._drop_call()

    # -- the client -------------------------------------------------------------------------------

    def _on_gone(self) -> None:
        """The client left: the engine is stopped at once, then the permit is given back."""
        relay = self._relay
        try:
            self._drop_call()
        finally:
            self._gateway.driver.flights.pop(self._request.request_id, None)
            self._gateway.driver.tell(
                Cancelled(
                    request_id=self._request.request_id,
                    output_tokens=relay.output_tokens if relay is not None else 0,
                    usage=relay.usage if relay is not None else None,
                )
            )

    def _on_paused(self, paused: bool) -> None:
        if self._call is None:
            return
        if paused:
            self._call.pause()
        else:
            self._call.resume()

    def _drop_call(self) -> None:
        call, self._call = self._call, None
        if call is not None:
            call.cancel()

    # -- the engine's answer ----------------------------------------------------------------------

    def on_head(self, status: int, headers: Headers) -> None:
        """The head of the engine's answer."""
        self._status = status
        self._headers = headers
        if status >= 500 or status in KIND_OF_STATUS:
            self._error = True
            self._relay_off()
        elif self._relay is not None:
            content_type = _value(headers, b"content-type")
            packed = _value(headers, b"content-encoding") not in (b"", b"identity")
            if status == 200 and content_type.startswith(b"text/event-stream") and not packed:
                self._streaming = True
            else:
                self._relay_off()
        if not self._streaming:
            self._expect_more()

    def on_body(self, data: bytes) -> None:
        """A part of the engine's answer."""
        if self._streaming:
            self._on_events(data)
            return
        self._size += len(data)
        if self._error:
            self._parts.append(data[:ERROR_BYTES])
            if self._size > ERROR_BYTES:
                self._drop_call()
                self.on_end()
        elif self._ends is not None:
            self._ends.add(data)
            self._exchange.write(data)
        else:
            self._parts.append(data)
            if self._size > HOLD_BYTES:
                self._begin_whole()

    def on_end(self) -> None:
        """The engine's answer is complete by its framing."""
        self._call = None
        if self._error:
            kind = KIND_OF_STATUS.get(self._status, FailureKind.SERVER_ERROR)
            self._note(kind, f"answered {self._status}: {self._said()}")
            self._fail(kind)
        elif not self._streaming:
            self._end_whole()
        elif not self._ended_well():
            self._note(FailureKind.RESET, "the stream ended without its end")
            self._fail(FailureKind.RESET)

    def on_failure(self, kind: FailureKind, detail: str) -> None:
        """There will be no complete answer."""
        self._call = None
        if not (self._streaming and self._ended_well()):
            self._note(kind, detail)
            self._fail(kind)

    # -- streams ----------------------------------------------------------------------------------

    def _on_events(self, data: bytes) -> None:
        relay = self._relay
        assert relay is not None
        try:
            out = relay.feed(data) or b""  # what is put together gives nothing before its end
        except UpstreamError as error:
            self._drop_call()
            self.on_failure(FailureKind.GARBAGE, str(error))
            return
        if relay.saw_error is not None:
            self._drop_call()  # whatever may follow, the engine has given up
            if self._exchange.started:
                self._exchange.write(out)
            self._note(FailureKind.SERVER_ERROR, relay.saw_error)
            self._fail(FailureKind.SERVER_ERROR)
            return
        if out:
            self._begin_stream()
            self._exchange.write(out)
        if not self._seen_first:
            if relay.first_token:
                self._seen_first = True
                self._expect_more()
                self._gateway.driver.tell(
                    FirstToken(request_id=self._request.request_id, attempt=self._attempt)
                )
        elif relay.output_tokens >= self._progress_at:
            self._progress_at = 2 * relay.output_tokens
            self._gateway.driver.tell(
                Progressed(
                    request_id=self._request.request_id,
                    attempt=self._attempt,
                    output_tokens=relay.output_tokens,
                )
            )

    def _begin_stream(self) -> None:
        if not self._exchange.started:
            self._body = None
            self._exchange.start(200, _passed_on(self._headers), lines=self._answer_lines())

    def _ended_well(self) -> bool:
        """End the stream if the answer is whole, however the connection ended; False if it is not."""
        relay = self._relay
        if isinstance(relay, Assembly):
            return self._respond_assembled(relay)
        assert relay is not None
        ending = relay.end()
        if not ending.complete:
            if self._exchange.started and ending.tail:
                self._exchange.write(ending.tail)
            return False
        self._begin_stream()
        self._report_finished(200, relay.usage, relay.output_tokens)
        self._exchange.end(ending.tail)
        return True

    def _respond_assembled(self, assembly: Assembly) -> bool:
        """Answer with the whole that a stream was put together to; False if it was no whole."""
        try:
            answer = assembly.answer()
        except UpstreamError:
            answer = None
        if answer is None:
            return False
        headers = [pair for pair in _passed_on(self._headers) if pair[0] != b"content-type"]
        headers.append((b"content-type", b"application/json"))
        self._report_finished(200, assembly.usage, assembly.output_tokens)
        self._exchange.respond(200, headers, answer, self._answer_lines())
        return True

    def _relay_off(self) -> None:
        """What came is no stream; whether one was asked for no longer matters."""
        self._relay = None

    # -- whole answers ----------------------------------------------------------------------------

    def _begin_whole(self) -> None:
        length = _value(self._headers, b"content-length")
        self._body = None
        whole_bytes = int(length) if length.isdigit() else None
        self._exchange.start(self._status, _passed_on(self._headers), whole_bytes, self._answer_lines())
        beginning = b"".join(self._parts)
        self._parts.clear()
        self._ends = Ends(beginning)
        self._exchange.write(beginning)

    def _end_whole(self) -> None:
        body, ends = b"".join(self._parts), self._ends
        usage, output_tokens = None, 0
        if self._status >= 400:
            body = self._upstream.censored(body)
        elif (api := self._api) is not None:
            usage = usage_of(api, body) if ends is None else ends.usage(api)
            if usage is None and api.generates:  # an engine that does not count is not for free
                output_tokens = int(self._size / self._gateway.bytes_per_token(self._dispatch.pool))
        self._report_finished(self._status, usage, usage.output_tokens if usage else output_tokens)
        if ends is not None:
            self._exchange.end()
        else:
            self._exchange.respond(self._status, _passed_on(self._headers), body, self._answer_lines())

    # -- reports ----------------------------------------------------------------------------------

    def _report_finished(self, status: int, usage: Usage | None, output_tokens: int) -> None:
        driver = self._gateway.driver
        driver.flights.pop(self._request.request_id, None)
        driver.tell(
            Finished(
                request_id=self._request.request_id,
                attempt=self._attempt,
                status=status,
                usage=usage,
                output_tokens=output_tokens,
            )
        )

    def _fail(self, kind: FailureKind) -> None:
        """Report a failed attempt; what the client already has of it gets an end that says so."""
        committed = self._exchange.started
        relay = self._relay
        usage, produced = (relay.usage, relay.output_tokens) if relay is not None else (None, 0)
        if committed:
            self._gateway.driver.flights.pop(self._request.request_id, None)
        self._relay = None
        self._seen_first = False
        self._gateway.driver.tell(
            Failed(
                request_id=self._request.request_id,
                attempt=self._attempt,
                kind=kind,
                committed=committed,
                status=self._status if self._error else 0,
                output_tokens=produced,
                usage=usage,
                retry_after_s=_seconds(_value(self._headers, b"retry-after")) if self._error else None,
                # What an engine says of the gateway's credential is no client's business.
                detail="" if kind is FailureKind.DENIED else self._said(),
            )
        )
        if committed:
            self._break_off(relay)

    def _break_off(self, relay: Relay | Assembly | None) -> None:
        """End what the client already has, so that it cannot be taken for the whole."""
        if not isinstance(relay, Relay):
            self._exchange.abort()
        elif relay.saw_error is None:
            self._exchange.end(relay.error("the engine broke off its answer", Reason.UPSTREAM_ERROR.value))
        else:
            self._exchange.end()  # the engine's own error event has gone through

    def _said(self) -> str:
        """What the engine says of its error."""
        return _message_of(self._upstream.censored(b"".join(self._parts))) if self._error else ""

    def _note(self, kind: FailureKind, detail: str) -> None:
        self._gateway.note_failure(self._upstream.id, self._id, kind, detail)

    def _expect_more(self) -> None:
        if self._call is not None:
            self._call.expect_within(self._upstream.timeouts.inter_token_timeout_s)

    def _answer_lines(self) -> bytes:
        """What governing has to say in the head of an answer."""
        command = self._dispatch
        upstream_s = self._gateway.driver.now() - self._sent_at
        lines = b"x-request-id: %b\r\nserver-timing: queue;dur=%.1f, upstream;dur=%.1f\r\n" % (
            self._id,
            command.queued_s * 1e3,
            upstream_s * 1e3,
        )
        if command.quota is not None:
            lines += quota_lines(command.quota)
        if command.degraded:
            lines += b"x-tidegate-degraded: %b\r\n" % header_value(", ".join(command.degraded))
        return lines


def _passed_on(headers: Headers) -> Headers:
    """An engine's headers, less ours and those that concern only its connection (RFC 9110, 7.6.1)."""
    kept = [pair for pair in headers if pair[0] not in OURS and not pair[0].startswith(b"x-ratelimit-")]
    connection = _value(headers, b"connection")
    if connection and connection.lower() not in (b"keep-alive", b"close"):
        named = {name.strip().lower() for name in connection.split(b",")}
        kept = [pair for pair in kept if pair[0] not in named]
    return kept


def _value(headers: Headers, name: bytes) -> bytes:
    for known, value in headers:
        if known == name:
            return value
    return b""


def _seconds(value: bytes) -> float | None:
    """A Retry-After in seconds; the other form, a date, is not used by engines."""
    return float(value) if value.isdigit() and len(value) < 7 else None


def _message_of(body: bytes) -> str:
    """What an engine says of its error, short and on one line."""
    text = body[:400].decode("utf-8", "replace")
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())
