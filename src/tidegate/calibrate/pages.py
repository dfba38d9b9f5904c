"""What does a page of /metrics say of an engine at one instant? By vLLM's names."""

from __future__ import annotations

import re
from math import isfinite

import msgspec

from tidegate.core.errors import ConfigurationError

NEEDED = (
    "num_requests_running",
    "kv_cache_usage_perc",
    "inter_token_latency_seconds_sum",
    "inter_token_latency_seconds_count",
)
OLDER = {
    "gpu_cache_usage_perc": "kv_cache_usage_perc",
    "time_per_output_token_seconds_sum": "inter_token_latency_seconds_sum",
    "time_per_output_token_seconds_count": "inter_token_latency_seconds_count",
}
"""What older builds, and some mocks, call the same."""

_LINE = re.compile(r"^vllm:(\w+)(\{.*\})? (\S+)", re.MULTILINE)
_CONFIG = re.compile(r'[{,](block_size|num_gpu_blocks|enable_prefix_caching)="(\w+)"')
"""Whole names: models with state-space layers have a `mamba_block_size` too."""


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """One scrape."""

    at_s: float
    """Of any clock that does not jump."""
    series: dict[str, float]
    """Sums over their labels, by name without `vllm:`; buckets are left out."""
    block_tokens: int | None = None
    kv_tokens: int | None = None
    prefix_cache: bool = False

    def __getitem__(self, name: str) -> float:
        """0 for a series that is not there."""
        return self.series.get(name, 0.0)


def read_page(text: str, at_s: float, source: str) -> Page:
    """A page. Raises ConfigurationError if it lacks what a fit needs, or speaks of several engines."""
    series: dict[str, float] = {}
    config: dict[str, str] = {}
    engines = 0
    for name, labels, value in _LINE.findall(text):
        if name == "cache_config_info":
            config = dict(_CONFIG.findall(labels))
        elif not name.endswith(("_bucket", "_created")):
            engines += name == "num_requests_running"
            name = OLDER.get(name, name)
            series[name] = series.get(name, 0.0) + _number(value)
    if missing := [name for name in NEEDED if name not in series]:
        raise ConfigurationError(
            [f"{source}: has no vllm:{missing[0]}; a fit from /metrics needs a page as vLLM writes it"]
        )
    if engines > 1:
        raise ConfigurationError(
            [f"{source}: speaks of {engines} engines at once; scrape a server that runs one of them"]
        )
    blocks, block_tokens = _count(config.get("num_gpu_blocks")), _count(config.get("block_size"))
    return Page(
        at_s=at_s,
        series=series,
        block_tokens=block_tokens,
        kv_tokens=blocks * block_tokens if blocks and block_tokens else None,
        prefix_cache=config.get("enable_prefix_caching") == "True",
    )


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        return 0.0
    return value if isfinite(value) else 0.0


def _count(text: str | None) -> int | None:
    """A number above 0, or None for whatever else an engine may say."""
    return int(text) if text and text.isdecimal() and 0 < int(text) < 2**53 else None
