"""Which paths compute something, and how is each one's body read and answered?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from tidegate.emulator import jobs
from tidegate.emulator.engine import Choice
from tidegate.emulator.jobs import Job, Refusal
from tidegate.emulator.pooling import PoolingVoice, embeddings, ranking
from tidegate.emulator.voices import (
    Answered,
    CompletionsVoice,
    MessagesVoice,
    ResponsesVoice,
    Voice,
    messages_error,
    openai_error,
)


class Api:
    """One path: its body's type, what that asks for, and the voice that answers."""

    __slots__ = ("error", "id_prefix", "job", "read", "voice")

    def __init__(
        self,
        id_prefix: str,
        body: type[Any],
        job: Callable[[Any], Job | Refusal],
        voice: Callable[[Answered, Any, list[Choice]], Voice],
        error: Callable[[Refusal], bytes] = openai_error,
    ) -> None:
        self.id_prefix = id_prefix
        self.read: Callable[[bytes], Any] = msgspec.json.Decoder(body).decode
        self.job = job
        self.voice = voice
        self.error = error


def _chat(about: Answered, body: jobs.ChatBody, choices: list[Choice]) -> Voice:
    return CompletionsVoice(about, choices, chat=True)


def _completion(about: Answered, body: jobs.CompletionBody, choices: list[Choice]) -> Voice:
    return CompletionsVoice(about, choices, chat=False)


def _response(about: Answered, body: jobs.ResponsesBody, choices: list[Choice]) -> Voice:
    return ResponsesVoice(about, choices)


def _message(about: Answered, body: jobs.MessagesBody, choices: list[Choice]) -> Voice:
    return MessagesVoice(about, choices)


def _embeddings(about: Answered, body: jobs.EmbeddingsBody, choices: list[Choice]) -> Voice:
    return PoolingVoice(lambda: embeddings(about, body, choices))


def _ranking(about: Answered, body: jobs.RerankBody, choices: list[Choice]) -> Voice:
    return PoolingVoice(lambda: ranking(about, body, choices))


_RERANK = Api("rerank-", jobs.RerankBody, jobs.rerank_job, _ranking)

APIS: dict[str, Api] = {
    "/v1/chat/completions": Api("chatcmpl-", jobs.ChatBody, jobs.chat_job, _chat),
    "/v1/completions": Api("cmpl-", jobs.CompletionBody, jobs.completion_job, _completion),
    "/v1/responses": Api("resp_", jobs.ResponsesBody, jobs.responses_job, _response),
    "/v1/messages": Api("msg_", jobs.MessagesBody, jobs.messages_job, _message, messages_error),
    "/v1/embeddings": Api("embd-", jobs.EmbeddingsBody, jobs.embeddings_job, _embeddings),
    "/v1/rerank": _RERANK,
    "/v2/rerank": _RERANK,
    "/rerank": _RERANK,
}
