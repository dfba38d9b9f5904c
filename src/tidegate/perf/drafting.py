"""How long does a step take that guesses ahead, and what binds it?

To verify `k` guesses a sequence is computed as `k + 1` tokens of it would be: weights are read once, and more
experts are, products grow, and attention reads the cache once for all of them (as flash decoding with several
queries does). Before that the draft model makes `k` steps of its own, or one where it guesses all at once, on
the same devices and one after the other. It computes the prompts as well.

The seconds are a table as any other: that of `roofline.curve_of`, in whose decode part is what each sequence
adds besides. Whoever asks it tells how many guesses are in a step (`draft_tokens`), as the simulator does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from tidegate.core.curve import Chunk, Grid, Table
from tidegate.perf.deployment import Deployment
from tidegate.perf.efficiencies import Efficiencies
from tidegate.perf.roofline import (
    MOST_SEQUENCES,
    MOST_TOKENS,
    Bound,
    Roofline,
    above,
    bound_at,
    curve_of,
    either,
    most,
    roofline_of,
)
from tidegate.perf.speculative import Speculation, Verifying
from tidegate.perf.work import UNLIMITED


def steps_of(deployment: Deployment, reached: Efficiencies | None = None) -> Table | Verifying:
    """The curve of the whole replica, as it guesses or does not."""
    plain = curve_of(deployment, reached)
    guessing = deployment.speculation
    if guessing is None:
        return plain
    return Verifying(
        curve=_verifying(plain, deployment, guessing, reached),
        draft_tokens=guessing.draft_tokens,
        acceptance_ratio=guessing.acceptance_ratio,
    )


def _verifying(
    plain: Table, deployment: Deployment, guessing: Speculation, reached: Efficiencies | None
) -> Table:
    import numpy as np  # as in `roofline`

    roof = roofline_of(deployment, reached)
    draft = None if deployment.draft is None else roofline_of(deployment.draft, reached)
    spans = [*roof.work.spans, *(draft.work.spans if draft is not None else ())]
    limits = sorted({span.limit_tokens for span in spans if span.limit_tokens < UNLIMITED})
    contexts = (0.0, *limits, 2 * MOST_TOKENS)
    rows = tuple(point for point in plain.tokens.points if point <= MOST_SEQUENCES)
    asked: Any = np.array(rows)

    def column(context: float) -> list[float]:
        drafted_s = 0.0 if draft is None else guessing.passes * pass_s(draft, asked, context)
        seconds = verify_s(roof, asked, context, guessing.draft_tokens) + drafted_s
        return [0.0, *np.broadcast_to(seconds, len(rows)).tolist()]

    cells = tuple(zip(*map(column, contexts), strict=True))
    prefill = plain.prefill
    if draft is not None and prefill is not None:
        prefill = _with_prompts_of(draft, prefill)
    decode = Grid(rows=(0.0, *rows), columns=contexts, seconds=cells)
    return msgspec.structs.replace(plain, decode=decode, prefill=prefill)


def verify_s(roof: Roofline, decodes: float, context_tokens: float, guesses: int) -> float:
    """What a step takes for guesses, besides that its tokens are more: attention, states, the output layer.

    States are written after each token, so that those behind a wrong guess can be taken back.
    """
    work = roof.work
    here, rate = decodes / work.parts, roof.rates.bytes_per_s * roof.reached.cache
    peak = roof.rates.flops_per_s[0] * roof.reached.decode_attention
    seconds = here * work.state_bytes / rate * (guesses + 2) / 2
    for span in work.spans:
        pairs = here * min(context_tokens, span.limit_tokens)
        seconds += pairs * most(span.read_bytes / rate, (guesses + 1) * span.decode_flops / peak)
    return seconds + _head_s(roof, decodes * (guesses + 1)) - _head_s(roof, decodes)


def pass_s(draft: Roofline, decodes: float, context_tokens: float) -> float:
    """Of the draft model: one token of each sequence. It is picked on the device, which costs no more."""
    computed_s = draft.tokens_s(decodes) + draft.decode_s(decodes, context_tokens)
    return computed_s + _head_s(draft, decodes)


def _head_s(roof: Roofline, tokens: float) -> float:
    """Of the output layer."""
    here = tokens / roof.work.parts
    reading_s = roof.work.head_bytes / (roof.rates.bytes_per_s * roof.reached.read[0])
    computing_s = here * roof.work.head_flops / (roof.rates.flops_per_s[0] * roof.reached.compute[0])
    return either(reading_s, computing_s)


def _with_prompts_of(draft: Roofline, prefill: Grid) -> Grid:
    """Prompts that the draft computes as well, in the first of its passes, which reads its weights anyway."""
    import numpy as np

    new: Any = np.array(prefill.rows)[:, None]
    before: Any = np.array(prefill.columns)
    # The first row is of no tokens, of which nothing is asked.
    computed_s = above(draft.tokens_s(new[1:]) - draft.tokens_s(1.0))
    cells = np.array(prefill.seconds)
    cells[1:] += draft.prefill_s(new[1:], before) + computed_s
    return msgspec.structs.replace(prefill, seconds=tuple(map(tuple, cells.tolist())))


def bound_of_step(
    deployment: Deployment,
    decodes: float,
    context_tokens: float,
    chunks: Sequence[Chunk] = (),
    reached: Efficiencies | None = None,
) -> Bound:
    """As `roofline.bound_at`, of a step that guesses where the deployment does."""
    guessing = deployment.speculation
    if guessing is None:
        return bound_at(deployment, decodes, context_tokens, chunks, reached)
    guesses = decodes * guessing.draft_tokens
    verified = bound_at(deployment, decodes + guesses, context_tokens, chunks, reached)
    parts = [_less_each(verified, roofline_of(deployment, reached), guesses)]
    if (draft := deployment.draft) is not None:
        drafted = bound_at(draft, decodes, context_tokens, (), reached)
        parts += [_less_each(drafted, roofline_of(draft, reached), decodes)] * guessing.passes
    return Bound(**{name: sum(getattr(part, name) for part in parts) for name in Bound.__struct_fields__})


def _less_each(bound: Bound, roof: Roofline, sequences: float) -> Bound:
    """Without what is done once for each sequence: neither a guess is one, nor are they delivered."""
    each_s = sequences / roof.work.parts * roof.reached.sequence_s
    return msgspec.structs.replace(bound, overhead_s=bound.overhead_s - each_s)
