"""How long does a step of a deployment take, and what binds it?

A step is a sum, as `core.curve.Table` is: what depends on the tokens computed in it (weights are read *or*
products are computed, whichever takes longer; experts; all-reduces; overheads), on its sequences (the output
layer, sampling), and attention of what decodes and of each prompt. Source: Williams, Waterman, Patterson:
Roofline, 2009; the terms of transformers as in Pope et al., 2022 (arXiv:2211.05102).

The formulas are written without branches, so that they take arrays in place of numbers: the fit of their
efficiencies asks for many deployments at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final

import msgspec

from tidegate.catalog.accelerators import Accelerator
from tidegate.core.curve import Chunk, Grid, Line, Table
from tidegate.perf.deployment import Deployment
from tidegate.perf.efficiencies import Efficiencies
from tidegate.perf.shares import reached_on
from tidegate.perf.work import UNLIMITED, ByComputed, Work, work_of

MOST_TOKENS: Final = 2.0**17
MOST_SEQUENCES: Final = 2.0**12
"""The curve's last points; beyond them it goes on straight."""
TWO_SHOT_S: Final = 15e-6
"""What a second exchange costs before its bytes: vLLM's custom all-reduce against NCCL on 2 to 8 H100
(`../shared/data/engine-ops-aiconfigurator`, custom_allreduce_bf16: 5 and 20 us at 256 bytes)."""


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """Of one device, from its makers."""

    bytes_per_s: float
    flops_per_s: ByComputed
    """By `work.COMPUTED`."""
    link_bytes_per_s: float


def rates_of(deployment: Deployment) -> Rates:
    """A replica's layers that reach beyond a node exchange at the rate between nodes."""
    device = deployment.accelerator
    inside = deployment.stage_devices <= device.per_node
    return Rates(
        bytes_per_s=device.bandwidth_bytes_per_s,
        flops_per_s=(_peak(device, "bf16"), _peak(device, "fp8"), _peak(device, "fp4")),
        link_bytes_per_s=device.link_bytes_per_s if inside else device.node_link_bytes_per_s,
    )


def _peak(device: Accelerator, precision: str) -> float:
    """A device without fp8 computes it as int8, if it can that."""
    flops = device.flops_per_s
    other = flops.get("int8") if precision == "fp8" else None
    return flops.get(precision) or other or flops["bf16"]


