"""What guesses has the parameters that its makers say, and must go with the model."""

from __future__ import annotations

import pytest

from tests.perf.shapes import DEEPSEEK, GPT_OSS, LLAMA_2_7B, LLAMA_8B, LLAMA_70B, STATES, grouped, model
from tidegate.catalog.models import Dense, Model, RecurrentAttention
from tidegate.perf.heads import (
    draft_model,
    eagle_head,
    layered_head,
    lookup,
    medusa_head,
    mtp_head,
    problems_between,
    sized_head,
)
from tidegate.perf.parameters import parameters_of
from tidegate.perf.speculative import Draft

LLAMA_2_13B = model(5120, 32000, (40, grouped(40, 40), Dense(size=13824)))
LLAMA_2_70B = model(8192, 32000, (80, grouped(64, 8), Dense(size=28672)))


def own_parameters(draft: Draft) -> float:
    """Without the tables that it shares."""
    assert draft.model is not None
    found = parameters_of(draft.model)
    return found.total - found.embedding


@pytest.mark.parametrize(
    ("model", "billions"), [(LLAMA_2_7B, 0.24), (LLAMA_2_13B, 0.37), (LLAMA_2_70B, 0.99)]
)
def test_eagle_heads_are_as_large_as_published(model: Model, billions: float) -> None:
    """Li et al., 2024: 0.24, 0.37 and 0.99 billion parameters."""
    assert own_parameters(eagle_head(model)) / 1e9 == pytest.approx(billions, rel=0.02)


def test_deepseeks_head_is_as_large_as_published() -> None:
    """Of the 14 billion parameters of its MTP module 11.5 are its own (README of DeepSeek-V3)."""
    head = mtp_head(DEEPSEEK)
    assert own_parameters(head) / 1e9 == pytest.approx(11.5, rel=0.01)
    assert head.model is not None
    assert head.model.precision == "fp8"


def test_medusa_heads_have_output_layers_of_their_own() -> None:
    """Three times a square matrix and 32,000 rows; all guesses at once, and no cache."""
    head = medusa_head(LLAMA_2_7B, 3)
    assert own_parameters(head) == pytest.approx(3 * (4096**2 + 4096 * 32000), rel=1e-3)
    assert head.at_once


def test_a_head_of_a_size() -> None:
    """As many bytes in 16 bits."""
    assert 2 * own_parameters(sized_head(LLAMA_8B, 1.5 * 2**30)) == pytest.approx(1.5 * 2**30, rel=1e-3)


def test_a_head_of_layers_is_a_share_of_the_model() -> None:
    """Two of 80 layers."""
    layers = parameters_of(LLAMA_70B)
    assert own_parameters(layered_head(LLAMA_70B, 2)) == pytest.approx(
        (layers.attention + layers.dense) / 40, rel=1e-3
    )


def test_a_head_attends_to_all_where_its_model_does() -> None:
    """Of windows and of states the other kind is taken, which guesses from all that was said."""
    for whole in (GPT_OSS, STATES):
        made = eagle_head(whole).model
        assert made is not None
        attention = made.layers[0].attention
        assert not isinstance(attention, RecurrentAttention)
        assert getattr(attention, "window_tokens", None) is None


@pytest.mark.parametrize(
    ("model", "draft", "words"),
    [
        (LLAMA_8B, draft_model(LLAMA_70B), "more than the 8.03 of of 4096"),
        (LLAMA_70B, draft_model(LLAMA_2_7B), "a vocabulary of 32,000 tokens, and of 8192 one of 128,256"),
        (LLAMA_70B, draft_model(LLAMA_8B), None),
        (LLAMA_70B, eagle_head(LLAMA_70B), None),
        (LLAMA_70B, lookup(), None),
    ],
)
def test_a_draft_is_smaller_and_knows_the_same_tokens(model: Model, draft: Draft, words: str | None) -> None:
    """Else the fault is named, with the figures."""
    found = problems_between(model, draft)
    assert len(found) == (words is not None)
    assert words is None or words in found[0]
