"""What does a model that does not exist say, and how long is it?

All text is made of three-letter words behind a blank, so that a token is exactly four bytes, which is also
how prompts are counted: an answer sent back as history counts what it counted as output. The same prompt
always gets the same answer.
"""

from __future__ import annotations

import random
from zlib import crc32

BYTES_PER_TOKEN = 4
TEMPLATE_TOKENS = 8
"""What a chat template adds to the messages."""

_VOCABULARY = (
    "and ant ark art ash bay bee bow box cat cod cow cup day den dew dog elk elm far fen fig fin fir fog fox "
    "gem hay hen hut ice ink ivy jar jay key kit lake log map may moss net nut oak oar one orb owl pea "
    "pen pie pin pod rain ram red reed rim rye salt sap sea six sky sun tar tea ten tide tin toy two urn van "
    "vat war wax way web wet yak yew zoo"
)
_PERIOD = 4096  # tokens after which the text repeats


def _endless() -> bytes:
    words = [word for word in _VOCABULARY.split() if len(word) + 1 == BYTES_PER_TOKEN]
    chosen = random.Random(4).choices(words, k=_PERIOD)  # any fixed seed
    return "".join(" " + word for word in chosen).encode()


_TEXT = _endless()


def text(seed: int, start: int, tokens: int) -> bytes:
    """Tokens `start` to `start + tokens` of the answer that `seed` stands for; ASCII, nothing to escape."""
    first = (seed + start) % _PERIOD
    last = first + tokens
    if last <= _PERIOD:
        return _TEXT[BYTES_PER_TOKEN * first : BYTES_PER_TOKEN * last]
    whole, rest = divmod(last, _PERIOD)
    return _TEXT[BYTES_PER_TOKEN * first :] + _TEXT * (whole - 1) + _TEXT[: BYTES_PER_TOKEN * rest]


def natural_tokens(seed: int) -> int:
    """How long the model would speak if nothing bounded it: 8 to 512 tokens, 120 on average."""
    return int(8 * 2 ** (6 * mixed(seed, 1) / 2**32))


def mixed(seed: int, salt: int) -> int:
    """Another 32-bit seed from this one."""
    return crc32(b"%d/%d" % (seed, salt))


def tokens_of(size_bytes: int) -> int:
    """Tokens in so many bytes of UTF-8 text."""
    return -(-size_bytes // BYTES_PER_TOKEN)


def token_ids(text: bytes) -> list[int]:
    """A token id for every four bytes."""
    return [crc32(text[at : at + BYTES_PER_TOKEN]) % 32_000 for at in range(0, len(text), BYTES_PER_TOKEN)]
