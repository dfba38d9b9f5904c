"""What should a token cost in credits, by the seconds that one more of it takes from a replica?

A request of P prompt tokens, H of them cached, and O output tokens takes, at a full batch of n sequences,

    T = prefill(P - H) + O x step(n) / n + O x (its own context) x read

seconds of a replica: each output token keeps one of n places for a step, and reads the cache of all tokens
before it. Weights are the partial derivatives of T at the operating point, divided by that of a prompt token:
who sends tokens by these weights takes the same seconds per credit, whatever they are made of. The fixed part
of a step is in the output's: at a full batch one more output token makes 1 / n more steps, and fewer where a
step yields several.
"""

from __future__ import annotations

from math import ceil

import msgspec

from tidegate.plan.advice.operating import Batch
from tidegate.plan.ask import Load

PROBE_TOKENS = 64
"""Of context per sequence, by which a slope is taken."""


class TokenSeconds(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds of a replica that one more token takes."""

    input_s: float
    """Of a prompt, computed, and read by each output token after it."""
    cached_input_s: float
    """Of a prompt, found in the cache, and read all the same."""
    output_s: float
    """A place in the batch for one step, whose reading is in it."""


def token_seconds(batch: Batch, load: Load) -> TokenSeconds:
    """At the operating point."""
    decode_s = batch.step_s()
    new = min(max(1, ceil(load.prompt_tokens * (1 - load.prefix_hit_ratio))), batch.chunk_tokens)
    before = round(load.prompt_tokens * load.prefix_hit_ratio)
    computed_s = (batch.step_s(((new, before),)) - decode_s) / new
    more, yielded = PROBE_TOKENS * batch.sequences, batch.tokens_per_step
    read_s = (batch.step_s(more=more) - decode_s) / more * load.output_tokens / yielded
    return TokenSeconds(
        input_s=computed_s + read_s, cached_input_s=read_s, output_s=decode_s / batch.sequences / yielded
    )
