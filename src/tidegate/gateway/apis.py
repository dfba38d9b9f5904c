"""Which routes are understood, and how do their request and answer forms differ?

Everything that is one route's own is said here once; `bodies`, `prompts` and `streams` read it.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Form(StrEnum):
    """How an answer, its stream and its errors are written."""

    CHAT = "chat"
    """Chunks with `delta`, then `data: [DONE]`."""
    TEXT = "text"
    """Chunks with `text`, then `data: [DONE]`."""
    RESPONSES = "responses"
    """Named, numbered events, then `response.completed`."""
    MESSAGES = "messages"
    """Anthropic's named events, then `message_stop`."""
    WHOLE = "whole"
    """One JSON object; never a stream."""


class Api(msgspec.Struct, frozen=True, kw_only=True):
    """One route: what its body may hold that decides, and what its answer looks like."""

    name: str
    """Label in metrics and logs."""
    path: str
    form: Form
    generates: bool = True
    """False for embeddings and rerank: no output tokens, no stream."""
    bounds: tuple[str, ...] = ()
    """Fields that some engine reads as output bound here. Where the client set none, the first is written."""
    asks_usage: bool = False
    """A stream tells its usage only if `stream_options.include_usage` asks; else always, or never streams."""
    texts: tuple[str, ...] = ()
    """Fields that become prompt text as a whole."""
    batch: str | None = None
    """Field that is one prompt or a list of them, as text or as token ids."""


# llama.cpp reads `n_predict` before the OpenAI names, on every route that generates (tools/server, schema and
# task), so it is a bound here too: a client must not be metered by one name and served by another.
# `max_tokens` comes first: every engine knows it; older llama.cpp and vLLM overlook `max_completion_tokens`.
_BOUNDS = ("max_tokens", "max_completion_tokens", "n_predict")

CHAT = Api(
    name="chat",
    path="/v1/chat/completions",
    form=Form.CHAT,
    bounds=_BOUNDS,
    asks_usage=True,
    texts=("messages", "tools", "functions", "documents"),
)
COMPLETIONS = Api(
    name="completions",
    path="/v1/completions",
    form=Form.TEXT,
    bounds=_BOUNDS,
    asks_usage=True,
    texts=("suffix", "prompt_embeds"),
    batch="prompt",
)
RESPONSES = Api(
    name="responses",
    path="/v1/responses",
    form=Form.RESPONSES,
    bounds=("max_output_tokens", *_BOUNDS),
    texts=("instructions", "input", "tools"),
)
MESSAGES = Api(
    name="messages",
    path="/v1/messages",
    form=Form.MESSAGES,
    bounds=_BOUNDS,
    texts=("system", "messages", "tools"),
)
EMBEDDINGS = Api(
    name="embeddings",
    path="/v1/embeddings",
    form=Form.WHOLE,
    generates=False,
    texts=("messages",),
    batch="input",
)
RERANK = Api(
    name="rerank",
    path="/v1/rerank",
    form=Form.WHOLE,
    generates=False,
    texts=("query",),
    batch="documents",
)

APIS: dict[str, Api] = {api.path: api for api in (CHAT, COMPLETIONS, RESPONSES, MESSAGES, EMBEDDINGS, RERANK)}
"""By path, as the request line has it."""
