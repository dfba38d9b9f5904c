"""Which number stands for some bytes, in every process and every run?"""

from __future__ import annotations

from hashlib import blake2b


def hash64(source: bytes) -> int:
    """64 bits, evenly spread: BLAKE2b, most significant byte first. No secret."""
    return int.from_bytes(blake2b(source, digest_size=8).digest(), "big")
