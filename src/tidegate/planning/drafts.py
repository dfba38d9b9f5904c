"""What guesses ahead, as it is said on the command line?"""

from __future__ import annotations

import re

from tidegate.catalog.catalog import Catalog
from tidegate.catalog.models import Model
from tidegate.core.errors import ConfigurationError
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
from tidegate.perf.speculative import DRAFT_TOKENS, Draft, Speculation
from tidegate.planning.numbers import count_of, ratio_of
from tidegate.planning.options import Options

_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([KMGT]i?)B", re.ASCII)
_UNITS = {"": 1000, "i": 1024}


def speculation_of(options: Options, model: Model, catalog: Catalog) -> Speculation | None:
    """How an engine of that model guesses; None: it does not. Raises ConfigurationError."""
    if options.draft is None:
        return None
    if options.acceptance is None:
        problem = "--draft: how often is a guess right that comes after right ones"
        raise ConfigurationError([f"{problem}; write --acceptance RATIO, as in --acceptance 0.7"])
    tokens = DRAFT_TOKENS
    if options.draft_tokens is not None:
        tokens = count_of("--draft-tokens", options.draft_tokens, "tokens")
    ratio = ratio_of("--acceptance", options.acceptance)
    draft = _draft(options.draft.strip(), model, catalog, tokens)
    if problems := problems_between(model, draft):
        raise ConfigurationError([f"--{problem}" for problem in problems])
    return Speculation(draft=draft, draft_tokens=tokens, acceptance_ratio=ratio)


def _draft(text: str, model: Model, catalog: Catalog, tokens: int) -> Draft:
    """By a word, a share of the model's layers, the bytes of a head, or a model."""
    word = text.lower()
    if word in ("ngram", "n-gram"):
        return lookup()
    if word in ("eagle", "mtp"):
        return (eagle_head if word == "eagle" else mtp_head)(model)
    if word == "medusa":
        return medusa_head(model, tokens)
    if word.endswith("%"):
        depth = sum(group.count for group in model.layers)
        return layered_head(model, max(1, round(ratio_of("--draft", word) * depth)))
    if (size := _SIZE.fullmatch(text)) is not None:
        prefix, binary = size[2][0], size[2][1:]
        bytes_ = float(size[1]) * _UNITS[binary] ** (1 + "KMGT".index(prefix))
        return sized_head(model, bytes_)
    from tidegate.planning.catalog.lookup import model_named

    try:
        return draft_model(model_named(text, catalog))
    except ConfigurationError as error:
        words = "or write ngram, eagle, mtp, medusa, a share of the layers (5%) or a head's size (1.5GiB)"
        raise ConfigurationError([f"--draft: {problem}; {words}" for problem in error.problems]) from None
