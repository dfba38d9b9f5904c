"""What is an accelerator able to do, and what does it cost?"""

from __future__ import annotations

import msgspec


class Price(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """US dollars for one accelerator for one hour: an input, dated, to be overridden."""

    per_hour_usd: float
    source: str
    dated: str
    low_usd: float | None = None
    high_usd: float | None = None
    """What others ask for the same, where a source gives a range."""


class Accelerator(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One device, as its makers state it; what of it is reached is `perf`'s.

    Rates are dense, of one device, and links count one direction. The link to the host alone is as measured:
    nothing calibrates it.
    """

    name: str
    """As `h100-sxm`."""
    title: str
    memory_bytes: int
    """Nominal."""
    usable_bytes: int
    """What a driver reports to an engine; less than nominal. Not what nvidia-smi shows, which is more."""
    bandwidth_bytes_per_s: float
    flops_per_s: dict[str, float]
    """By precision: bf16, fp8, int8, fp4. A precision that is missing is computed in bf16."""
    link_bytes_per_s: float
    """To the others of its node, in sum."""
    link_latency_s: float
    node_link_bytes_per_s: float
    """To other nodes."""
    per_node: int
    """Devices that share the fast link."""
    host_link_bytes_per_s: float | None = None
    """To the memory of its host, as copies reach it: what is offloaded goes over it. None: not known."""
    power_w: float | None = None
    price: Price | None = None
    aliases: tuple[str, ...] = ()
    """Other names that people give it; `names` says how names are compared."""
    source: str
    """Of every figure that `sources` does not name."""
    dated: str
    """Day on which the source was read, as 2026-11-30."""
    sources: dict[str, str] = {}
    """By the name of a figure: where it is from, or how it was derived."""
    dates: dict[str, str] = {}
    """By the name of a figure: the day, where it is not `dated`."""
    notes: tuple[str, ...] = ()
    """Where sources disagree, and what the figures leave out."""
