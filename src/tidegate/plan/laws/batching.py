"""How fast is a continuous batch, how many does it hold, and what does it sustain?

A batch is no set of servers. Every sequence in it is served at once, and the more there are, the slower each
gets. Two times make it up:

    T(n)   one decode step of n sequences at their mean context;
    p(n)   what one prompt adds to the steps that compute it, beside n sequences that decode.

A sequence takes part in H = (steps of its prompt) + (output tokens - 1) steps; one of every H steps of a
sequence begins a prompt. `population` makes a queue of it, `steady` the latencies.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from functools import cache, cached_property, lru_cache
from math import ceil
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from tidegate.core.errors import CallerError
from tidegate.plan.laws.engine import Engine
from tidegate.plan.laws.lengths import Kind, Lengths
from tidegate.plan.laws.steps import Chunks, Steps, steps_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


MANY = 16
"""Prompts of a step that are told apart. More are their tokens in so many chunks, and count as sequences."""


class Saturated(msgspec.Struct, frozen=True, kw_only=True):
    """A batch that is always as full as its gate lets it be: a closed loop without thinking."""

    requests_per_s: float
    step_s: float
    """Of the steps, mean."""
    tpot_s: float
    """Of a sequence, mean: its own prompt stalls the others only."""
    decodes: float
    """Sequences that decode in a step, mean; the others compute their prompts."""
    binding: Literal["decode", "prefill"]
    """Whether there are more steps because of outputs, or because no more prompt tokens fit in a step."""


class Batch:
    """An engine's batch under requests of such lengths. Step times are remembered: ask one for many rates."""

    def __init__(self, engine: Engine, lengths: Lengths) -> None:
        self.engine, self.lengths = engine, lengths
        known, budget = _moments(lengths), engine.max_batched_tokens
        self.prompt_tokens = known.prompt_tokens
        """To be computed, mean."""
        self.prompt_cv2 = max(0.0, known.prompt_square / self.prompt_tokens**2 - 1)
        self._long = known.prompt_square / self.prompt_tokens
        self._cached = self.prompt_tokens * lengths.hit_ratio / (1 - lengths.hit_ratio)
        self._fresh = known.fresh
        self.longest_tokens = max(tokens for tokens, _ in self._fresh)
        """Of a prompt, to be computed."""
        self.prompt_steps = sum(share * ceil(tokens / budget) for tokens, share in self._fresh)
        """Of a prompt that finds no other, mean."""
        self.decode_steps = known.decode_steps
        """Of a sequence, mean."""
        self.context_tokens = known.context_tokens
        """That a sequence attends to, mean over the decode steps."""
        self.output_cv2 = known.output_cv2
        """Squared coefficient of variation of the decode steps."""
        self._known: tuple[Floats, Floats] | None = None
        self._points: list[float] = [-1.0]
        self._seconds: list[float] = []
        self._added_s: dict[tuple[int, float], float] = {}
        self._saturated: dict[int, Saturated] = {}

    # -- steps ----------------------------------------------------------------------------------------------

    def decode_s(self, decodes: float) -> float:
        """T(n), of a step that only decodes. Of large batches every 8th to 16th is asked of the curve."""
        if decodes > self._points[-1]:
            self._known_upto(decodes)
        points, seconds = self._points, self._seconds
        at = bisect_right(points, decodes) - 1
        if not (along := decodes - points[at]):
            return seconds[at]
        return seconds[at] + (seconds[at + 1] - seconds[at]) * along / (points[at + 1] - points[at])

    def decode_many_s(self, decodes: Floats) -> Floats:
        """T(n) of many ascending numbers."""
        import numpy as np

        asked, seconds = self._known_upto(float(decodes[-1]))
        found: Floats = np.interp(decodes, asked, seconds)
        return found

    def _known_upto(self, most: float) -> tuple[Floats, Floats]:
        """Numbers of which the curve is asked, and what it says; all at once, for as many as were needed."""
        if self._known is None or self._known[0][-1] < most:
            asked = _asked(max(64, 1 << ceil(most).bit_length()))
            seconds = self._steps.decoding_s(asked, asked * self.context_tokens)
            self._known = asked, seconds
            self._points, self._seconds = asked.tolist(), seconds.tolist()
        return self._known

    @cached_property
    def _steps(self) -> Steps:
        return steps_of(self.engine.curve)

    def step_s(self, decodes: float, prompt_tokens: float) -> float:
        """Of a step that computes so many tokens of prompts beside the sequences that decode.

        A token of a chunk is given the context that prompt tokens have on average, longer prompts counting
        for more: with it, the attention of equal chunks is that of unequal prompts.
        """
        if prompt_tokens < 1:
            return self.decode_s(decodes)
        whole = max(1, ceil(prompt_tokens / self.prompt_tokens - 1e-9))
        apart = min(whole, MANY)
        new = prompt_tokens / apart
        chunks = [(new, (self._long - new) / 2 + self._cached)] * apart
        count = round(decodes)
        context_tokens = count * self.context_tokens
        # A share of a token is one as well.
        seconds = self.engine.curve.step_s(count + whole - apart, context_tokens, chunks)  # type: ignore[arg-type]
        return seconds + self.decode_s(decodes) - self.decode_s(count)

    def steps_s(self, decodes: float, prompt_tokens: Floats) -> Floats:
        """`step_s` of many amounts of prompt tokens."""
        import numpy as np

        whole = np.maximum(np.ceil(prompt_tokens / self.prompt_tokens - 1e-9), 1.0)
        apart = np.minimum(whole, MANY)
        new, count = prompt_tokens / apart, round(decodes)
        chunks = Chunks(prompts=apart, new=new, before=(self._long - new) / 2 + self._cached)
        seconds = self._steps.beside_s(count + whole - apart, count * self.context_tokens, chunks)
        along_s = self.decode_s(decodes)
        return np.where(prompt_tokens < 1, along_s, seconds + (along_s - self.decode_s(count)))

    def prefill_s(self, decodes: float, at_once: float = 1.0) -> float:
        """p(n): what a prompt adds to steps, if so many prompts are computed in one (at least 1)."""
        budget = max(1.0, self.engine.max_batched_tokens - decodes)
        tokens = min(self.prompt_tokens * at_once, budget)
        if tokens < 1:
            return 0.0
        key = round(decodes), tokens
        if (added_s := self._added_s.get(key)) is None:
            added_s = self.step_s(key[0], tokens) - self.decode_s(key[0])
            if tokens == self.prompt_tokens:  # others are of every budget that is left
                self._added_s[key] = added_s
        return added_s * self.prompt_tokens / tokens

    @cached_property
    def prompts(self) -> tuple[Floats, Floats]:
        """Tokens to be computed of prompts, and the share of requests."""
        return _arrays(self._fresh)

    @cached_property
    def outputs(self) -> tuple[Floats, Floats]:
        """Output tokens, and the share of requests."""
        return _arrays(self.lengths.outputs())

    @cached_property
    def evenness(self) -> float:
        """E[min of two outputs] / E[output], 0..1: 1 for equal ones, 1/2 for exponential ones."""
        tokens, shares = self.outputs
        order = tokens.argsort()
        tokens, shares = tokens[order], shares[order]
        longer = 1 - shares.cumsum()
        # Of two, both are longer than those before, and not both longer than these.
        both = (longer + shares) ** 2 - longer**2
        return float((tokens * both).sum() / (tokens * shares).sum())

    @cached_property
    def alone(self) -> tuple[Floats, Floats]:
        """`alone_s` of all prompts, and the share of requests."""
        import numpy as np

        tokens, shares = self.prompts
        full, rest = np.divmod(tokens, self.engine.max_batched_tokens)
        rest_s = np.where(rest > 0, self.steps_s(0, rest), 0.0)
        most = float(full.max())
        return rest_s + full * (self.step_s(0, self.engine.max_batched_tokens) if most else 0.0), shares

    def alone_s(self, prompt_tokens: float) -> float:
        """Of the steps that compute a prompt of which so many tokens are left, with nothing beside them."""
        budget = self.engine.max_batched_tokens
        full, rest = divmod(prompt_tokens, budget)
        return (full * self.step_s(0, budget) if full else 0.0) + (self.step_s(0, rest) if rest else 0.0)

    # -- gates ----------------------------------------------------------------------------------------------

    @property
    def kv_gate(self) -> int:
        """Sequences that fit into the KV cache at once, each as long as it ever gets, in whole blocks.

        A kind counts as often as it is met in the batch: by its share and its output tokens.
        """
        block = self.engine.block_tokens
        met = self.lengths.mean(lambda kind: kind.output_tokens)
        blocks = self.lengths.mean(
            lambda kind: kind.output_tokens * ceil((kind.prompt_tokens + kind.output_tokens) / block)
        )
        return int(self.engine.kv_tokens // block * met / blocks)

    @property
    def batch_gate(self) -> int:
        """Sequences that the engine takes into a batch at all."""
        return self.engine.max_num_seqs

    def gate(self, tpot_s: float | None = None) -> int:
        """The least of these gates, and of the one that keeps TPOT within `tpot_s`."""
        gates = [self.kv_gate, self.batch_gate]
        return min(gates if tpot_s is None else [*gates, self.tpot_gate(tpot_s)])

    def tpot_gate(self, tpot_s: float) -> int:
        """The most sequences whose mean TPOT is within `tpot_s` while the gate is full; 0: not one's is.

        Answers of one token have no TPOT, and are never over it.
        """
        if not self.decode_steps:
            return self.batch_gate
        low, high = 0, self.batch_gate
        if self.saturated(high).tpot_s <= tpot_s:  # as mostly
            return high
        high -= 1
        while low < high:
            middle = (low + high + 1) // 2
            if self.saturated(middle).tpot_s <= tpot_s:
                low = middle
            else:
                high = middle - 1
        return low

    def saturated(self, gate: int) -> Saturated:
        """What a full batch of so many sequences does; its rate is the highest that can be sustained.

        Of the H steps of each of `gate` sequences one begins its prompt, so that a step has gate/H prompts.
        Where these are more tokens than a step may compute, each step is full of prompts instead, and
        Little's law says how many sequences decode beside them.
        """
        if (known := self._saturated.get(gate)) is None:
            known = self._saturated[gate] = self._saturated_at(gate)
        return known

    def _saturated_at(self, gate: int) -> Saturated:
        if gate < 1:
            raise CallerError(f"a gate lets at least 1 in, not {gate}")
        steps = self.prompt_steps + self.decode_steps
        decodes, prompts = gate * self.decode_steps / steps, gate / steps
        budget = self.engine.max_batched_tokens
        if prompts * self.prompt_tokens + decodes > budget:
            decodes = min(decodes, budget * self.decode_steps / (self.prompt_tokens + self.decode_steps))
            step_s = self.step_s(decodes, budget - decodes)
            rate = (budget - decodes) / self.prompt_tokens / step_s
            return Saturated(
                requests_per_s=rate, step_s=step_s, tpot_s=step_s, decodes=decodes, binding="prefill"
            )
        alone_s, prefill_s = self.decode_s(decodes), self.prefill_s(decodes, max(1.0, prompts))
        step_s = alone_s + prompts * prefill_s
        return Saturated(
            requests_per_s=prompts / step_s,
            step_s=step_s,
            tpot_s=step_s - prefill_s / steps,
            decodes=decodes,
            binding="decode",
        )


def _arrays(law: Sequence[tuple[float, float]]) -> tuple[Floats, Floats]:
    import numpy as np

    tokens, shares = zip(*law, strict=True)
    return np.array(tokens, float), np.array(shares, float)


class _Moments(NamedTuple):
    """What a batch is told of lengths; its own names for them."""

    fresh: tuple[tuple[float, float], ...]
    prompt_tokens: float
    prompt_square: float
    decode_steps: float
    context_tokens: float
    output_cv2: float


@lru_cache(maxsize=64)
def _moments(lengths: Lengths) -> _Moments:
    """Once for all the engines that a search asks about a load."""
    left, steps = 1 - lengths.hit_ratio, lengths.mean(lambda kind: kind.output_tokens - 1)
    square = lengths.mean(lambda kind: (kind.output_tokens - 1) ** 2 * (1 + kind.output_cv**2))
    return _Moments(
        fresh=tuple(lengths.fresh()),
        prompt_tokens=left * lengths.mean(lambda kind: kind.prompt_tokens),
        prompt_square=left**2 * lengths.mean(lambda kind: kind.prompt_tokens**2 * (1 + kind.prompt_cv**2)),
        decode_steps=steps,
        context_tokens=lengths.mean(_context) / steps if steps else 0.0,
        output_cv2=max(0.0, square / steps**2 - 1) if steps else 0.0,
    )


def _apart(decodes: int) -> int:
    """How far from such a number the next is of which a curve is asked: of large ones an 8th to a 16th."""
    return 1 << max(0, decodes.bit_length() - 4)


@cache
def _asked(most: int) -> Floats:
    """The numbers of sequences, up to `most`, of which a curve is asked."""
    import numpy as np

    asked = [0]
    while asked[-1] < most:
        asked.append(asked[-1] + _apart(asked[-1]))
    return np.array(asked, float)


def _context(kind: Kind) -> float:
    """Tokens attended to in all decode steps of a sequence, mean: step i, from 1 on, attends to prompt + i.

    The sum of 1 ... n is n (n + 1) / 2.
    """
    steps = kind.output_tokens - 1
    return steps * kind.prompt_tokens + (steps**2 * (1 + kind.output_cv**2) + steps) / 2
