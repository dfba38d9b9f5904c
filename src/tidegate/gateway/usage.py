"""What does an engine say it processed? Reads the `usage` member in the form of any of the APIs.

Engines tell totals, never increments: the latest wins. Only what is told of single choices (llama.cpp does
so) is added up. Members that are absent, null, negative or of a wrong type count as not told.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec

from tidegate.core.request import Usage
from tidegate.gateway.apis import Api, Form
from tidegate.gateway.decoders import ANSWER, COUNTED


def usage_of(api: Api, body: bytes) -> Usage | None:
    """The totals of a whole (not streamed) JSON answer; None when it tells none."""
    if api.asks_usage:
        try:
            counts = COUNTED.decode(body).usage
        except (msgspec.DecodeError, RecursionError):
            pass  # in some other form, perhaps
        else:
            details = counts.prompt_tokens_details
            cached = details.cached_tokens or 0 if details is not None else 0
            return Usage(
                prompt_tokens=counts.prompt_tokens,
                output_tokens=counts.completion_tokens,
                cached_tokens=min(cached, counts.prompt_tokens),
            )
    try:
        return read_usage(api.form, ANSWER.decode(body).usage)
    except (msgspec.DecodeError, RecursionError):
        return None


def read_usage(form: Form, counts: Any, before: Usage | None = None) -> Usage | None:
    """Totals from a decoded `usage` object; what it does not tell is kept from `before`.

    Anthropic's `input_tokens` leaves out what came from the cache or went into it; ours does not:
    prompt_tokens = input_tokens + cache_read_input_tokens + cache_creation_input_tokens.
    """
    if not isinstance(counts, dict):
        return before
    prompt = _first(counts, "prompt_tokens", "input_tokens")
    output = _first(counts, "completion_tokens", "output_tokens")
    if form is Form.MESSAGES:
        cached = _first(counts, "cache_read_input_tokens")
        if prompt is not None:
            prompt += (cached or 0) + (_first(counts, "cache_creation_input_tokens") or 0)
    else:
        details = counts.get("prompt_tokens_details") or counts.get("input_tokens_details")
        cached = _first(details, "cached_tokens") if isinstance(details, dict) else None
        if prompt is None and output is None:
            prompt = _first(counts, "total_tokens")  # all that some rerankers tell
    if prompt is None and output is None:
        return before
    if before is not None:
        prompt = before.prompt_tokens if prompt is None else prompt
        output = before.output_tokens if output is None else output
        cached = before.cached_tokens if cached is None else cached
    return Usage(
        prompt_tokens=prompt or 0,
        output_tokens=output or 0,
        cached_tokens=min(cached or 0, prompt or 0),
    )


def add_up(each: Collection[Usage], prompts: int) -> Usage:
    """The total of choices that were counted one by one, each with its prompt; of `prompts` in all."""
    return Usage(
        prompt_tokens=sum(usage.prompt_tokens for usage in each) * prompts // len(each),
        output_tokens=sum(usage.output_tokens for usage in each),
        cached_tokens=sum(usage.cached_tokens for usage in each) * prompts // len(each),
    )


class Tally:
    """The total of a stream: as last told, or added up where the engine tells of each choice by itself."""

    __slots__ = ("_each", "_prompts", "_total")

    def __init__(self, prompts: int) -> None:
        self._prompts = prompts
        self._total: Usage | None = None
        self._each: dict[int, Usage] = {}

    @property
    def usage(self) -> Usage | None:
        """As far as it was told."""
        return self._total or (add_up(self._each.values(), self._prompts) if self._each else None)

    @property
    def in_parts(self) -> bool:
        """True if what was told is that of single choices: there may be more to come."""
        return bool(self._each)

    def note(self, usage: Usage, choice: int | None) -> None:
        """Take in what was told, right behind the end of this one `choice` or, None, anywhere else."""
        if choice is not None and self._total is None:
            self._each[choice] = usage
        elif not self._each or usage.output_tokens > add_up(self._each.values(), 1).output_tokens:
            self._total = usage  # else a part was told again
            self._each.clear()


def _first(counts: dict[str, Any], *names: str) -> int | None:
    for name in names:
        count = counts.get(name)
        if isinstance(count, int | float) and not isinstance(count, bool) and 0 <= count < 2**53:
            return int(count)
    return None
