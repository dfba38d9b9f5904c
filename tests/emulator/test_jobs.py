"""How much is asked for, and how much is said?"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.emulator import words
from tidegate.emulator.jobs import (
    IMAGE_TOKENS,
    ChatBody,
    Job,
    MessagesBody,
    Prompt,
    Refusal,
    ResponsesBody,
    chat_job,
    messages_job,
    responses_job,
)

SHORT_SEED = next(seed for seed in range(1000) if words.natural_tokens(seed) == 20)
LONG_SEED = next(seed for seed in range(1000) if words.natural_tokens(seed) > 400)


@pytest.mark.parametrize(
    ("seed", "options", "room", "expected"),
    [
        (SHORT_SEED, {}, 1000, (20, False)),
        (SHORT_SEED, {"max_tokens": 21}, 1000, (20, False)),
        (SHORT_SEED, {"max_tokens": 20}, 1000, (20, True)),
        (SHORT_SEED, {"min_tokens": 300}, 1000, (300, False)),
        (SHORT_SEED, {"ignore_eos": True}, 1000, (256, True)),
        (SHORT_SEED, {"ignore_eos": True, "max_tokens": 700}, 1000, (700, True)),
        (SHORT_SEED, {}, 12, (12, True)),  # the context is full
        (LONG_SEED, {}, 1000, (256, False)),
        (LONG_SEED, {}, 256, (256, True)),
        (LONG_SEED, {"max_tokens": 300}, 1000, (300, True)),
    ],
)
def test_the_length_of_an_answer(
    seed: int, options: dict[str, Any], room: int, expected: tuple[int, bool]
) -> None:
    """Its natural length within what was asked for; cut only if something other than itself ended it."""
    job = Job(model=None, prompts=[Prompt(5, seed)], **options)

    assert job.output_tokens(seed, room) == expected


@pytest.mark.parametrize(
    ("content", "tokens"),
    [
        ("12345678", 2),
        ([{"type": "text", "text": "1234"}, {"type": "text", "text": "5678"}], 2),
        ([{"type": "text", "text": "1234"}, {"type": "image_url", "image_url": {"url": "x" * 99}}], 257),
        (None, 0),
    ],
)
def test_the_size_of_messages(content: Any, tokens: int) -> None:
    """Text counts by its bytes, an image by its own figure, and the template is added."""
    job = chat_job(ChatBody(messages=[{"role": "user", "content": content}]))

    assert isinstance(job, Job)
    assert job.prompts[0].tokens == tokens + words.TEMPLATE_TOKENS
    assert IMAGE_TOKENS == 256


def test_what_else_is_in_a_prompt() -> None:
    """Tool calls, tools, instructions and system texts are read by the model, and so they count."""
    call = {"function": {"name": "f", "arguments": "1234"}}
    tools = [{"type": "function", "function": {"name": "f"}}]
    size = -(-len(msgspec.json.encode(tools)) // 4)
    for job, tokens in [
        (chat_job(ChatBody(messages=[{"role": "assistant", "content": None, "tool_calls": [call]}])), 1),
        (chat_job(ChatBody(messages=[{"role": "user", "content": ""}], tools=tools)), size),
        (responses_job(ResponsesBody(input="1234", instructions="5678")), 2),
        (
            responses_job(ResponsesBody(input=[{"content": [{"type": "input_text", "text": "1234"}]}])),
            1,
        ),
        (messages_job(MessagesBody(messages=[{"content": "1234"}], max_tokens=5, system="5678")), 2),
    ]:
        assert not isinstance(job, Refusal)
        assert job.prompts[0].tokens == tokens + words.TEMPLATE_TOKENS


@given(st.integers(0, 2**32 - 1), st.integers(0, 9000), st.integers(0, 9000), st.integers(0, 9000))
def test_text_comes_in_any_pieces(seed: int, start: int, first: int, second: int) -> None:
    """Four bytes for each token, the same however it is cut, across the period of the text too."""
    whole = words.text(seed, start, first + second)

    assert len(whole) == 4 * (first + second)
    assert words.text(seed, start, first) + words.text(seed, start + first, second) == whole


def test_natural_lengths() -> None:
    """From 8 to 512 tokens, 120 on average."""
    lengths = [words.natural_tokens(words.mixed(number, 9)) for number in range(2000)]

    assert min(lengths) == 8
    assert 500 < max(lengths) < 512
    assert sum(lengths) / len(lengths) == pytest.approx(120, abs=6)
