"""Models and devices that tests count with; the figures are their configurations'."""

from __future__ import annotations

from tidegate.catalog.accelerators import Accelerator
from tidegate.catalog.models import (
    Attention,
    Dense,
    Experts,
    FeedForward,
    GroupedAttention,
    LatentAttention,
    Layers,
    Model,
    RecurrentAttention,
)
from tidegate.perf.deployment import GIB


def grouped(heads: int, kv_heads: int, head_dim: int = 128, window_tokens: int | None = None) -> Attention:
    """GQA."""
    return GroupedAttention(heads=heads, kv_heads=kv_heads, head_dim=head_dim, window_tokens=window_tokens)


def model(
    hidden: int, vocabulary: int, *layers: tuple[int, Attention, FeedForward], precision: str = "bf16"
) -> Model:
    """A model of these groups of layers."""
    groups = tuple(Layers(count=n, attention=attention, feed_forward=part) for n, attention, part in layers)
    return Model(
        name=f"of {hidden}",
        hidden=hidden,
        vocabulary=vocabulary,
        layers=groups,
        context_tokens=131072,
        precision=precision,
    )


LLAMA_8B = model(4096, 128256, (32, grouped(32, 8), Dense(size=14336)))
LLAMA_70B = model(8192, 128256, (80, grouped(64, 8), Dense(size=28672)))
LLAMA_2_7B = model(4096, 32000, (32, grouped(32, 32), Dense(size=11008)))
QWEN_7B = model(3584, 152064, (28, grouped(28, 4), Dense(size=18944)))
QWEN_32B = model(5120, 151936, (64, grouped(64, 8), Dense(size=25600)))
LATENT = LatentAttention(heads=128, q_rank=1536, kv_rank=512, nope_dim=128, rope_dim=64, value_dim=128)
DEEPSEEK = model(
    7168,
    129280,
    (3, LATENT, Dense(size=18432)),
    (58, LATENT, Experts(count=256, chosen=8, size=2048, shared_size=2048)),
    precision="fp8",
)
GPT_OSS = model(
    2880,
    201088,
    (18, grouped(64, 8, 64, 128), Experts(count=128, chosen=4, size=2880)),
    (18, grouped(64, 8, 64), Experts(count=128, chosen=4, size=2880)),
    precision="fp4",
)
STATES = model(
    4096,
    151936,
    (3, RecurrentAttention(parameters=10_000_000, state_elements=1_000_000), Dense(size=8192)),
    (1, grouped(32, 2), Dense(size=8192)),
)


def device(
    usable_gib: float = 79.1,
    bandwidth_bytes_per_s: float = 3.35e12,
    bf16_flops_per_s: float = 989e12,
    link_bytes_per_s: float = 450e9,
) -> Accelerator:
    """Like an H100 SXM, where nothing else is said."""
    return Accelerator(
        name="device",
        title="Device",
        memory_bytes=80 * GIB,
        usable_bytes=int(usable_gib * GIB),
        bandwidth_bytes_per_s=bandwidth_bytes_per_s,
        flops_per_s={"bf16": bf16_flops_per_s, "fp8": 2 * bf16_flops_per_s},
        link_bytes_per_s=link_bytes_per_s,
        link_latency_s=1e-5,
        node_link_bytes_per_s=50e9,
        per_node=8,
        source="tests",
        dated="2026-11-30",
    )
