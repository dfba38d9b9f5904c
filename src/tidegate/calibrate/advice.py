"""What is wrong with a set of points, and which runs would make it right?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import log2

import msgspec

from tidegate.calibrate.points import Point
from tidegate.calibrate.repeats import SLOWER
from tidegate.core.units import format_number
from tidegate.perf.regression import OVERHEAD, Fit

LETTERS = {
    "a_s": "a (each step)",
    "b_s_per_sequence": "b (each sequence)",
    "c_s_per_context_token": "c (each token of context)",
    "d_s_per_prefill_token": "d (each prompt token)",
    "e_s_per_prefill_token_squared": "e (prompt tokens squared)",
    OVERHEAD: "the overhead of a first token",
}
DOUBTFUL = 0.5
"""Standard error of a constant over its value, from which on it is no more than a guess,"""
WORTH = 0.05
"""if it makes up so much of some point."""
POOR = 0.15
"""Mean error at held-out points, from which on the line does not describe the engine."""


DISTURBED = 0.2
"""Share of the repeats that were left out, from which on the others may have been delayed too. At a fifth to
three tenths a line was 11 to 16 % off what a quieter hour had shown, at half 27 to 44 % (see `repeats`)."""


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """How a line does at points that it was not fitted to, as mean relative errors."""

    error_ratio: float | None
    repeat_error_ratio: float | None = None
    """Of other runs of the same points, in place of the line; None: there were none."""
    disturbed_ratio: float = 0.0
    """Share of the repeats that were left out."""
    whole_error_ratio: float | None = None
    """With the held-out ones among these."""


def warnings_of(found: Fit, points: Sequence[Point], judged: Judged) -> tuple[str, ...]:
    """A sentence for each."""
    return (
        *_confounded(found, points),
        *_unseen(found, points),
        *_doubtful(found, points),
        *_disturbed(judged),
        *_poor(judged),
    )


def _confounded(found: Fit, points: Sequence[Point]) -> Iterator[str]:
    for group in found.confounded:
        # The overhead of a first token is known as well as the step before it: that is no fault of its own.
        blamed = [name for name in group if name != OVERHEAD] if len(group) > 2 else group
        names = " and ".join(LETTERS[name] for name in blamed)
        if decoding := {"a_s", "b_s_per_sequence", "c_s_per_context_token"} & set(group):
            yield f"{names} cannot be told apart: {_decode_remedy(decoding, points)}"
        else:
            yield f"{names} cannot be told apart: {_prompt_remedy(points)}"


def _decode_remedy(group: set[str], points: Sequence[Point]) -> str:
    decoded = [each for each in points if not each.prompt_tokens and each.sequences > 0]
    if not decoded:
        return "no decode steps were measured; ask for answers of 32 tokens or more"
    batches = [each.sequences for each in decoded]
    contexts = [each.context_tokens / each.sequences for each in decoded]
    if "b_s_per_sequence" in group and "c_s_per_context_token" in group:
        low, high = min(contexts), max(contexts)
        short, long = max(16, _power_of_two(low / 4)), _power_of_two(high * 4)
        batch = _range(round(min(batches)), round(max(batches)))
        return (
            f"batch and context were not varied independently (each sequence had {_range(low, high)} tokens "
            "of context), so that errors stated here hold for such traffic only (elsewhere lines like this "
            f"were 74 to 368 % off); add runs of {batch} sequences at a time with prompts of about "
            f"{short:,} and of {long:,} tokens"
        )
    return (
        f"the batch was not varied enough ({_range(round(min(batches)), round(max(batches)))} sequences at a "
        "time), so that errors stated here hold for such batches only; add runs of 1 and of "
        f"{4 * round(max(batches)):,} sequences at a time"
    )


def _prompt_remedy(points: Sequence[Point]) -> str:
    lengths = [each.prompt_tokens for each in points if each.prompt_tokens]
    if not lengths:
        return (
            "no prompt was computed by itself; send single prompts of three lengths or more to an idle engine"
        )
    low, high = min(lengths), max(lengths)
    return (
        f"prompts alone had {_range(low, high)} tokens; add three lengths or more, the longest at least "
        f"{format_number(max(8 * low, high))} tokens"
    )


def _unseen(found: Fit, points: Sequence[Point]) -> Iterator[str]:
    names = [name for name in found.unseen if name != OVERHEAD]
    if "c_s_per_context_token" in names:
        yield f"{LETTERS['c_s_per_context_token']} is unknown: no decode steps were measured"
    if "d_s_per_prefill_token" in names:
        yield (
            f"{LETTERS['d_s_per_prefill_token']} is unknown and taken for 0: no prompt was computed by "
            "itself or beside others; send some to an idle engine"
        )
    elif "e_s_per_prefill_token_squared" in names:
        yield (
            f"{LETTERS['e_s_per_prefill_token_squared']} is unknown and taken for 0: how long single prompts "
            "were is not told here; long ones take longer than it says (--url measures them)"
        )


def _doubtful(found: Fit, points: Sequence[Point]) -> Iterator[str]:
    known = {name for group in found.confounded for name in group}
    for index, name in enumerate(found.curve.__struct_fields__):
        value, error = getattr(found.curve, name), found.standard_errors.get(name, 0.0)
        if name in known or error <= DOUBTFUL * value:
            continue
        most = max(error * each.observation.work[index] / each.observation.seconds for each in points)
        if most > WORTH:
            yield (
                f"{LETTERS[name]} is uncertain by {format_number(error / value * 100)} %, which is up to "
                f"{format_number(most * 100)} % of a measured time: measure longer, or over a wider range"
            )


def _disturbed(judged: Judged) -> Iterator[str]:
    if judged.disturbed_ratio > DISTURBED:
        whole = judged.whole_error_ratio
        with_them = "" if whole is None else f" (with them, held-out points are {whole:.0%} off)"
        yield (
            f"{judged.disturbed_ratio:.0%} of the repeats took over {SLOWER - 1:.0%} longer than the "
            f"quietest quarter of their kind, and were left out{with_them}: something else runs beside the "
            "engine. It may have delayed the others too, so that the true error is larger than the stated "
            "one; measure on a quiet machine"
        )


def _poor(judged: Judged) -> Iterator[str]:
    error, repeats = judged.error_ratio, judged.repeat_error_ratio
    if error is None:
        yield "no points were held out, so that nothing says how well the line predicts: measure more"
    elif error > POOR and repeats is not None and repeats > error / 2:
        yield (
            f"held-out points are {error:.0%} off in the mean, and {repeats:.0%} off other runs of the same: "
            "these differ so much that no line can meet them; measure longer, or on a quieter machine"
        )
    elif error > POOR:
        yield (
            f"held-out points are {error:.0%} off in the mean: the line does not describe this "
            "engine, or something else ran beside it"
        )


def _power_of_two(value: float) -> int:
    """The nearest, for a length that is only advised."""
    return int(2 ** max(0, round(log2(value))))


def _range(low: float, high: float) -> str:
    one, other = format_number(low), format_number(high)
    return one if one == other else f"{one} to {other}"
