"""How much, and for how long, is a peer given? What can be set of servers and of clients."""

from __future__ import annotations

import msgspec


class ServerLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one client may send, and how long it may take."""

    head_bytes: int = 65_536
    headers: int = 100
    target_bytes: int = 8_192
    body_bytes: int = 32 * 2**20
    pipelined: int = 16
    """Requests that may wait behind the active one before reading pauses."""
    head_timeout_s: float = 10.0
    """From the first byte of a head to its last."""
    body_timeout_s: float = 60.0
    """From the end of the head to the end of the body."""
    idle_timeout_s: float = 75.0
    write_timeout_s: float = 30.0
    """A client that takes no byte for so long is cut."""


SERVER_LIMITS = ServerLimits()


class ClientLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How connections to one origin are made and kept."""

    connect_timeout_s: float = 5.0
    """From the look-up of the name to the end of the TLS handshake."""
    idle_timeout_s: float = 4.0
    """Below the keep-alive of vLLM and of llama.cpp (5 s), so that we close first."""
    head_bytes: int = 65_536
    max_idle: int = 1024


CLIENT_LIMITS = ClientLimits()
