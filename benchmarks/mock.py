"""A cheap engine: answers at once, or streams chunks at a fixed pace. `python -m benchmarks.mock PORT...`

It spends as little as Python can, so that it never is what limits a proxy: requests are found by their
framing, answers are bytes made beforehand, and all streams share one timer.
"""

from __future__ import annotations

import asyncio
import sys
from typing import cast

import uvloop

CHUNK = (
    b'data: {"id":"chatcmpl-0123456789abcdef","object":"chat.completion.chunk","created":1760000000,'
    b'"model":"mock","choices":[{"index":0,"delta":{"content":" a token of text"},"logprobs":null,'
    b'"finish_reason":null}]}\n\n'
)
LAST = (
    b'data: {"id":"chatcmpl-0123456789abcdef","object":"chat.completion.chunk","created":1760000000,'
    b'"model":"mock","choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}]}\n\n'
)
USAGE = (
    b'data: {"id":"chatcmpl-0123456789abcdef","object":"chat.completion.chunk","created":1760000000,'
    b'"model":"mock","choices":[],"usage":{"prompt_tokens":180,"completion_tokens":50,"total_tokens":230}}\n\n'
)
DONE = b"data: [DONE]\n\n"
STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nserver: mock\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)
ANSWER = (
    b'{"id":"chatcmpl-0123456789abcdef","object":"chat.completion","created":1760000000,"model":"mock",'
    b'"choices":[{"index":0,"message":{"role":"assistant","content":"'
    + b"words of an answer "
    * 16
    + b'"},"logprobs":null,'
    b'"finish_reason":"stop"}],"usage":{"prompt_tokens":180,"completion_tokens":50,"total_tokens":230}}'
)
MODELS = b'{"object":"list","data":[{"id":"mock","object":"model","created":1760000000,"owned_by":"mock"}]}'
PACE_S = 0.02
PHASES = 20
CHUNKS = 200


def whole(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (
        len(body),
        body,
    )


def framed(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


ANSWER_BYTES, MODELS_BYTES = whole(ANSWER), whole(MODELS)
CHUNK_BYTES = framed(CHUNK)
LAST_BYTES = framed(LAST)
USAGE_BYTES = framed(USAGE)
DONE_BYTES = framed(DONE) + b"0\r\n\r\n"


class Pacer:
    """Sends every open stream one chunk each `PACE_S`, a phase of them at a time."""

    def __init__(self) -> None:
        self.phases: list[dict[Mock, int]] = [{} for _ in range(PHASES)]
        self.next_phase = 0
        self.at = 0.0

    def start(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.at = self.loop.time()
        self._tick()

    def add(self, stream: Mock) -> None:
        self.phases[min(range(PHASES), key=lambda index: len(self.phases[index]))][stream] = CHUNKS

    def _tick(self) -> None:
        phase = self.phases[self.next_phase]
        self.next_phase = (self.next_phase + 1) % PHASES
        for stream, left in list(phase.items()):
            if stream.closed:
                del phase[stream]
            elif left:
                phase[stream] = left - 1
                stream.transport.write(CHUNK_BYTES)
            else:
                del phase[stream]
                usage = USAGE_BYTES if stream.wants_usage else b""
                stream.transport.write(LAST_BYTES + usage + DONE_BYTES)
        self.at += PACE_S / PHASES
        self.loop.call_later(max(0.0, self.at - self.loop.time()), self._tick)


PACER = Pacer()


class Mock(asyncio.Protocol):
    """One connection of a proxy."""

    transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name
        self.received = b""
        self.closed = False
        self.wants_usage = False

    def connection_lost(self, error: Exception | None) -> None:
        self.closed = True

    def data_received(self, data: bytes) -> None:
        self.received += data
        while (end := self.received.find(b"\r\n\r\n")) >= 0:
            head = self.received[:end].lower()
            at = head.find(b"content-length:")
            length = int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
            if len(self.received) < end + 4 + length:
                return
            body = self.received[end + 4 : end + 4 + length]
            self.received = self.received[end + 4 + length :]
            self.answer(head, body)

    def answer(self, head: bytes, body: bytes) -> None:
        if head.startswith(b"get"):
            self.transport.write(MODELS_BYTES)
        elif b'"stream":true' in body:
            self.wants_usage = b"include_usage" in body
            self.transport.write(STREAM_HEAD)
            PACER.add(self)
        else:
            self.transport.write(ANSWER_BYTES)


async def main(ports: list[int]) -> None:
    loop = asyncio.get_running_loop()
    PACER.start()
    for port in ports:
        await loop.create_server(Mock, "127.0.0.1", port, backlog=4096)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(main([int(port) for port in sys.argv[1:]]))
