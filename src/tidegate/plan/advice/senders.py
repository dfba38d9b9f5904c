"""What do tenants send, and what is it that they share?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from tidegate.plan.ask import Kind
from tidegate.plan.tenants import Tenant, longest


class Fleet(msgspec.Struct, frozen=True, kw_only=True):
    """What tenants share."""

    replicas: int
    """That serve: all but the spare ones."""
    prefill_tokens_per_s: float
    """Of each, beside a full batch; inf: prompts take no time, as where nothing is known of them."""
    admitted_per_s: float
    """Requests per second that all limits together let in."""
    request_credits: float
    """Of the mean request."""
    free_places: float
    """In all batches together, at that rate."""
    gate_tokens: float
    """Prompt tokens that a replica has before it, at most, of requests that are no larger than that."""
    step_s: float
    """The longest step."""
    delivery_s: float
    credits: tuple[float, float, float]
    """Of a prompt token, of a cached one, and of an output token."""
    hit_ratio: float
    """Prompt tokens that are cached, 0..1."""
    first_output_tokens: float
    """What is reserved for an answer until a tenant's own answers are learned."""
    arrivals_cv2: float = 1.0
    """Squared coefficient of variation of the gaps between requests."""
    ttft_mean_s: float = 0.0
    tpot_mean_s: float = 0.0
    """Of planned requests: how long what is reserved for an answer is held."""
    users: float | None = None
    """Of all tenants, who wait for their answers; None: requests come by themselves."""
    think_s: float = 0.0
    """Of each user, between an answer and the next request."""

    def credits_of(self, kind: Kind, *, cached: bool) -> float:
        """Of one request; a limit reserves what is not cached."""
        fresh, hit, output = self.credits
        hit_ratio = self.hit_ratio if cached else 0.0
        prompt = fresh * (1 - hit_ratio) + hit * hit_ratio
        return kind.prompt_tokens * prompt + kind.output_tokens * output


class Sender(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant, measured."""

    tenant: Tenant
    share: float
    """Of all weights."""
    requests_per_s: float
    """That are planned."""
    credits_per_s: float = 0.0
    """That its limit lets in."""
    shared: str = ""
    """How those were found."""
    ttft_s: float | None = None
    """The budget; None: there is none."""

    @property
    def request_tokens(self) -> float:
        """The mean."""
        return self._mean([kind.prompt_tokens + kind.output_tokens for kind in self.tenant.kinds])

    @property
    def largest_tokens(self) -> float:
        """Prompt and output of its largest request."""
        return max(kind.prompt_tokens + kind.output_tokens for kind in self._longest())

    @property
    def longest_prompt_tokens(self) -> float:
        """Of its requests."""
        return max(kind.prompt_tokens for kind in self._longest())

    @property
    def tokens_cv2(self) -> float:
        """Squared coefficient of variation of its requests' tokens."""
        square = self._mean([(kind.prompt_tokens + kind.output_tokens) ** 2 for kind in self.tenant.kinds])
        return max(0.0, square / self.request_tokens**2 - 1)

    def unlearned_credits(self, fleet: Fleet) -> float:
        """Reserved beyond the cost of what it has under way (Little's law), until its answers are learned."""
        output = self.tenant.output_tokens
        stay_s = fleet.ttft_mean_s + output * fleet.tpot_mean_s
        return self.requests_per_s * stay_s * max(0.0, fleet.first_output_tokens - output) * fleet.credits[2]

    def planned_credits_per_s(self, fleet: Fleet) -> float:
        """What it is planned to send."""
        return self.requests_per_s * self.credits(fleet)

    def load(self, fleet: Fleet) -> float:
        """The same, over what it may."""
        return self.planned_credits_per_s(fleet) / self.credits_per_s

    def tokens_per_s(self, fleet: Fleet) -> float:
        """What it may send, in tokens of its own requests."""
        return self.credits_per_s * self.request_tokens / self.credits(fleet)

    def credits(self, fleet: Fleet) -> float:
        """The mean of its requests."""
        return self._mean([fleet.credits_of(kind, cached=True) for kind in self.tenant.kinds])

    def largest_credits(self, fleet: Fleet) -> float:
        """Of the request that reserves most."""
        return max(fleet.credits_of(kind, cached=False) for kind in self._longest())

    def _longest(self) -> Iterator[Kind]:
        """Of each of its kinds a request that few are longer than."""
        for kind in self.tenant.kinds:
            prompt = longest(kind.prompt_tokens, kind.prompt_cv)
            output = longest(kind.output_tokens, kind.output_cv)
            yield msgspec.structs.replace(kind, prompt_tokens=prompt, output_tokens=output)

    def _mean(self, values: Sequence[float]) -> float:
        shares = [kind.share for kind in self.tenant.kinds]
        return sum(share * value for share, value in zip(shares, values, strict=True)) / sum(shares)


def senders_of(tenants: Sequence[Tenant], requests_per_s: float) -> list[Sender]:
    """Every tenant with its share of the weights, and of the rate; `shares` says what it may send."""
    weights = sum(tenant.weight for tenant in tenants)
    return [
        Sender(
            tenant=tenant,
            share=tenant.weight / weights,
            requests_per_s=requests_per_s * tenant.load_share,
        )
        for tenant in tenants
    ]
