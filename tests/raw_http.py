"""What goes over the wire when no SDK smooths it?

For tests that read exact bytes, or leave in the middle of an answer.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from typing import Any, NamedTuple
from urllib.parse import urlsplit

PATIENCE_S = 60.0


class Reply(NamedTuple):
    """A whole answer."""

    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes

    def json(self) -> Any:
        """The body, decoded."""
        return json.loads(self.body)


@contextmanager
def posted(url: str, body: Mapping[str, Any]) -> Iterator[HTTPResponse]:
    """POST `body` and give the answer as far as its head; leaving the block hangs up."""
    parts = urlsplit(url)
    connection = HTTPConnection(parts.hostname or "", parts.port, timeout=PATIENCE_S)
    try:
        connection.request("POST", parts.path, json.dumps(body), {"content-type": "application/json"})
        response = connection.getresponse()
        try:
            yield response
        finally:
            response.close()
    finally:
        connection.close()


def post(url: str, body: Mapping[str, Any]) -> Reply:
    """POST `body` and read the answer to its end."""
    with posted(url, body) as response:
        headers = {name.lower(): value for name, value in response.getheaders()}
        return Reply(response.status, headers, response.read())


@contextmanager
def sent(url: str, body: Mapping[str, Any]) -> Iterator[None]:
    """POST `body` and read nothing; leaving the block hangs up."""
    parts = urlsplit(url)
    connection = HTTPConnection(parts.hostname or "", parts.port, timeout=PATIENCE_S)
    try:
        connection.request("POST", parts.path, json.dumps(body), {"content-type": "application/json"})
        yield
    finally:
        connection.close()


def eventually(holds: Callable[[], bool], what: str) -> None:
    """Return once `holds()`; AssertionError naming `what` if it never does."""
    give_up_at = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < give_up_at, f"never: {what}"
        time.sleep(0.01)
