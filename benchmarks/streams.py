"""Open many streams at once and check each to its end. `python -m benchmarks.streams PORT STREAMS [KEY]`

Prints one JSON object: chunks seen, streams that were right to the last chunk and `[DONE]`, and every error.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import cast

import uvloop

from benchmarks.mock import CHUNKS

PATIENCE_S = 30.0

BODY = json.dumps(
    {
        "model": "mock",
        "stream": True,
        "max_tokens": CHUNKS,
        "messages": [{"role": "user", "content": "the quick brown fox jumps over the lazy dog " * 16}],
    },
    separators=(",", ":"),
).encode()


class Stream(asyncio.Protocol):
    """One request, counted."""

    def __init__(self, request: bytes) -> None:
        self.request = request
        self.done = asyncio.get_running_loop().create_future()
        self.chunks = 0
        self.tail = b""
        self.status = b""
        self.first_at = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name
        self.started_at = time.monotonic()
        self.transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        if not self.status:
            self.status = data[9:12]
        self.chunks += data.count(b'"content":')
        if self.chunks and not self.first_at:
            self.first_at = time.monotonic()
        self.tail = (self.tail + data)[-64:]
        if self.tail.endswith(b"0\r\n\r\n"):
            self.finish("ok" if b"data: [DONE]\n\n" in self.tail else "no [DONE]")

    def connection_lost(self, error: Exception | None) -> None:
        self.finish("cut")

    def finish(self, outcome: str) -> None:
        if not self.done.done():
            if outcome == "ok" and (self.status != b"200" or self.chunks != CHUNKS):
                outcome = f"status {self.status.decode()}, {self.chunks} chunks"
            self.done.set_result(outcome)
            self.transport.close()


def give_up(streams: list[Stream]) -> None:
    for stream in streams:
        stream.finish("late")


async def main(port: int, streams: int, key: str) -> None:
    request = (
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
        b"authorization: Bearer %b\r\ncontent-length: %d\r\n\r\n%b" % (key.encode(), len(BODY), BODY)
    )
    loop = asyncio.get_running_loop()
    made = await asyncio.gather(
        *(loop.create_connection(lambda: Stream(request), "127.0.0.1", port) for _ in range(streams)),
        return_exceptions=True,
    )
    opened = [pair[1] for pair in made if not isinstance(pair, BaseException)]
    outcomes: dict[str, int] = {}
    loop.call_later(PATIENCE_S, give_up, opened)
    for outcome in await asyncio.gather(*(stream.done for stream in opened)):
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
    if len(opened) < streams:
        outcomes["not connected"] = streams - len(opened)
    firsts = sorted(stream.first_at - stream.started_at for stream in opened if stream.first_at)
    print(
        json.dumps(
            {
                "chunks": sum(stream.chunks for stream in opened),
                "outcomes": outcomes,
                "ttft_p50_s": firsts[len(firsts) // 2] if firsts else None,
                "ttft_max_s": firsts[-1] if firsts else None,
            }
        )
    )


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else "none"))
