"""What does a request ask the replica to compute?

Each API's body is read into one `Job`, or refused as vLLM would refuse it. Fields that change neither
cost nor form of the answer (temperature, stop, ...) are passed over.
"""

from __future__ import annotations

from typing import Any
from zlib import crc32

import msgspec

from tidegate.emulator import words

IMAGE_TOKENS = 256  # per image or audio part; real models take 85 to several thousand
DEFAULT_MAX_TOKENS = 256
"""Where the model stops by itself if the request sets no bound."""
MAX_CHOICES = 128
MAX_DIMENSIONS = 8_192

_TEXT_KEYS = ("content", "text", "output", "arguments", "function", "tool_calls", "input", "thinking")
_MEDIA = frozenset({"image_url", "input_image", "image", "input_audio", "audio_url", "video_url"})


class Refusal(msgspec.Struct, frozen=True):
    """Why a request is not served, in vLLM's terms."""

    status: int
    error_type: str
    message: str
    param: str | None = None


class Prompt(msgspec.Struct, frozen=True):
    """One prompt: its size, and a number that stands for its content."""

    tokens: int
    seed: int


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """Prompts to compute and how much is to be said to each."""

    model: str | None
    prompts: list[Prompt]
    choices: int = 1
    """Answers per prompt."""
    max_tokens: int | None = None
    min_tokens: int = 0
    ignore_eos: bool = False
    generates: bool = True
    stream: bool = False
    include_usage: bool = False
    continuous_usage: bool = False

    def output_tokens(self, seed: int, room: int) -> tuple[int, bool]:
        """How long an answer gets where `room` tokens are left, and whether it was cut at its bound."""
        bound = self.max_tokens
        if bound is None:
            bound = min(max(DEFAULT_MAX_TOKENS, self.min_tokens), room)
        natural = bound if self.ignore_eos else max(self.min_tokens, words.natural_tokens(seed))
        bounded = self.max_tokens is not None or self.ignore_eos or bound == room
        return min(natural, bound), bounded and natural >= bound


def bad_request(message: str, param: str | None = None) -> Refusal:
    """A 400."""
    return Refusal(400, "BadRequestError", message, param)


Texts = str | list[str | int | list[int]]
"""One text or several, one list of token ids or several. (A narrower union cannot be decoded.)"""


# -- bodies -----------------------------------------------------------------------------------------------


class StreamOptions(msgspec.Struct):
    """`stream_options`."""

    include_usage: bool = False
    continuous_usage_stats: bool = False


class Generating(msgspec.Struct, kw_only=True):
    """What chat and completions have in common."""

    model: str | None = None
    n: int | None = None
    max_tokens: int | None = None
    min_tokens: int | None = None
    ignore_eos: bool | None = None
    seed: int | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None


class ChatBody(Generating, kw_only=True):
    """POST /v1/chat/completions."""

    messages: list[dict[str, Any]]
    max_completion_tokens: int | None = None
    tools: list[dict[str, Any]] | None = None


class CompletionBody(Generating, kw_only=True):
    """POST /v1/completions."""

    prompt: Texts


class ResponsesBody(msgspec.Struct, kw_only=True):
    """POST /v1/responses."""

    input: str | list[dict[str, Any]]
    model: str | None = None
    instructions: str | None = None
    max_output_tokens: int | None = None
    tools: list[dict[str, Any]] | None = None
    stream: bool | None = None


class MessagesBody(msgspec.Struct, kw_only=True):
    """POST /v1/messages."""

    messages: list[dict[str, Any]]
    max_tokens: int
    model: str | None = None
    system: str | list[dict[str, Any]] | None = None
    tools: list[dict[str, Any]] | None = None
    stream: bool | None = None


class EmbeddingsBody(msgspec.Struct, kw_only=True):
    """POST /v1/embeddings."""

    input: Texts
    model: str | None = None
    encoding_format: str = "float"
    dimensions: int | None = None


class RerankBody(msgspec.Struct, kw_only=True):
    """POST /v1/rerank."""

    query: str
    documents: list[str | dict[str, Any]]
    model: str | None = None
    top_n: int | None = None


class TokenizeBody(msgspec.Struct, kw_only=True):
    """POST /tokenize."""

    prompt: str | None = None
    messages: list[dict[str, Any]] | None = None
    model: str | None = None


# -- jobs -------------------------------------------------------------------------------------------------


def chat_job(body: ChatBody) -> Job | Refusal:
    """All messages are one prompt."""
    if not body.messages:
        return bad_request("messages must not be empty", "messages")
    bound = body.max_completion_tokens if body.max_completion_tokens is not None else body.max_tokens
    return _generating(body, [chat_prompt(body.messages, body.tools)], bound)


def completion_job(body: CompletionBody) -> Job | Refusal:
    """One or several prompts, as text or as token ids."""
    return _generating(body, prompts_of(body.prompt), body.max_tokens)