class Roofline(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds of the parts of a step."""

    work: Work
    rates: Rates
    reached: Efficiencies

    def reading_s(self) -> float:
        """Weights of all but experts and output layer."""
        each = zip(self.work.read_bytes, self.reached.read, strict=True)
        return sum(count / share for count, share in each) / self.rates.bytes_per_s

    def computing_s(self, tokens: float) -> float:
        """Their products."""
        return tokens / self.work.parts * self._at_peak(self.work.flops_per_token)

    def _at_peak(self, flops: ByComputed) -> float:
        each = zip(flops, self.rates.flops_per_s, self.reached.compute, strict=True)
        return sum(count / (peak * share) for count, peak, share in each)

    def moving_s(self, tokens: float) -> float:
        """Activations, through memory."""
        moves, reached = self.work.activations, self.reached
        each = zip(moves.product_bytes, reached.product_moves, strict=True)
        here = sum(count / share for count, share in each) + moves.between_bytes / reached.between
        shared = moves.expert_bytes / reached.expert_moves
        return (here / self.work.parts + shared / self.work.stages) * tokens / self.rates.bytes_per_s

    def expert_reading_s(self, tokens: float) -> float:
        """Experts that any token chooses: 1 - (1 - chosen / count)^tokens of all, if they choose evenly."""
        each = zip(self.work.expert_bytes, self.reached.expert_read, strict=True)
        seconds = sum(count / share for count, share in each) / self.rates.bytes_per_s
        return self._touched(tokens) * seconds

    def _touched(self, tokens: float) -> float:
        """Share of the experts."""
        missed: float = (1 - self.work.chosen_share) ** (tokens / self.work.stages)
        return 1 - missed

    def expert_computing_s(self, tokens: float) -> float:
        """Products with the experts that they choose: tokens of each are filled up to whole tiles, by half a
        tile on the mean.
        """
        seconds = self._at_peak(self.work.expert_flops_per_token) / self.reached.expert_compute
        fillers = self._touched(tokens) * self.work.experts_per_chosen * self.reached.expert_tile / 2
        return (tokens / self.work.stages + fillers) * seconds

    def reducing_s(self, tokens: float) -> float:
        """All-reduces: all send to all at once, or in two exchanges each its part, whichever is sooner."""
        work, rate = self.work, self.rates.link_bytes_per_s * self.reached.link
        sent_s = tokens / work.stages * work.reduce_bytes / rate
        one_s = (work.peers - 1) * sent_s
        two_s = TWO_SHOT_S + 2 * (work.peers - 1) / work.peers * sent_s
        return work.reduces * (self.reached.reduce_s + least(one_s, two_s))

    def overhead_s(self) -> float:
        """Of a step, whatever is in it."""
        reached, work = self.reached, self.work
        each = zip(work.activations.products, reached.product_s, strict=True)
        launched_s = sum(count * seconds for count, seconds in each)
        layers_s = reached.layer_s * work.layers + reached.expert_layer_s * work.expert_layers
        return reached.step_s + layers_s + launched_s

    def tokens_s(self, tokens: float) -> float:
        """All that depends on the tokens of a step."""
        return (
            either(self.reading_s(), self.computing_s(tokens))
            + either(self.expert_reading_s(tokens), self.expert_computing_s(tokens))
            + self.moving_s(tokens)
            + self.reducing_s(tokens)
            + self.overhead_s()
        )

    def sequences_s(self, sequences: float) -> float:
        """The output layer, and what is done once for each sequence."""
        here = sequences / self.work.parts
        reading_s = self.work.head_bytes / (self.rates.bytes_per_s * self.reached.read[0])
        computing_s = here * self.work.head_flops / (self.rates.flops_per_s[0] * self.reached.compute[0])
        return either(reading_s, computing_s) + here * self.reached.sequence_s

    def decode_s(self, decodes: float, context_tokens: float) -> float:
        """Attention of decoding sequences that attend to so many tokens each, and their states."""
        here, rate = decodes / self.work.parts, self.rates.bytes_per_s * self.reached.cache
        peak = self.rates.flops_per_s[0] * self.reached.decode_attention
        seconds = here * self.work.state_bytes / rate
        for span in self.work.spans:
            pairs = here * least(context_tokens, span.limit_tokens)
            seconds += pairs * most(span.read_bytes / rate, span.decode_flops / peak)
        return seconds

    def prefill_s(self, new: float, before: float) -> float:
        """Attention of `new` prompt tokens after `before` others."""
        peak = self.rates.flops_per_s[0] * self.reached.prefill_attention
        seconds = 0.0
        for span in self.work.spans:
            pairs = _attended(before + new, span.limit_tokens) - _attended(before, span.limit_tokens)
            pairs += new * self.reached.attended_tokens
            seconds += pairs / self.work.parts * span.prefill_flops / peak
        return seconds


def least(one: float, other: float) -> float:
    """The smaller one, of arrays too."""
    return one - above(one - other)


def most(one: float, other: float) -> float:
    """The larger one, of arrays too."""
    return one + above(other - one)


def above(value: float) -> float:
    """What of it is above 0, of arrays too."""
    return (value + abs(value)) / 2


def either(reading_s: float, computing_s: float) -> float:
    """The longer of two that overlap; near each other, somewhat more: (a^4 + b^4)^(1/4), which is 19 % above
    both where they are equal, and what matrix products of 1 to 16,384 tokens are met by (docs/accuracy.md).
    """
    one, other = reading_s * reading_s, computing_s * computing_s
    seconds: float = ((one * one + other * other) ** 0.5) ** 0.5
    return seconds


def _attended(tokens: float, limit: float) -> float:
    """Pairs, if the first so many tokens each attend to all before them, `limit` at most."""
    return (tokens * tokens - above(tokens - limit) ** 2) / 2


def roofline_of(deployment: Deployment, reached: Efficiencies | None = None) -> Roofline:
    """With the efficiencies of its software on its accelerator, unless there are better ones."""
    return Roofline(
        work=work_of(deployment),
        rates=rates_of(deployment),
        reached=reached or reached_on(deployment),
    )


def curve_of(deployment: Deployment, reached: Efficiencies | None = None) -> Table:
    """Of the whole replica: tokens, sequences and chunks are those of all copies, as busy as each other.

    Attention is exact in what decodes; between two points the rest is at most 2 % above the formula.
    """
    import numpy as np  # here, for a plan by hand needs none of it

    roof = roofline_of(deployment, reached)
    tokens, sequences = _points(1.0, MOST_TOKENS), _points(1.0, MOST_SEQUENCES)
    limits = sorted({span.limit_tokens for span in roof.work.spans if span.limit_tokens < UNLIMITED})
    contexts = (0.0, *limits, 2 * MOST_TOKENS)
    new, before = (0.0, *_points(16.0, MOST_TOKENS)), _befores(limits)
    rows, columns = np.array(new)[:, None], np.array(before)

    def line(points: tuple[float, ...], seconds: Callable[[Any], Any]) -> Line:
        found = np.broadcast_to(seconds(np.array(points)), len(points))
        return Line(points=points, seconds=tuple(found.tolist()))

    prefill = np.broadcast_to(roof.prefill_s(rows, columns), (len(new), len(before)))  # type: ignore[arg-type]
    return Table(
        tokens=line(tokens, roof.tokens_s),
        sequences=line(sequences, roof.sequences_s),
        decode=Grid(
            rows=(0.0, 1.0),
            columns=contexts,
            seconds=tuple(tuple(roof.decode_s(n, context) for context in contexts) for n in (0.0, 1.0)),
        ),
        prefill=Grid(rows=new, columns=before, seconds=tuple(map(tuple, prefill.tolist()))),
    )


@cache
def _points(first: float, last: float) -> tuple[float, ...]:
    """Two an octave."""
    points = [first]
    while points[-1] < last:
        octave = points[-1] * 2
        points += [points[-1] * 1.5, octave]
    return tuple(points)


def _befores(limits: list[float]) -> tuple[float, ...]:
    """A window fills while a prompt is in it."""
    fills = {limit * quarters / 4 for limit in limits for quarters in (1, 2, 3, 4)}
    return (0.0, *sorted(fills), 2 * MOST_TOKENS)


class Bound(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds of a step by what they are spent on."""

    compute_s: float
    bandwidth_s: float
    """Reading weights and caches, moving activations."""
    link_s: float
    overhead_s: float

    @property
    def name(self) -> str:
        """Of the largest: compute, bandwidth, link or overhead."""
        seconds = {name: getattr(self, f"{name}_s") for name in ("bandwidth", "compute", "link", "overhead")}
        return max(seconds, key=seconds.__getitem__)


def bound_at(
    deployment: Deployment,
    decodes: float,
    context_tokens: float,
    chunks: Sequence[Chunk] = (),
    reached: Efficiencies | None = None,
) -> Bound:
    """Of a step as `curve_of` has it; `context_tokens` are of all decoding sequences in sum."""
    roof = roofline_of(deployment, reached)
    new = sum(tokens for tokens, _ in chunks)
    tokens, sequences = decodes + new, decodes + len(chunks)
    compute_s = bandwidth_s = 0.0
    for reading_s, computing_s in (
        (roof.reading_s(), roof.computing_s(tokens)),
        (roof.expert_reading_s(tokens), roof.expert_computing_s(tokens)),
    ):
        both_s = either(reading_s, computing_s)
        compute_s += both_s if computing_s > reading_s else 0.0
        bandwidth_s += both_s if computing_s <= reading_s else 0.0
    each_s = sequences / roof.work.parts * roof.reached.sequence_s
    attention_s = roof.decode_s(decodes, context_tokens / decodes) if decodes else 0.0
    moved_s = roof.moving_s(tokens)
    return Bound(
        compute_s=compute_s + sum(roof.prefill_s(*chunk) for chunk in chunks),
        bandwidth_s=bandwidth_s + moved_s + roof.sequences_s(sequences) - each_s + attention_s,
        link_s=roof.reducing_s(tokens),
        overhead_s=roof.overhead_s() + each_s,
    )
