"""What does a user of an official SDK get, reduced to what must not differ between two servers?

The SDKs retry by themselves, which would hide a failure: here they never do.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from anthropic import Anthropic
from openai import OpenAI

TIMEOUT_S = 60.0


class Answer(NamedTuple):
    """One answer. Ids and times differ from call to call, so they are left out."""

    text: str
    finish_reason: str | None
    prompt_tokens: int
    output_tokens: int


@contextmanager
def openai_at(url: str, api_key: str = "none") -> Iterator[OpenAI]:
    """The OpenAI SDK, with connections of its own."""
    with OpenAI(base_url=url + "/v1", api_key=api_key, max_retries=0, timeout=TIMEOUT_S) as client:
        yield client


@contextmanager
def anthropic_at(url: str, api_key: str = "none") -> Iterator[Anthropic]:
    """The Anthropic SDK, with connections of its own."""
    with Anthropic(base_url=url, api_key=api_key, max_retries=0, timeout=TIMEOUT_S) as client:
        yield client


def chat(client: OpenAI, model: str, text: str, *, stream: bool, **options: Any) -> Answer:
    """Say `text` to `model`, and read the answer to its end."""
    messages = [{"role": "user", "content": text}]
    if stream:
        return _joined(client.chat.completions, messages=messages, model=model, **options)
    whole = client.chat.completions.create(messages=messages, model=model, **options)  # type: ignore[arg-type]
    choice = whole.choices[0]
    assert whole.usage is not None
    return Answer(
        choice.message.content or "",
        choice.finish_reason,
        whole.usage.prompt_tokens,
        whole.usage.completion_tokens,
    )


def complete(client: OpenAI, model: str, prompt: str | list[int], *, stream: bool, **options: Any) -> Answer:
    """Let `model` continue `prompt` (text, or token ids), and read the answer to its end."""
    if stream:
        return _joined(client.completions, prompt=prompt, model=model, **options)
    whole = client.completions.create(prompt=prompt, model=model, **options)
    choice = whole.choices[0]
    assert whole.usage is not None
    return Answer(choice.text, choice.finish_reason, whole.usage.prompt_tokens, whole.usage.completion_tokens)


def _joined(resource: Any, **request: Any) -> Answer:
    """Put a stream's chunks together. Usage has a chunk of its own, or rides on the last one with text."""
    text, finish_reason, usage = "", None, None
    with resource.create(stream=True, stream_options={"include_usage": True}, **request) as chunks:
        for chunk in chunks:
            usage = chunk.usage or usage
            for choice in chunk.choices:
                text += (choice.delta.content if hasattr(choice, "delta") else choice.text) or ""
                finish_reason = choice.finish_reason or finish_reason
    assert usage is not None, "the usage that we asked for never came"
    return Answer(text, finish_reason, usage.prompt_tokens, usage.completion_tokens)
