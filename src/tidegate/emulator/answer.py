"""What becomes of one request between its submission and the last byte of its answer?

An answer writes at most once per step, whatever number of choices it has. A client that does not keep up
is owed a count of tokens, not a buffer of bytes; one that leaves gives its seats back at once.
"""

from __future__ import annotations

from collections.abc import Callable

from tidegate.emulator import words
from tidegate.emulator.engine import Choice, Engine
from tidegate.emulator.faults import Fault, Kind
from tidegate.emulator.jobs import Refusal
from tidegate.emulator.voices import Voice
from tidegate.net.exchange import Exchange
from tidegate.net.headers import Headers

JSON: Headers = [(b"content-type", b"application/json")]
EVENTS: Headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]
GARBAGE = b'data: {"id":"chatcmpl-\x00\xff<html>\n\n'

STRUCK = {
    Kind.ERROR_500: Refusal(500, "InternalServerError", "EngineCore encountered an issue (injected fault)"),
    Kind.BUSY_503: Refusal(503, "ServiceUnavailableError", "The server is overloaded (injected fault)"),
}


class Answer:
    """One request under way. `on_end` is called once, when it is over in whichever way."""

    __slots__ = (
        "_choices",
        "_chunk_tokens",
        "_engine",
        "_exchange",
        "_fault",
        "_on_end",
        "_open",
        "_opened",
        "_over",
        "_stream",
        "_voice",
    )

    def __init__(
        self,
        exchange: Exchange,
        engine: Engine,
        voice: Voice,
        choices: list[Choice],
        *,
        stream: bool,
        chunk_tokens: int,
        on_end: Callable[[Answer], None],
    ) -> None:
        self._exchange = exchange
        self._engine = engine
        self._voice = voice
        self._choices = choices
        self._stream = stream
        self._chunk_tokens = chunk_tokens
        self._on_end = on_end
        self._open = len(choices)  # choices whose last token was not written
        self._opened = False
        self._over = False
        self._fault: Fault | None = None

    def begin(self, fault: Fault | None) -> None:
        """Submit the work; a stream's head leaves at once, as vLLM's does."""
        self._fault = fault
        if fault is not None and not fault.after_tokens and fault.kind is not Kind.STALL:
            self._strike(fault)
            return
        for choice in self._choices:
            choice.taker = self
        self._exchange.on_gone = self._drop
        self._exchange.on_paused = self._paused
        if self._stream:
            self._exchange.start(200, EVENTS)
            self._exchange.write(b"")
        self._engine.submit(self._choices)

    def suffer(self, fault: Fault | None) -> None:
        """From now on this goes wrong with it; None: nothing any more."""
        self._fault = fault
        self.flush()

    def lose(self) -> None:
        """Break the connection: the replica has died."""
        self._exchange.abort()
        self._end()

    def flush(self) -> None:
        """Write what is ready."""
        if self._over or self._exchange.paused:
            return
        fault = self._fault
        limit = None if fault is None else fault.after_tokens or 0
        if self._stream:
            self._flush_stream(limit)
        elif all(choice.finished for choice in self._choices) and not self._due(limit):
            self._respond()
        if fault is not None and not self._over and self._due(limit):
            self._strike(fault)

    def _flush_stream(self, limit: int | None) -> None:
        parts: list[bytes] = []
        for choice in self._choices:
            ready = choice.ready if limit is None or choice.ready < limit else limit
            last = choice.finished and ready == choice.ready
            fresh = ready - choice.sent
            if fresh and (last or not choice.sent or fresh >= self._chunk_tokens or ready == limit):
                if not self._opened:
                    self._opened = True
                    parts.append(self._voice.opening())
                text = words.text(choice.seed, choice.sent, fresh)
                choice.sent = ready
                self._open -= last
                parts.append(self._voice.piece(choice, text, last))
        if not self._open:
            parts.append(self._voice.closing())
            self._exchange.end(b"".join(parts))
            self._end()
        elif parts:
            self._exchange.write(b"".join(parts))

    def _respond(self) -> None:
        texts = []
        for choice in self._choices:
            texts.append(words.text(choice.seed, 0, choice.ready))
            choice.sent = choice.ready
        self._exchange.respond(200, JSON, self._voice.whole(texts))
        self._end()

    def _due(self, limit: int | None) -> bool:
        """Whether a fault's time has come: some choice has as many tokens."""
        return limit is not None and any(choice.ready >= limit for choice in self._choices)

    def _strike(self, fault: Fault) -> None:
        if fault.kind is Kind.STALL:
            return  # it says nothing more until the fault is cleared
        exchange = self._exchange
        refusal = STRUCK.get(fault.kind)
        if fault.kind is Kind.CRASH:
            exchange.abort()
        elif refusal is None:
            if not exchange.started:
                exchange.start(200, EVENTS if self._stream else JSON)
            exchange.end(GARBAGE)
        elif exchange.started:
            exchange.end(self._voice.broken(refusal))
        else:
            headers = JSON.copy()
            if fault.retry_after_s is not None:
                headers.append((b"retry-after", b"%d" % fault.retry_after_s))
            exchange.respond(refusal.status, headers, self._voice.error(refusal))
        self._drop()

    def _paused(self, paused: bool) -> None:
        if not paused:
            self.flush()

    def _drop(self) -> None:
        """Nobody waits for it any more."""
        for choice in self._choices:
            self._engine.cancel(choice)
        self._end()

    def _end(self) -> None:
        if not self._over:
            self._over = True
            self._on_end(self)
