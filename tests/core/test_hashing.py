"""A hash is the same wherever it is made."""

from __future__ import annotations

from tidegate.core.hashing import hash64


def test_a_hash_is_that_of_blake2b() -> None:
    """As `printf 'session 7' | b2sum -l 64` prints it."""
    assert f"{hash64(b'session 7'):016x}" == "4a59d6bfffa49d1e"
