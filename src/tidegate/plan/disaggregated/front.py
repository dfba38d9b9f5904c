"""What stands before the replicas that decode: those that compute prompts, and the link from them?"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from tidegate.core.errors import ConfigurationError
from tidegate.perf.deployment import Deployment
from tidegate.plan.ask import Ask, Replica
from tidegate.plan.disaggregated.link import Link


class Front(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Replicas for prompts, their link, and how many of both kinds there are, where that is said."""

    prefill: Replica
    link: Link
    per_hour_usd: float | None = None
    """Price of one of its accelerators, where they are not of the kind that decodes; None: not known."""
    replicas: int | None = None
    """Of both kinds together; None, here and below: as many as it takes."""
    accelerators: int | None = None
    """The same in accelerators."""

    @property
    def given(self) -> bool:
        """Whether it is said how many there are."""
        return self.replicas is not None or self.accelerators is not None

    def price(self, ask: Ask) -> float | None:
        """Of one of its accelerators for an hour, US dollars; None: not known."""
        own, decode = self.prefill.deployment, ask.replica
        assert own is not None
        assert isinstance(decode, Replica)
        assert decode.deployment is not None
        alike = own.accelerator.name == decode.deployment.accelerator.name
        return ask.terms.per_hour_usd if alike else self.per_hour_usd

    def cost(self, ask: Ask, prefill: int, decode: int) -> float | None:
        """Of so many replicas of each kind for an hour, US dollars; None: a price is not known."""
        own, other = self.price(ask), ask.terms.per_hour_usd
        assert isinstance(ask.replica, Replica)
        if own is None or other is None:
            return None
        return own * prefill * self.prefill.accelerators + other * decode * ask.replica.accelerators

    def splits(self, decode: Replica, spare: int) -> Iterator[tuple[int, int]]:
        """Into replicas for prompts and those that decode, of each more than are spare."""
        each, other = self.prefill.accelerators, decode.accelerators
        most = (self.replicas or 0) if self.accelerators is None else self.accelerators // each
        for prefill in range(1 + spare, most + 1):
            left = most - prefill
            if self.accelerators is not None:
                left = (self.accelerators - prefill * each) // other
            if left > spare:
                yield prefill, left


def link_of(prefill: Deployment, decode: Deployment | None = None) -> Link:
    """Between nodes: every device of a replica sends, or receives; the slower side decides."""
    links = [
        (device.node_link_bytes_per_s * side.devices, device.link_latency_s)
        for side in (prefill, decode or prefill)
        for device in (side.accelerator,)
    ]
    return Link(
        bytes_per_s=min(rate for rate, _ in links), latency_s=max(wait for _, wait in links), shared=False
    )


def check_same_cache(prefill: Replica, decode: Replica) -> None:
    """Raise ConfigurationError where one side writes a cache that the other cannot read."""
    one, other = prefill.deployment, decode.deployment
    if one is None or other is None:
        raise ConfigurationError(
            ["--disaggregated: how large a KV cache is must be known of a replica; write --model and --gpu"]
        )
    if one.kv != other.kv:
        raise ConfigurationError(
            [
                f"--kv-quant: replicas for prompts would write a cache in {one.kv}, those that decode read "
                f"{other.kv}; write one precision for both"
            ]
        )
