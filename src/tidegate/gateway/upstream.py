"""How is a replica spoken to? Its connections, its credential, and the request heads that it gets.

The client's credentials never travel on: of its headers only those on a short list do.
"""

from __future__ import annotations

from ssl import SSLContext
from typing import Final

from tidegate.config import Config, credential_of
from tidegate.config.schema import PoolConfig, ReplicaConfig, StreamUpstream
from tidegate.net.client import Call, Client, ResponseSink
from tidegate.net.exchange import Exchange
from tidegate.net.tls import client_context

FORWARDED: Final = frozenset(
    {
        b"traceparent",
        b"tracestate",
        b"user-agent",
        b"anthropic-version",
        b"anthropic-beta",
        b"openai-beta",
    }
)
"""Client headers that an engine may see."""

_ASKED_FOR_STREAMS: Final = {
    StreamUpstream.ALWAYS: True,
    StreamUpstream.AUTO: None,
    StreamUpstream.NEVER: False,
}


class Upstream:
    """One replica: a pool of connections and prepared request heads."""

    __slots__ = (
        "_credential",
        "_heads",
        "_tail",
        "allowed_fields",
        "asked_for_streams",
        "client",
        "config",
        "id",
        "inject_usage",
        "inter_token_timeout_s",
        "model",
        "pool_name",
    )

    def __init__(
        self, replica_id: str, pool_name: str, pool: PoolConfig, replica: ReplicaConfig, config: Config
    ):
        self.id = replica_id
        self.pool_name = pool_name
        self.config = replica
        self.model = replica.model or (None if pool.discover else pool_name)
        """The model's name at this engine; None leaves what the client said."""
        self.inject_usage = pool.inject_usage
        self.allowed_fields = frozenset(pool.allow_fields)
        self.asked_for_streams = _ASKED_FOR_STREAMS[pool.stream_upstream]
        """Whether whole answers are; None: if it is a llama.cpp."""
        self.inter_token_timeout_s = config.upstream.inter_token_timeout_s
        origin = replica.url
        self.client = Client(
            origin.host,
            origin.port,
            config.client_limits(),
            ssl=_client_context(config) if origin.tls else None,
            server_hostname=origin.host if origin.tls else None,
        )
        credential = credential_of(replica)
        self._credential = credential.encode() if credential else b""
        lines = f"host: {origin.authority}\r\naccept-encoding: identity\r\n".encode()
        lines += b"content-type: application/json\r\n"
        if self._credential:
            lines += b"authorization: Bearer " + self._credential + b"\r\n"
        self._tail = lines
        self._heads: dict[tuple[str, str], bytes] = {}

    def send(
        self, exchange: Exchange, request_id: bytes, body: bytes, sink: ResponseSink, query: str = ""
    ) -> Call:
        """Send a client's request with another body, and with that query; the answer comes to `sink`."""
        start = self._heads.get((exchange.method, exchange.path)) if not query else None
        if start is None:
            target = f"{self.config.url.path}{exchange.path}" + (f"?{query}" if query else "")
            start = f"{exchange.method} {target} HTTP/1.1\r\n".encode() + self._tail
            if not query:  # of which there is no end
                self._heads[exchange.method, exchange.path] = start
        forwarded = b""
        for name, value in exchange.headers:
            if name in FORWARDED:
                forwarded += b"%b: %b\r\n" % (name, value)
        head = b"%bcontent-length: %d\r\nx-request-id: %b\r\n%b\r\n" % (
            start,
            len(body),
            request_id,
            forwarded,
        )
        return self.client.send(head, body, sink)

    def censored(self, said: bytes) -> bytes:
        """What the engine said, without the credential, should it have repeated it."""
        return said.replace(self._credential, b"***") if self._credential else said

    def headers(self) -> list[tuple[bytes, bytes]]:
        """What a probe must carry."""
        if self._credential:
            return [(b"authorization", b"Bearer " + self._credential)]
        return []


def upstreams(config: Config) -> dict[str, Upstream]:
    """Every replica of the configuration by its id."""
    return {
        replica_id: Upstream(replica_id, pool_name, config.pools[pool_name], replica, config)
        for replica_id, (pool_name, replica) in config.replica_ids().items()
    }


def _client_context(config: Config) -> SSLContext:
    authorities = config.upstream.ca_file
    return client_context(str(authorities) if authorities is not None else None)
