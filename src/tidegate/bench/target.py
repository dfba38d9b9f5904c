"""Whom is the load for, and what does each request look like on the wire?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from tidegate import __version__
from tidegate.bench.prompts import BYTES_PER_TOKEN
from tidegate.config import Origin
from tidegate.core.errors import ConfigurationError, UpstreamError
from tidegate.net.client import Client
from tidegate.net.limits import ClientLimits
from tidegate.net.tls import client_context
from tidegate.workload.requests import PlannedRequest


def origin_of(url: str) -> Origin:
    """Where a URL leads; it may lack `http://` and may end in `/v1`. Raises ConfigurationError."""
    whole = url if "://" in url else f"http://{url}"
    try:
        return Origin.parse(whole.rstrip("/").removesuffix("/v1"))
    except ValueError:
        raise ConfigurationError(
            [f"{url!r} is not the URL of a server, as in http://127.0.0.1:8080"]
        ) from None


def client_of(origin: Origin, limits: ClientLimits) -> Client:
    """A client of that server."""
    return Client(origin.host, origin.port, limits, ssl=client_context() if origin.tls else None)


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """A server, a model of it, and the form in which chat completions are asked for."""

    url: str
    model: str
    keys: Mapping[str, str] = {}
    """API key by tenant; a tenant without one sends none."""
    stream: bool = True
    ignore_eos: bool = True
    """Make answers as long as planned. vLLM and llama.cpp know the field; a hosted API may refuse it."""
    bytes_per_token: float = BYTES_PER_TOKEN

    def __repr__(self) -> str:
        return f"Target({self.model!r} at {self.url!r})"  # without the keys


class Template:
    """What all requests of a run have in common, rendered once."""

    __slots__ = ("_after", "_before", "_heads")

    def __init__(self, target: Target) -> None:
        self._before = b'{"model":%b,"messages":[{"role":"user","content":"' % msgspec.json.encode(
            target.model
        )
        self._after = b'"}]'
        if target.stream:
            self._after += b',"stream":true,"stream_options":{"include_usage":true}'
        if target.ignore_eos:
            self._after += b',"ignore_eos":true'
        self._after += b',"max_tokens":%d}'
        origin = origin_of(target.url)
        self._heads = {tenant: _head(origin, key, target.stream) for tenant, key in target.keys.items()}
        self._heads[""] = _head(origin, "", target.stream)

    def message(self, planned: PlannedRequest, prompt: bytes) -> tuple[bytes, bytes]:
        """Head and body. `prompt` holds nothing that JSON would escape."""
        body = self._before + prompt + self._after % planned.output_tokens
        head = self._heads.get(planned.tenant) or self._heads[""]
        return head % len(body), body


async def first_model(url: str, key: str = "") -> str:
    """The first model that the server lists. Raises ConfigurationError when it lists none."""
    return (await listed_models(url, key))[0].id


async def listed_models(url: str, key: str = "") -> list[ListedModel]:
    """The models that the server lists, one at least. Raises ConfigurationError when it lists none."""
    origin = origin_of(url)
    client = client_of(origin, ClientLimits())
    headers = [(b"authorization", _bearer(key))] if key else []
    remedy = "is the server up, and the URL right? --model names a model without asking"
    try:
        response = await client.request("GET", f"{origin.path}/v1/models", headers)
    except (UpstreamError, OSError) as error:
        raise ConfigurationError(
            [f"{url}: no list of models ({error or 'no answer in time'}): {remedy}"]
        ) from None
    finally:
        await client.close()
    if response.status in (401, 403):
        raise ConfigurationError([f"{url}: /v1/models answered {response.status}: give a key that it knows"])
    if response.status != 200:
        raise ConfigurationError([f"{url}: /v1/models answered {response.status}: {remedy}"])
    try:
        models = msgspec.json.decode(response.body, type=_Models).data
    except msgspec.DecodeError:
        models = []
    if not models:
        raise ConfigurationError([f"{url}: /v1/models lists no model: {remedy}"])
    return models


class ListedModel(msgspec.Struct):
    """What `/v1/models` says of a model."""

    id: str
    max_model_len: Any = None
    """Of vLLM: prompt and output of one sequence."""
    owned_by: Any = None


class _Models(msgspec.Struct):
    data: list[ListedModel]


def _head(origin: Origin, key: str, stream: bool) -> bytes:
    """A request head with a place for the length of the body."""
    lines = [
        f"POST {origin.path}/v1/chat/completions HTTP/1.1",
        f"host: {origin.authority}",
        f"user-agent: tidegate-bench/{__version__}",
        f"accept: {'text/event-stream' if stream else 'application/json'}",
        "content-type: application/json",
    ]
    head = "\r\n".join(lines).encode()
    if key:
        head += b"\r\nauthorization: " + _bearer(key)
    return head.replace(b"%", b"%%") + b"\r\ncontent-length: %d\r\n\r\n"


def _bearer(key: str) -> bytes:
    if not (key.isascii() and key.isprintable()):
        raise ConfigurationError(["an API key is printable ASCII"])
    return b"Bearer " + key.encode()
