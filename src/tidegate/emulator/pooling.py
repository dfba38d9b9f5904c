"""How do answers read that generate nothing: embeddings and rerank?

Vectors and scores are made from the text's checksum: the same text always has the same ones.
"""

from __future__ import annotations

import random
import struct
from base64 import b64encode
from collections.abc import Callable
from collections.abc import Sequence as Several
from math import sqrt
from typing import Any

from tidegate.emulator.engine import Choice
from tidegate.emulator.jobs import EmbeddingsBody, Refusal, RerankBody
from tidegate.emulator.voices import Answered, encoded, openai_error

DIMENSIONS = 256


class PoolingVoice:
    """A voice for answers that are never streamed; `render` makes the body once all is computed."""

    __slots__ = ("_render",)

    def __init__(self, render: Callable[[], dict[str, Any]]) -> None:
        self._render = render

    def opening(self) -> bytes:
        """Nothing."""
        return b""

    def piece(self, choice: Choice, text: bytes, last: bool) -> bytes:
        """Nothing."""
        return b""

    def closing(self) -> bytes:
        """Nothing."""
        return b""

    def whole(self, texts: Several[bytes]) -> bytes:
        """Vectors or scores."""
        return encoded(self._render())

    def error(self, refusal: Refusal) -> bytes:
        """As vLLM words it."""
        return openai_error(refusal)

    def broken(self, refusal: Refusal) -> bytes:
        """Nothing is begun that could break."""
        return b""


def embeddings(about: Answered, body: EmbeddingsBody, choices: Several[Choice]) -> dict[str, Any]:
    """One vector per input, as numbers or as base64 of little-endian floats."""
    dimensions = body.dimensions or DIMENSIONS
    data = []
    for choice in choices:
        vector: list[float] | str = unit_vector(choice.seed, dimensions)
        if body.encoding_format == "base64":
            vector = b64encode(struct.pack(f"<{dimensions}f", *vector)).decode()
        data.append({"object": "embedding", "index": choice.index, "embedding": vector})
    usage = {"prompt_tokens": about.prompt_tokens, "total_tokens": about.prompt_tokens}
    return {
        "id": about.answer_id,
        "object": "list",
        "created": about.created_at,
        "model": about.model,
        "data": data,
        "usage": usage,
    }


def ranking(about: Answered, body: RerankBody, choices: Several[Choice]) -> dict[str, Any]:
    """The documents with their scores, best first."""
    best_first = sorted(choices, key=lambda choice: (-choice.seed, choice.index))
    results = [
        {
            "index": choice.index,
            "document": _document(body.documents[choice.index]),
            "relevance_score": choice.seed / 2**32,
        }
        for choice in best_first[: body.top_n]
    ]
    usage = {"prompt_tokens": about.prompt_tokens, "total_tokens": about.prompt_tokens}
    return {"id": about.answer_id, "model": about.model, "usage": usage, "results": results}


def unit_vector(seed: int, dimensions: int) -> list[float]:
    """A vector of length 1."""
    rng = random.Random(seed)
    values = [rng.gauss(0, 1) for _ in range(dimensions)]
    length = sqrt(sum(value * value for value in values))
    return [value / length for value in values]


def _document(document: str | dict[str, Any]) -> dict[str, Any]:
    return {"text": document} if isinstance(document, str) else document
