"""How is an API key made, and how is it recognised without being kept?

A key is 256 random bits, so one fast hash is enough: there is no dictionary to try (a password would
need a slow one). Source: NIST SP 800-63B section 5.1.2 on look-up secrets with at least 112 bits.
"""

from __future__ import annotations

from hashlib import sha256
from secrets import token_urlsafe

PREFIX = "tg-"
_KEY_BYTES = 32


def new_key() -> tuple[str, str]:
    """A new key, and the digest by which it is known from now on."""
    plain = PREFIX + token_urlsafe(_KEY_BYTES)
    return plain, digest_of(plain.encode())


def digest_of(plain: bytes) -> str:
    """SHA-256 of a key as it came over the wire, in lower-case hex."""
    return sha256(plain).hexdigest()
