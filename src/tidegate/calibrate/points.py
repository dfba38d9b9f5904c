"""What is one measured point, and under which name do people find it in a table?"""

from __future__ import annotations

import msgspec

from tidegate.perf.regression import Observation


class Point(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An observation of an engine."""

    name: str
    """Of its row in the table; many points may share it."""
    observation: Observation
    sequences: float
    """In a step, mean."""
    context_tokens: float
    """Of all of them in a step, mean."""
    prompt_tokens: float = 0.0
    """Of a prompt measured by itself; 0: it is none."""
    held_out: bool = False
    """Judged, and not fitted."""
    run: int = 0
    """Which sending of an experiment showed it: what one of them shows several times is no repeat."""

    @property
    def step_s(self) -> float:
        """Of one step; of a prompt, whole."""
        return self.observation.seconds / (1 if self.prompt_tokens else self.observation.steps)


def name_of_batch(sequences: float) -> str:
    """Of a batch that nobody chose: the next power of two."""
    return f"up to {1 << max(0, round(sequences) - 1).bit_length():,} at once"


def decoding(
    name: str, seconds: float, steps: float, *, sequences: float, context_tokens: float, held_out: bool
) -> Point:
    """Decode steps of a constant batch: `sequences` and `context_tokens` of each step, in the mean."""
    return Point(
        name=name,
        observation=Observation(
            seconds=seconds,
            steps=steps,
            sequences=sequences * steps,
            context_tokens=context_tokens * steps,
        ),
        sequences=sequences,
        context_tokens=context_tokens,
        held_out=held_out,
    )


def prompt_alone(
    name: str, ttft_s: float, prompt_tokens: int, cached_tokens: int, *, budget_tokens: int, held_out: bool
) -> Point:
    """A prompt that an idle engine computed in chunks of `budget_tokens`, up to its first token."""
    steps = -(-(prompt_tokens - cached_tokens) // budget_tokens)
    return Point(
        name=name,
        observation=Observation(
            seconds=ttft_s,
            steps=steps,
            sequences=steps,
            prefill_tokens=prompt_tokens - cached_tokens,
            prefill_tokens_squared=prompt_tokens**2 - cached_tokens**2,
            first_tokens=1,
        ),
        sequences=1,
        context_tokens=0,
        prompt_tokens=prompt_tokens,
        held_out=held_out,
    )
