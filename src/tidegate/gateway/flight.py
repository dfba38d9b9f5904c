"""One request on its way, from its client's exchange through however many attempts to its one end.

It does what the governor commands and reports what happens; it decides nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.core.messages import (
    Abort,
    Cancelled,
    Dispatch,
    Event,
    Evict,
    FailureKind,
    Reject,
    Truncate,
)
from tidegate.gateway.assembly import Assembly, can_assemble
from tidegate.gateway.attempt import Attempt
from tidegate.gateway.bodies import Body
from tidegate.gateway.streams import Relay
from tidegate.net.exchange import Exchange

if TYPE_CHECKING:
    from tidegate.gateway.app import Gateway


class Flight:
    """A governed request."""

    __slots__ = (
        "_attempt",
        "_body",
        "_exchange",
        "_gateway",
        "_number",
        "api",
        "driver",
        "id",
    )

    def __init__(
        self, gateway: Gateway, exchange: Exchange, number: int, body: Body | None, request_id: bytes
    ) -> None:
        self.id = request_id
        """As clients and engines know it."""
        self._number = number  # as the governor knows it
        self.api = body.api if body is not None else None
        """None: an extra route, passed on as it is."""
        self.driver = gateway.driver
        self._gateway = gateway
        self._exchange = exchange
        self._body = body
        self._attempt: Attempt | None = None
        exchange.on_gone = self._on_gone
        exchange.on_paused = self._on_paused

    # -- commands ---------------------------------------------------------------------------------

    def dispatch(self, command: Dispatch) -> None:
        """Send an attempt."""
        gateway, body = self._gateway, self._body
        upstream = gateway.upstreams[command.replica]
        relay: Relay | Assembly | None = None
        query = ""  # a governed route is asked with what was judged, and nothing beside it
        if body is None:
            sent, query = self._exchange.body, self._exchange.query
        else:
            assembled = not body.stream and gateway.assembles(upstream) and can_assemble(body.api)
            sent = body.write(
                model=upstream.model if upstream.model != body.model else None,
                max_tokens=command.max_tokens,
                inject_usage=upstream.inject_usage,
                as_stream=assembled,
                keep=upstream.allowed_fields,
            )
            if assembled or body.stream:
                withheld = upstream.inject_usage and not body.wants_usage
                relay = self._reader(body, assembled, withheld, gateway.bytes_per_token(command.pool))
        attempt = self._attempt = Attempt(self, self._exchange, command, upstream, relay, self.driver.now())
        attempt.send(sent, self.id, query)

    @staticmethod
    def _reader(body: Body, assembled: bool, withhold_usage: bool, ratio: float) -> Relay | Assembly:
        """Who reads the stream that was asked for."""
        if assembled:
            return Assembly(body.api, choices=body.answers, prompts=body.prompts, bytes_per_token=ratio)
        return Relay(
            body.api,
            withhold_usage=withhold_usage,
            choices=body.answers,
            prompts=body.prompts,
            bytes_per_token=ratio,
            prompt_tokens=int(body.prompt_bytes / ratio) + body.prompt_tokens_known,
        )

    def refuse(self, command: Reject | Evict) -> None:
        """Say no. Where a part of an answer has been sent already, break it off instead."""
        self._stop()
        self._attempt = None
        exchange = self._exchange
        if exchange.started:
            exchange.abort()
            return
        self._gateway.refuse(
            exchange,
            command.reason,
            command.detail,
            request_id=self.id,
            api=self.api,
            retry_after_s=command.retry_after_s,
            quota=command.quota,
            final=isinstance(command, Evict) and command.final,
        )

    def truncate(self, command: Truncate) -> None:
        """End a stream here, and stop the engine."""
        assert self._attempt is not None
        self._attempt.truncate(command.reason)

    def abort(self, command: Abort) -> None:
        """Stop the attempt."""
        self._stop()

    # -- the client -------------------------------------------------------------------------------

    def _on_gone(self) -> None:
        """The client left: the engine is stopped at once, then the permit is given back."""
        usage, output_tokens = self._attempt.produced() if self._attempt is not None else (None, 0)
        try:
            self._stop()
        finally:
            self.close(Cancelled(request_id=self._number, output_tokens=output_tokens, usage=usage))

    def _on_paused(self, paused: bool) -> None:
        if self._attempt is not None:
            self._attempt.pause(paused)

    def _stop(self) -> None:
        if self._attempt is not None:
            self._attempt.stop()

    # -- its attempt's side -----------------------------------------------------------------------

    def commit(self) -> None:
        """An answer begins: there will be no other attempt, and a long prompt need not be kept."""
        self._body = None

    def bytes_per_token(self, pool: str) -> float:
        """As learned by the pool."""
        return self._gateway.bytes_per_token(pool)

    def close(self, event: Event) -> None:
        """Report the end. The last that is heard of this request."""
        self._attempt = None  # which holds this: both go without waiting for the collector
        self.driver.flights.pop(self._number, None)
        self.driver.tell(event)

    def note_failure(self, replica: str, kind: FailureKind, detail: str) -> None:
        """One line in the log."""
        self._gateway.note_failure(replica, self.id, kind, detail)
