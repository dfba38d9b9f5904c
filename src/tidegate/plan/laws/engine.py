"""What does a planner need to know of one replica?"""

from __future__ import annotations

import msgspec

from tidegate.core.curve import Curve
from tidegate.perf.speculative import Verifying


class Engine(msgspec.Struct, frozen=True, kw_only=True):
    """How fast a replica is, and what fits into it: `perf` computes one, `calibrate` measures one."""

    curve: Curve | Verifying
    max_num_seqs: int
    """Sequences in a batch, at most."""
    max_batched_tokens: int
    """Token budget of a step."""
    kv_tokens: int
    """KV cache; whole blocks of it are used."""
    context_tokens: int
    """Prompt and output of one sequence, at most."""
    block_tokens: int = 16

    @property
    def profile_curve(self) -> Curve:
        """As a profile has it, which tells apart what is guessed (`sim.settings.Speculation`)."""
        return self.curve.curve if isinstance(self.curve, Verifying) else self.curve

    @property
    def draft_tokens(self) -> int:
        """Guessed for each sequence and verified in a step; 0: none are."""
        return self.curve.draft_tokens if isinstance(self.curve, Verifying) else 0

    @property
    def tokens_per_step(self) -> float:
        """That a step yields of each sequence that decodes, mean; 1 without guesses."""
        return self.curve.tokens_per_step if isinstance(self.curve, Verifying) else 1.0
