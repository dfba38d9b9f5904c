"""What will a request cost before anybody knows? Learned from what earlier ones did cost.

Prompt tokens: bytes over the pool's learned bytes per token (exact tokenisation would stall the event
loop for 77 ms per 100 KB). Output tokens: a learned quantile per tenant and pool. Both are single numbers
nudged by each settled request, so that they forget slowly and cost nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, inf

from tidegate.core.request import Request
from tidegate.policy.settings import PredictionSettings

BYTES_PER_TOKEN_MAX = 16.0
"""No text averages more bytes per token in the vocabularies in use, which makes bytes / 16 a lower bound."""
TEMPLATE_TOKENS = 256
"""Allowance for a chat template where the upper bound of a prompt is taken from its bytes."""


@dataclass(slots=True)
class BytesPerToken:
    """Exponentially weighted mean of bytes per prompt token, bounded to 0.5..16."""

    value: float

    def learn(self, prompt_bytes: int, prompt_tokens: int) -> None:
        """An engine counted `prompt_tokens` in a text of `prompt_bytes`."""
        # Short prompts are mostly template; they would teach the template's ratio, not the text's.
        if prompt_bytes >= 64 and prompt_tokens > 0:
            sample = min(max(prompt_bytes / prompt_tokens, 0.5), BYTES_PER_TOKEN_MAX)
            self.value += 0.05 * (sample - self.value)


@dataclass(slots=True)
class Quantile:
    """A quantile followed by steps that are small on one side and large on the other, in the logarithm.

    In balance the estimate is exceeded by a share 1 - ratio of samples. Source: Robbins and Monro (1951).
    """

    value: float
    ratio: float
    step: float = 0.1

    def learn(self, sample: float) -> None:
        """Move towards the quantile by at most `step` of itself."""
        below = sample <= self.value
        self.value = max(1.0, self.value * exp(self.step * (self.ratio - below)))


@dataclass(slots=True)
class Predictor:
    """What one pool has learned."""

    settings: PredictionSettings
    bytes_per_token: BytesPerToken
    outputs: dict[str, Quantile]  # by tenant

    @classmethod
    def of(cls, settings: PredictionSettings) -> Predictor:
        """A predictor that knows only its first guesses."""
        return cls(settings, BytesPerToken(settings.bytes_per_token), {})

    def prompt_tokens(self, request: Request) -> float:
        """The likely prompt."""
        return request.prompt_bytes / self.bytes_per_token.value + request.prompt_tokens_known

    def prompt_tokens_certain(self, request: Request) -> float:
        """The least that the prompt can be."""
        return request.prompt_bytes / BYTES_PER_TOKEN_MAX + request.prompt_tokens_known

    def prompt_tokens_bound(self, request: Request) -> float:
        """The most that the prompt can be: byte-level vocabularies have no token shorter than a byte."""
        return request.prompt_bytes + request.prompt_tokens_known + TEMPLATE_TOKENS

    def output_tokens(self, request: Request, max_tokens: int | None) -> float:
        """The likely output over all choices, within what bounds it."""
        if not request.generates:
            return 0.0
        learned = self.outputs.get(request.tenant)
        likely = self.settings.output_tokens if learned is None else learned.value
        return request.choices * (likely if max_tokens is None else min(likely, max_tokens))

    def output_tokens_bound(
        self, request: Request, max_tokens: int | None, context_tokens: int | None
    ) -> float:
        """The most that the output can be; inf where neither the client nor the context bounds it."""
        if not request.generates:
            return 0.0
        if max_tokens is not None:
            return float(request.choices * max_tokens)
        if context_tokens is None:
            return inf
        return request.choices * max(1.0, context_tokens - self.prompt_tokens_certain(request))

    def learn(self, request: Request, prompt_tokens: int, output_tokens: int) -> None:
        """A request was settled by its engine's own count."""
        if request.prompt_tokens_known == 0:
            self.bytes_per_token.learn(request.prompt_bytes, prompt_tokens)
        if request.generates and output_tokens > 0:
            quantile = self.outputs.get(request.tenant)
            if quantile is None:
                quantile = Quantile(self.settings.output_tokens, self.settings.output_quantile)
                self.outputs[request.tenant] = quantile
            quantile.learn(output_tokens / request.choices)


@dataclass(slots=True)
class DrainRate:
    """How fast a pool works off its queue, in tokens per second, and what it has promised of that.

    Measured only over time in which something waited: an idle pool says nothing about its rate. Tokens
    and seconds fade alike, so that their ratio is right from the first second on.
    """

    window_s: float = 10.0
    settled_s: float = 1.0  # busy seconds before the rate is believed
    horizon_s: float = 120.0  # promises reach no further: nobody is told to wait longer
    booked_at: float = -inf
    _tokens: float = 0.0
    _seconds: float = 0.0
    _measured_at: float | None = None

    def on_waiting(self, now: float, waiting: bool) -> None:
        """The queue became non-empty or empty."""
        if waiting and self._measured_at is None:
            self._measured_at = now
        elif not waiting and self._measured_at is not None:
            self._pass(now)
            self._measured_at = None

    def on_dispatched(self, now: float, tokens: float) -> None:
        """`tokens` of waiting work were sent."""
        if self._measured_at is not None:
            self._pass(now)
            self._tokens += tokens

    @property
    def tokens_per_s(self) -> float:
        """The rate; 0 while it is unknown."""
        return self._tokens / self._seconds if self._seconds >= self.settled_s else 0.0

    def wait_s(self, tokens_ahead: float) -> float:
        """Seconds until `tokens_ahead` are worked off; 0 while the rate is unknown."""
        rate = self.tokens_per_s
        return tokens_ahead / rate if rate > 0 else 0.0

    def book(self, now: float, tokens_ahead: float, cost: float) -> float:
        """Promise a refused request its place in the drain, behind earlier promises; seconds from now."""
        rate = self.tokens_per_s
        if rate <= 0:
            return 1.0
        booked_at = max(self.booked_at, now + tokens_ahead / rate) + cost / rate
        self.booked_at = min(booked_at, now + self.horizon_s)
        return self.booked_at - now

    def _pass(self, now: float) -> None:
        assert self._measured_at is not None
        elapsed_s = now - self._measured_at
        self._measured_at = now
        kept = exp(-elapsed_s / self.window_s)
        self._tokens *= kept
        # The integral of the same window over the time that passed.
        self._seconds = self._seconds * kept + self.window_s * (1.0 - kept)
