"""What does a request say, when only its length matters?

Words of three letters and a space: nearly every tokenizer has them as one token each, hence 4 bytes per
token. Every prompt of a run begins differently, so that a prefix cache of the server finds nothing to
reuse and the prompt costs what its length says.
"""

from __future__ import annotations

from random import Random

_WORDS = """
the and for you not are but had has was all any can her one our out day get him his how man new now old
see two way who boy did its let put say she too use dad mom sun air big red top box car cat dog end eye
far few got job key law low run sea try yes war
""".split()  # noqa: SIM905 - 64 of them, so that a number is a few words
WORD_BYTES = 4
BYTES_PER_TOKEN = 4.0
_HEAD_WORDS = 8
_POOL_WORDS = 2**14
_BASE = len(_WORDS)


class Prompts:
    """Texts by number, below 2^24: the same for the same seed, and from 4 tokens on no two alike."""

    __slots__ = ("_bytes_per_token", "_pool", "_salt")

    def __init__(self, seed: int, bytes_per_token: float = BYTES_PER_TOKEN) -> None:
        rng = Random(seed)
        self._salt = rng.getrandbits(20)
        self._pool = " ".join(rng.choices(_WORDS, k=_POOL_WORDS)).encode() + b" "
        self._bytes_per_token = bytes_per_token

    def text(self, number: int, tokens: int) -> bytes:
        """ASCII of about `tokens` tokens, with nothing in it that JSON would escape."""
        size = max(1, round(tokens * self._bytes_per_token))
        head = self._head(number)
        start = (number * 7919 * WORD_BYTES) % len(self._pool)
        body = self._pool[start : start + size]
        while len(body) < size:
            body += self._pool[: size - len(body)]
        return (head + body)[:size]

    def _head(self, number: int) -> bytes:
        """Number and salt as words, lowest digit first: neighbours differ from their first word on."""
        rest, words = (self._salt << 24) | number, []
        for _ in range(_HEAD_WORDS):
            rest, digit = divmod(rest, _BASE)
            words.append(_WORDS[digit])
        return (" ".join(words) + " ").encode()
