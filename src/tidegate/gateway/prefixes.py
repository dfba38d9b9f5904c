"""By what is the beginning of a prompt known again, when the next one comes?

By a hash for each of its first blocks of text, and each is a hash of all before it too. Text is the request's
own JSON: a conversation that goes on repeats its messages byte for byte. What a chat template makes of it is
not known here and need not be: the same text makes the same tokens.

Tenants share nothing: hashes are salted by tenant and by a key of the process. Otherwise whoever guesses how
another tenant's prompt begins would be sent to the replica that has it cached, and could tell by the clock
that the guess was right. (By chance it may still be sent there: only the engine can part its cache.)
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b

import msgspec

from tidegate.config import Config
from tidegate.policy.settings import FallbackStep, RoutingPolicy

BLOCK_BYTES = 1_024
"""About 256 tokens, 16 blocks of vLLM's cache. Of a block that is shared in part nothing is seen."""
BLOCKS_MAX = 64
"""A prompt is known by its first 64 KiB, about 16,000 tokens: what parts conversations parts them before."""

_FIELDS = ("tools", "system", "instructions", "messages", "prompt", "input")
"""What engines read of a request, in the order in which their templates write it."""


class Prefixes:
    """Names beginnings of prompts. `key` is the process's secret."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def of(self, tenant: str, fields: Mapping[str, msgspec.Raw]) -> tuple[int, ...]:
        """64-bit names of the full blocks with which the request in `fields` begins, at most BLOCKS_MAX."""
        text = _beginning(fields)
        so_far = blake2b(tenant.encode() + b"\0", digest_size=8, key=self._key)
        names: list[int] = []
        for end in range(BLOCK_BYTES, len(text) + 1, BLOCK_BYTES):
            so_far.update(text[end - BLOCK_BYTES : end])
            names.append(int.from_bytes(so_far.copy().digest(), "big"))
        return tuple(names)


def pools_by_prefix(config: Config) -> frozenset[str]:
    """Pools whose requests are routed by prefix, there or where they may fall back to."""
    routed = {
        name for name, pool in config.pools.items() if pool.routing.policy is RoutingPolicy.PREFIX_AFFINITY
    }
    return frozenset(
        name
        for name, pool in config.pools.items()
        if name in routed
        or any(isinstance(step, FallbackStep) and step.pool in routed for step in pool.degradation)
    )


def _beginning(fields: Mapping[str, msgspec.Raw]) -> memoryview:
    """The text that an engine reads first, as far as it is looked at."""
    found = bytearray()
    for name in _FIELDS:
        raw = fields.get(name)
        if raw is not None:
            found += memoryview(raw)[: BLOCKS_MAX * BLOCK_BYTES - len(found)]
    return memoryview(found)
