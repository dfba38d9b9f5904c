"""Which deployments of a model are there to choose from?

Accelerators x how a replica is sharded x in how many bits weights and KV cache are. Fewer bits than a model
was published in change its answers: of weights only what an accelerator computes in is tried, and whoever
searches is told what the published precision would cost.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

import msgspec

from tidegate.catalog.accelerators import Accelerator
from tidegate.catalog.models import Experts, LatentAttention, Model
from tidegate.core.errors import ConfigurationError
from tidegate.perf.deployment import Deployment
from tidegate.perf.memory import memory_of
from tidegate.perf.precisions import BITS

FEWER: tuple[str, ...] = ("fp8", "int8", "fp4")
"""Precisions that weights may be brought to, from more bits to fewer; int8 only where there is no fp8."""
WIDEST = 1024
"""Devices that are looked at for what would hold a model."""


class Space(msgspec.Struct, frozen=True, kw_only=True):
    """What may vary; None: all of it."""

    model: Model
    accelerators: tuple[Accelerator, ...]
    tp: tuple[int, ...] | None = None
    """None: powers of two up to a node."""
    weights: tuple[str, ...] | None = None
    """None: as published, and fewer bits that the accelerator computes in."""
    kv: tuple[str, ...] | None = None
    """None: 16 bits, and fp8 where the accelerator computes in it."""
    fixed: dict[str, object] = {}
    """Of `Deployment`: what does not vary."""

    def deployments(self) -> Iterator[Deployment]:
        """All that can be sharded so, whether they fit or not; the most bits first."""
        for accelerator in self.accelerators:
            weights = self.weights or precisions_of(self.model, accelerator)
            bits = product(weights, self.kv or caches_of(accelerator))
            for shape, (stored, cached) in product(self.shapes(accelerator), bits):
                found = self.deployment(accelerator, weights=stored, kv=cached, **shape)
                if found is not None:
                    yield found

    def shapes(self, accelerator: Accelerator) -> list[dict[str, int]]:
        """How a replica may be sharded, the smallest first.

        With latent attention, whose cache is on every device whole, copies of it beside shared-out experts
        are how large models are run (DeepSeek-V3 technical report, 2024, section 3.4).
        """
        if self.tp is not None:
            return [{"tp": tp} for tp in self.tp]
        counts = _powers(accelerator.per_node)
        shapes = [{"tp": count} for count in counts]
        layers = self.model.layers
        latent = any(isinstance(group.attention, LatentAttention) for group in layers)
        experts = any(isinstance(group.feed_forward, Experts) for group in layers)
        if latent and experts and not {"ep", "attention_dp"} & self.fixed.keys():
            shapes += [{"tp": 1, "attention_dp": count, "ep": count} for count in counts if count > 1]
        return shapes

    def deployment(self, accelerator: Accelerator, **values: object) -> Deployment | None:
        """With these; None where heads or experts cannot be shared out so."""
        try:
            return Deployment(model=self.model, accelerator=accelerator, **(self.fixed | values))  # type: ignore[arg-type]
        except ConfigurationError:
            return None

    def fewest_bits(self, accelerator: Accelerator) -> tuple[str, str]:
        """Of weights and of the cache, that are tried on it."""
        weights = self.weights or precisions_of(self.model, accelerator)
        kv = self.kv or caches_of(accelerator)
        return min(weights, key=BITS.__getitem__), min(kv, key=lambda name: BITS.get(name, 16.0))

    def least(self, accelerator: Accelerator, weights: str, kv: str) -> Deployment | None:
        """The fewest devices, a power of two, that hold the model, beyond a node too."""
        for tp in _powers(WIDEST):
            found = self.deployment(accelerator, weights=weights, kv=kv, tp=tp)
            if found is not None and fits(found):
                return found
        return None


def fits(deployment: Deployment) -> bool:
    """Whether weights and reserve leave room for a KV cache."""
    try:
        memory_of(deployment)
    except ConfigurationError:
        return False
    return True


def precisions_of(model: Model, accelerator: Accelerator) -> tuple[str, ...]:
    """As published, and each with fewer bits in which the accelerator computes."""
    computed = [name for name in FEWER if accelerator.flops_per_s.get(name)]
    if "fp8" in computed and "int8" in computed:
        computed.remove("int8")
    published = BITS[model.precision]
    return (model.precision, *(name for name in computed if BITS[name] < published))


def caches_of(accelerator: Accelerator) -> tuple[str, ...]:
    """Of the KV cache."""
    return ("bf16", "fp8") if accelerator.flops_per_s.get("fp8") else ("bf16",)


def bits_of(deployment: Deployment) -> tuple[float, float]:
    """Of a weight, and of an element of the cache."""
    return BITS[deployment.precision], BITS[deployment.kv]


def _powers(most: int) -> Sequence[int]:
    return [1 << power for power in range(most.bit_length()) if 1 << power <= most]
