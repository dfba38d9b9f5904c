"""Of what is advice made? Figures of a configuration, each with its reason in one sentence.

Names are those of the configuration file, so that whoever writes one copies figures and reasons.
"""

from __future__ import annotations

from math import ceil, floor, log10

import msgspec


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of a configuration; None: leave it out."""

    value: int | float | None
    reason: str


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """One word of a configuration."""

    value: str
    reason: str


class TenantAdvice(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one tenant, and what they promise it."""

    weight: float
    tokens_per_minute: Figure
    """Credits: tokens times their weights."""
    burst_s: Figure
    burst_tokens: float
    """The same burst as prompt and output tokens, as the fair queue counts them."""
    burst_within_budget_tokens: float | None
    """The burst of which the bound is the TTFT budget; 0 where no burst is; None: there is no budget."""
    guaranteed_tokens_per_s: float
    """Of prefill, whatever the others do; where nothing is known of prompts, of all that is sustained."""
    ttft_bound_s: Figure
    """No request within these limits waits longer for its first token, whatever the others do."""
    holds_budget: bool | None
    """Whether that bound is within the TTFT budget; None: there is no budget."""
    refused_ratio: float
    """About which share of its planned requests finds its bucket empty, 0..1."""
    refused_at_first_ratio: float
    """The same while as much is reserved for its answers as for the longest: some hundred requests long."""


class GateAdvice(msgspec.Struct, frozen=True, kw_only=True):
    """Of each replica."""

    max_concurrency: Figure
    kv_tokens: Figure
    max_prefill_tokens: Figure


class QueueAdvice(msgspec.Struct, frozen=True, kw_only=True):
    """Of the pool."""

    max_requests: Figure
    max_tokens: Figure
    max_wait_s: dict[str, Figure]
    """By class."""


class WeightAdvice(msgspec.Struct, frozen=True, kw_only=True):
    """Credits per token."""

    input: Figure
    cached_input: Figure
    output: Figure


class BudgetAdvice(msgspec.Struct, frozen=True, kw_only=True):
    """Where the time of a request may go."""

    queue_s: Figure
    prefill_s: Figure
    delivery_s: Figure
    tpot_s: Figure
    e2e_s: Figure


class DeadlineAdvice(msgspec.Struct, frozen=True, kw_only=True):
    """What is enforced."""

    ttft_s: Figure
    total_s: Figure


class StepAdvice(msgspec.Struct, frozen=True, kw_only=True):
    """One step of degradation."""

    step: str
    """clamp, fallback or shed."""
    above: float
    below: float
    dwell_s: float
    reason: str
    max_tokens: int | None = None
    classes: tuple[str, ...] | None = None
    """null: every class that is not protected."""
    active: bool = True
    """false: named for its threshold only; the reason says why it is not to be used as things are."""


class PredictionAdvice(msgspec.Struct, frozen=True, kw_only=True):
    """First guesses, until the pool has learned its own."""

    output_tokens: Figure


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that goes into a configuration."""

    gate: GateAdvice
    queue: QueueAdvice
    tenants: dict[str, TenantAdvice]
    weights: WeightAdvice
    budgets: BudgetAdvice
    deadlines: DeadlineAdvice
    prediction: PredictionAdvice
    degradation: tuple[StepAdvice, ...]
    routing: Choice
    warnings: tuple[str, ...] = ()


def rounded_down(value: float, digits: int = 3) -> float:
    """To so many significant digits, and never above `value`."""
    step = _step(value, digits)
    return _clean(floor(value / step + 1e-9) * step, digits) if value > 0 else 0.0


def rounded_up(value: float, digits: int = 3) -> float:
    """To so many significant digits, and never below `value`."""
    step = _step(value, digits)
    return _clean(ceil(value / step - 1e-9) * step, digits) if value > 0 else 0.0


def _step(value: float, digits: int) -> float:
    return float(10.0 ** (floor(log10(value)) - digits + 1)) if value > 0 else 1.0


def _clean(value: float, digits: int) -> float:
    """Without what binary fractions leave behind."""
    return float(f"{value:.{digits}g}")
