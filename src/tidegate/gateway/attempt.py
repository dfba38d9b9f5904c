"""One attempt at one replica: what comes back, and what of it may the client have?

Three kinds of answer: a stream goes on as it comes, once its first token is there; a whole answer is held
until it is complete (a long one up to a bound); an error is read for what it says, and never goes on if
another attempt may follow. What broke never looks complete.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidegate.core.errors import UpstreamError
from tidegate.core.messages import (
    Dispatch,
    Failed,
    FailureKind,
    Finished,
    FirstToken,
    Progressed,
    failure_of,
)
from tidegate.core.reasons import Reason
from tidegate.core.request import Usage
from tidegate.core.text import printable
from tidegate.gateway.assembly import Assembly
from tidegate.gateway.heads import governed_lines, is_stream, passed_on, retry_after_s, value_of
from tidegate.gateway.long_answers import Ends
from tidegate.gateway.streams import Relay
from tidegate.gateway.usage import usage_of
from tidegate.net.client import Call
from tidegate.net.exchange import Exchange
from tidegate.net.headers import Headers

if TYPE_CHECKING:
    from tidegate.gateway.flight import Flight
    from tidegate.gateway.upstream import Upstream

HOLD_BYTES: Final = 256 * 1024
"""A whole answer is held up to here, so that one that breaks can still be replaced or refused."""
ERROR_BYTES: Final = 16 * 1024
"""As much of an engine's error answer is read, for the message that the client gets."""
PROGRESS_READS: Final = 8
"""Progress is coarse anyway: it is looked for at every so many reads."""


