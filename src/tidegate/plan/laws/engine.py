"""What does a planner need to know of one replica?"""

from __future__ import annotations

import msgspec

from tidegate.core.curve import Curve


class Engine(msgspec.Struct, frozen=True, kw_only=True):
    """How fast a replica is, and what fits into it: `perf` computes one, `calibrate` measures one."""

    curve: Curve
    max_num_seqs: int
    """Sequences in a batch, at most."""
    max_batched_tokens: int
    """Token budget of a step."""
    kv_tokens: int
    """KV cache; whole blocks of it are used."""
    context_tokens: int
    """Prompt and output of one sequence, at most."""
    block_tokens: int = 16
