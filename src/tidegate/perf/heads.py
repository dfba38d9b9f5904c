"""What may guess ahead for a model: a smaller model, a head of its own, or what was said before?"""

from __future__ import annotations

from math import isclose
from typing import Final

import msgspec

from tidegate.catalog.models import (
    Attention,
    Dense,
    Experts,
    FeedForward,
    Layers,
    Model,
    NoAttention,
    RecurrentAttention,
)
from tidegate.perf.parameters import parameters_of
from tidegate.perf.speculative import Draft

LOOKUP: Final = "n-gram lookup"


def lookup() -> Draft:
    """Guesses found in the prompt and the output so far."""
    return Draft(name=LOOKUP)


def draft_model(model: Model) -> Draft:
    """A smaller model of the same vocabulary."""
    return Draft(name=model.name, model=model)


def eagle_head(model: Model) -> Draft:
    """One layer as the model's, not of experts, and a matrix that brings two vectors to one.

    As wide as what a token goes through. Source: Li et al., EAGLE, 2024 (arXiv:2401.15077), whose heads have
    0.24, 0.37 and 0.99 billion parameters for Llama-2 of 7, 13 and 70.
    """
    part = _last(model).feed_forward
    joined = 2 * model.hidden // part.matrices  # 2 x hidden^2, as more of the feed-forward part
    layer = Dense(size=_active(part) + joined, matrices=part.matrices)
    return _head(model, "EAGLE head", _attention(model), layer)


def mtp_head(model: Model) -> Draft:
    """One layer as the model's last, experts and all, run once for each guess.

    Source: DeepSeek-V3 technical report, 2024, section 2.2 (multi-token prediction).
    """
    made = _head(model, "MTP head", _attention(model), _last(model).feed_forward)
    assert made.model is not None
    kept = {name: getattr(model, name) for name in ("precision", "attention_precision", "dense_precision")}
    return msgspec.structs.replace(made, model=msgspec.structs.replace(made.model, **kept))


def medusa_head(model: Model, draft_tokens: int) -> Draft:
    """For each guess a block of its own and an output layer of its own, all computed at once.

    Source: Cai et al., Medusa, 2024 (arXiv:2401.10774): a square matrix and a linear layer a head.
    """
    layer = Dense(size=draft_tokens * (model.hidden + model.vocabulary), matrices=1)
    made = _head(model, "Medusa heads", NoAttention(), layer)
    assert made.model is not None
    # What makes tokens is in the layer; the model's own output layer is not read for them.
    own = msgspec.structs.replace(made.model, vocabulary=1)
    return msgspec.structs.replace(made, model=own, at_once=True)


def sized_head(model: Model, weights_bytes: float) -> Draft:
    """A head of so many bytes in 16 bits, run once for each guess, that keeps no cache of its own."""
    layer = Dense(size=max(1, round(weights_bytes / 2 / model.hidden)), matrices=1)
    return _head(model, f"head of {weights_bytes / 2**30:.3g} GiB", NoAttention(), layer)


def layered_head(model: Model, layers: int) -> Draft:
    """So many layers as the model's last, run once for each guess."""
    found = msgspec.structs.replace(_last(model), count=layers)
    cut = msgspec.structs.replace(model, layers=(found,), tied_embeddings=True)
    return Draft(name=f"head of {layers} layer{'s' * (layers != 1)}", model=cut, head=True)


def problems_between(model: Model, draft: Draft) -> list[str]:
    """Why the draft cannot guess for that model."""
    if draft.model is None:
        return []
    own, whole = parameters_of(draft.model).total, parameters_of(model).total
    if own > whole:
        told = f"{own / 1e9:.3g} billion parameters, more than the {whole / 1e9:.3g} of {model.name}"
        return [f"draft: {draft.name} has {told}, for which it guesses; give it a smaller one"]
    if not draft.head and not isclose(draft.model.vocabulary, model.vocabulary, rel_tol=0.01):
        told = f"{draft.model.vocabulary:,} tokens, and {model.name} one of {model.vocabulary:,}"
        return [f"draft: {draft.name} has a vocabulary of {told}; give it one of the same family"]
    return []


def _head(model: Model, name: str, attention: Attention, part: FeedForward) -> Draft:
    """In 16 bits, whatever the model is in."""
    made = Model(
        name=f"{name} of {model.name}",
        hidden=model.hidden,
        vocabulary=model.vocabulary,
        layers=(Layers(count=1, attention=attention, feed_forward=part),),
        tied_embeddings=True,
        context_tokens=model.context_tokens,
    )
    return Draft(name=name, model=made, head=True)


def _last(model: Model) -> Layers:
    """The last of its layers with a feed-forward part."""
    return next((group for group in reversed(model.layers) if _active(group.feed_forward)), model.layers[-1])


def _attention(model: Model) -> Attention:
    """Of the last layer that attends to all that came before."""
    kinds = [group.attention for group in reversed(model.layers)]
    others = (NoAttention, RecurrentAttention)
    whole = [kind for kind in kinds if not isinstance(kind, others)]
    return next((kind for kind in whole if getattr(kind, "window_tokens", None) is None), (whole or kinds)[0])


def _active(part: FeedForward) -> int:
    """Width that a token goes through."""
    if isinstance(part, Experts):
        return part.chosen * part.size + part.shared_size
    return part.size