def responses_job(body: ResponsesBody) -> Job | Refusal:
    """Input items and instructions are one prompt."""
    return _checked(
        Job(
            model=body.model,
            prompts=[chat_prompt([body.instructions, body.input], body.tools)],
            max_tokens=body.max_output_tokens,
            stream=bool(body.stream),
        )
    )


def messages_job(body: MessagesBody) -> Job | Refusal:
    """System text and messages are one prompt."""
    if not body.messages:
        return bad_request("messages must not be empty", "messages")
    return _checked(
        Job(
            model=body.model,
            prompts=[chat_prompt([body.system, body.messages], body.tools)],
            max_tokens=body.max_tokens,
            stream=bool(body.stream),
        )
    )


def embeddings_job(body: EmbeddingsBody) -> Job | Refusal:
    """One vector per input; nothing is generated."""
    if body.dimensions is not None and not 1 <= body.dimensions <= MAX_DIMENSIONS:
        return bad_request(f"dimensions must be 1 to {MAX_DIMENSIONS}, not {body.dimensions}", "dimensions")
    return _checked(Job(model=body.model, prompts=prompts_of(body.input), generates=False))


def rerank_job(body: RerankBody) -> Job | Refusal:
    """Each document is read together with the query; nothing is generated."""
    prompts = [chat_prompt([body.query, document], None) for document in body.documents]
    return _checked(Job(model=body.model, prompts=prompts, generates=False))


def _generating(body: Generating, prompts: list[Prompt], max_tokens: int | None) -> Job | Refusal:
    if body.stream_options is not None and not body.stream:
        return bad_request("stream_options need stream=true", "stream_options")
    options = body.stream_options or StreamOptions()
    if body.seed is not None:
        prompts = [Prompt(prompt.tokens, words.mixed(prompt.seed, body.seed)) for prompt in prompts]
    return _checked(
        Job(
            model=body.model,
            prompts=prompts,
            choices=1 if body.n is None else body.n,
            max_tokens=max_tokens,
            min_tokens=body.min_tokens or 0,
            ignore_eos=bool(body.ignore_eos),
            stream=bool(body.stream),
            include_usage=options.include_usage,
            continuous_usage=options.continuous_usage_stats,
        )
    )


def _checked(job: Job) -> Job | Refusal:
    if not 1 <= job.choices <= MAX_CHOICES:
        return bad_request(f"n must be 1 to {MAX_CHOICES}, not {job.choices}", "n")
    if job.max_tokens is not None and job.max_tokens < 1:
        return bad_request(f"max_tokens must be at least 1, not {job.max_tokens}", "max_tokens")
    if job.min_tokens < 0 or job.min_tokens > (job.max_tokens or job.min_tokens):
        return bad_request("min_tokens must be between 0 and max_tokens", "min_tokens")
    if not job.prompts or any(prompt.tokens < 1 for prompt in job.prompts):
        return bad_request(
            "the prompt must be a text or token ids, or a list of these, and not empty", "prompt"
        )
    return job


# -- measuring --------------------------------------------------------------------------------------------


def chat_prompt(content: object, tools: object) -> Prompt:
    """The size of messages, or of anything made of them; a template's tokens are added."""
    size_bytes, media, seed = _measure(content, (0, 0, 0))
    if tools:
        size_bytes += len(msgspec.json.encode(tools))
    tokens = words.TEMPLATE_TOKENS + words.tokens_of(size_bytes) + IMAGE_TOKENS * media
    return Prompt(tokens, seed)


def prompts_of(value: Texts) -> list[Prompt]:
    """Prompts as completions and embeddings take them; none if ids and texts are mixed."""
    if isinstance(value, str):
        return [_text_prompt(value)]
    texts = [item for item in value if isinstance(item, str)]
    ids = [item for item in value if isinstance(item, int)]
    if texts:
        return [_text_prompt(text) for text in texts] if len(texts) == len(value) else []
    if ids:
        return [_ids_prompt(ids)] if len(ids) == len(value) else []
    return [_ids_prompt(item) for item in value if isinstance(item, list)]


def _text_prompt(text: str) -> Prompt:
    encoded = text.encode()
    return Prompt(words.tokens_of(len(encoded)), crc32(encoded))


def _ids_prompt(ids: list[int]) -> Prompt:
    return Prompt(len(ids), crc32(repr(ids).encode()))


def _measure(value: object, so_far: tuple[int, int, int]) -> tuple[int, int, int]:
    """Bytes of text, media parts, and checksum of the text, added to those so far."""
    if isinstance(value, str):
        encoded = value.encode()
        return so_far[0] + len(encoded), so_far[1], crc32(encoded, so_far[2])
    if isinstance(value, list):
        for item in value:
            so_far = _measure(item, so_far)
    elif isinstance(value, dict):
        if value.get("type") in _MEDIA:
            return so_far[0], so_far[1] + 1, so_far[2]
        for key in _TEXT_KEYS:
            if key in value:
                so_far = _measure(value[key], so_far)
    return so_far