class Attempt:
    """The sink of one call to an engine. Reports to its flight, exactly one end."""

    __slots__ = (
        "_call",
        "_command",
        "_ends",
        "_exchange",
        "_failure",
        "_flight",
        "_headers",
        "_parts",
        "_progress_at",
        "_reads",
        "_relay",
        "_seen_first",
        "_sent_at",
        "_size",
        "_status",
        "_streaming",
        "_upstream",
    )

    def __init__(
        self,
        flight: Flight,
        exchange: Exchange,
        command: Dispatch,
        upstream: Upstream,
        relay: Relay | Assembly | None,
        now: float,
    ) -> None:
        self._flight = flight
        self._exchange = exchange
        self._command = command
        self._upstream = upstream
        self._relay = relay  # of the stream that was asked for; None: a whole answer was, or came
        self._sent_at = now
        self._call: Call | None = None
        self._status = 0
        self._headers: Headers = []
        self._parts: list[bytes] = []
        self._ends: Ends | None = None  # of a whole answer that was too long to be held
        self._size = 0
        self._failure: FailureKind | None = None
        self._streaming = False
        self._seen_first = False
        self._reads = 0
        self._progress_at = command.progress_from_tokens

    # -- the flight's side ------------------------------------------------------------------------

    def send(self, body: bytes, request_id: bytes, query: str = "") -> None:
        """Send the request to the engine."""
        self._call = self._upstream.send(self._exchange, request_id, body, self, query)

    def stop(self) -> None:
        """Close the engine's connection; nothing more is reported."""
        call, self._call = self._call, None
        if call is not None:
            call.cancel()

    def pause(self, paused: bool) -> None:
        """Read no more for now, or read on."""
        if self._call is None:
            return
        if paused:
            self._call.pause()
        else:
            self._call.resume()

    def produced(self) -> tuple[Usage | None, int]:
        """What the engine has told of its usage, and the output tokens that have been seen."""
        relay = self._relay
        return (relay.usage, relay.output_tokens) if relay is not None else (None, 0)

    def truncate(self, reason: Reason) -> None:
        """End a stream at an event boundary: well-formed, or with an error where the fault is ours."""
        self.stop()
        relay = self._relay
        assert isinstance(relay, Relay)
        if reason is Reason.SHUTTING_DOWN:
            last = relay.error("the gateway is shutting down", reason.value)
        else:
            last = relay.truncate()
        self._begin_stream()
        self._finish(200, relay.usage, relay.output_tokens)
        self._exchange.end(last)

    # -- the engine's answer ----------------------------------------------------------------------

    def on_head(self, status: int, headers: Headers) -> None:
        """The head of the engine's answer."""
        self._status = status
        self._headers = headers
        self._failure = failure_of(status)
        if self._relay is not None:
            self._streaming = self._failure is None and is_stream(status, headers)
            if not self._streaming:
                self._relay = None
        if not self._streaming:
            self._expect_more()

    def on_body(self, data: bytes) -> None:
        """A part of the engine's answer."""
        if self._streaming:
            self._on_events(data)
        else:
            self._on_part(data)

    def _on_part(self, data: bytes) -> None:
        self._size += len(data)
        if self._failure is not None:
            self._parts.append(data[:ERROR_BYTES])
            if self._size > ERROR_BYTES:
                self.stop()
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
        if self._failure is not None:
            self._fail(self._failure, f"answered {self._status}: {self._said()}")
        elif not self._streaming:
            self._end_whole()
        elif not self._ended_well():
            self._fail(FailureKind.RESET, "the stream ended without its end")

    def on_failure(self, kind: FailureKind, detail: str) -> None:
        """There will be no complete answer."""
        self._call = None
        if not (self._streaming and self._ended_well()):
            self._fail(kind, detail)

    # -- streams ----------------------------------------------------------------------------------

    def _on_events(self, data: bytes) -> None:
        relay = self._relay
        assert relay is not None
        try:
            out = relay.feed(data) or b""  # what is put together gives nothing before its end
        except UpstreamError as error:
            self.stop()
            self.on_failure(FailureKind.GARBAGE, str(error))
            return
        if relay.saw_error is not None:
            self.stop()  # whatever may follow, the engine has given up
            if self._exchange.started:
                self._exchange.write(out)
            self._fail(FailureKind.SERVER_ERROR, relay.saw_error)
            return
        if out:
            self._begin_stream()
            self._exchange.write(out)
        if self._seen_first:
            self._reads += 1
            if self._reads % PROGRESS_READS == 0 and (said := relay.output_tokens) >= self._progress_at:
                while self._progress_at <= said:
                    self._progress_at *= 2
                self._flight.driver.tell(
                    Progressed(
                        request_id=self._command.request_id,
                        attempt=self._command.attempt,
                        output_tokens=said,
                    )
                )
        elif relay.first_token:
            self._seen_first = True
            self._expect_more()
            command = self._command
            self._flight.driver.tell(FirstToken(request_id=command.request_id, attempt=command.attempt))

    def _begin_stream(self) -> None:
        if not self._exchange.started:
            self._flight.commit()
            self._exchange.start(200, passed_on(self._headers), lines=self._lines())

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
        self._finish(200, relay.usage, relay.output_tokens)
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
        headers = [pair for pair in passed_on(self._headers) if pair[0] != b"content-type"]
        headers.append((b"content-type", b"application/json"))
        self._finish(200, assembly.usage, assembly.output_tokens)
        self._exchange.respond(200, headers, answer, self._lines())
        return True

    # -- whole answers ----------------------------------------------------------------------------

    def _begin_whole(self) -> None:
        length = value_of(self._headers, b"content-length")
        self._flight.commit()
        whole_bytes = int(length) if length.isdigit() else None
        self._exchange.start(self._status, passed_on(self._headers), whole_bytes, self._lines())
        beginning = b"".join(self._parts)
        self._parts.clear()
        self._ends = Ends(beginning)
        self._exchange.write(beginning)

    def _end_whole(self) -> None:
        parts, ends = self._parts, self._ends
        body = parts[0] if len(parts) == 1 else b"".join(parts)
        usage, output_tokens = None, 0
        if self._status >= 400:
            body = self._upstream.censored(body)
        elif (api := self._flight.api) is not None:
            usage = usage_of(api, body) if ends is None else ends.usage(api)
            if usage is None and api.generates:  # an engine that does not count is not for free
                output_tokens = int(self._size / self._flight.bytes_per_token(self._command.pool))
        self._finish(self._status, usage, output_tokens if usage is None else usage.output_tokens)
        if ends is not None:
            self._exchange.end()
        else:
            self._exchange.respond(self._status, passed_on(self._headers), body, self._lines())

    # -- its end ----------------------------------------------------------------------------------

    def _finish(self, status: int, usage: Usage | None, output_tokens: int) -> None:
        """Report before the last byte goes out: a client's next request must find this one settled."""
        self._flight.close(
            Finished(
                request_id=self._command.request_id,
                attempt=self._command.attempt,
                status=status,
                usage=usage,
                output_tokens=output_tokens,
            )
        )

    def _fail(self, kind: FailureKind, detail: str) -> None:
        """Report a failure; what the client already has gets an end that says so."""
        self._flight.note_failure(self._upstream.id, kind, detail)
        committed = self._exchange.started
        usage, output_tokens = self.produced()
        failed = Failed(
            request_id=self._command.request_id,
            attempt=self._command.attempt,
            kind=kind,
            committed=committed,
            status=self._status if self._failure is not None else 0,
            output_tokens=output_tokens,
            usage=usage,
            retry_after_s=retry_after_s(self._headers) if self._failure is not None else None,
            # What an engine says of the gateway's credential is no client's business.
            detail="" if kind is FailureKind.DENIED else self._said(),
        )
        if committed:
            self._flight.close(failed)
            self._break_off()
        else:
            self._flight.driver.tell(failed)

    def _break_off(self) -> None:
        """End what the client already has, so that it cannot be taken for the whole."""
        relay = self._relay
        if not isinstance(relay, Relay):
            self._exchange.abort()
        elif relay.saw_error is None:
            self._exchange.end(relay.error("the engine broke off its answer", Reason.UPSTREAM_ERROR.value))
        else:
            self._exchange.end()  # the engine's own error event has gone through

    def _said(self) -> str:
        """What the engine says of its error, short and on one line."""
        if self._failure is None:
            return ""
        said = self._upstream.censored(b"".join(self._parts))[:400].decode("utf-8", "replace")
        return printable(" ".join(said.split()))

    def _expect_more(self) -> None:
        if self._call is not None:
            self._call.expect_within(self._upstream.inter_token_timeout_s)

    def _lines(self) -> bytes:
        return governed_lines(self._command, self._flight.id, self._flight.driver.now() - self._sent_at)
