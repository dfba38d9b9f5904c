"""What does a page of /metrics say of an engine at one instant? vLLM's and SGLang's pages, by vLLM's names.

What SGLang calls its series, and when it counts: in its repository docs/references/production_metrics.md and
`python/sglang/srt/observability/metrics_collector.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from math import isfinite

import msgspec

from tidegate.core.errors import ConfigurationError

VLLM, SGLANG = "vllm", "sglang"
RUNNING = {VLLM: "num_requests_running", SGLANG: "num_running_reqs"}
"""The one series of each engine that a page without it is not its."""
NEEDED = {
    VLLM: (
        "kv_cache_usage_perc",
        "inter_token_latency_seconds_sum",
        "inter_token_latency_seconds_count",
    ),
    # Its histograms are not there before they have counted something.
    SGLANG: ("num_used_tokens",),
}
SAME = {
    VLLM: {"gpu_cache_usage_perc": "kv_cache_usage_perc"},
    SGLANG: {
        "num_running_reqs": "num_requests_running",
        "num_queue_reqs": "num_requests_waiting",
        "num_retracted_requests_total": "num_preemptions_total",
        "cached_tokens_total": "prompt_tokens_cached_total",
    },
}
"""By vLLM's names of today: SGLang's names, and what older builds call the same."""
OLDER = {
    "time_per_output_token_seconds_sum": "inter_token_latency_seconds_sum",
    "time_per_output_token_seconds_count": "inter_token_latency_seconds_count",
}
"""Of both; a build may write both names, and then it counts the same twice."""
COMPUTED = "realtime_tokens_total:prefill_compute"
"""Prompt tokens as SGLang computes them; its `prompt_tokens_total` counts a prompt when its answer ends."""

_LINE = re.compile(r"^(vllm|sglang):(\w+)(\{.*\})? (\S+)", re.MULTILINE)
_LABEL = re.compile(r'[{,](\w+)="([^"]*)"')
"""Whole names: models with state-space layers have a `mamba_block_size` beside their `block_size`."""


class SeveralEngines(ConfigurationError):
    """A page speaks of more than one."""


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """One scrape."""

    at_s: float
    """Of any clock that does not jump."""
    series: dict[str, float]
    """Sums over their labels, by vLLM's name without `vllm:`; buckets are left out."""
    block_tokens: int | None = None
    kv_tokens: int | None = None
    context_tokens: int | None = None
    """The longest sequence."""
    prefix_cache: bool = False

    def __getitem__(self, name: str) -> float:
        """0 for a series that is not there."""
        return self.series.get(name, 0.0)

    def used_tokens(self, kv_tokens: int | None) -> float | None:
        """Of the KV cache; `kv_tokens` is its size, if not the page's own. None: it takes a size to say."""
        if "num_used_tokens" in self.series:
            return self["num_used_tokens"]
        size = kv_tokens or self.kv_tokens
        return None if size is None else size * self["kv_cache_usage_perc"]


def read_page(text: str, at_s: float, source: str) -> Page:
    """A page. Raises ConfigurationError if it lacks what a fit needs, or speaks of several engines."""
    lines = [
        (engine, name, dict(_LABEL.findall(labels)), value)
        for engine, name, labels, value in _LINE.findall(text)
    ]
    named = {(engine, name) for engine, name, _, _ in lines}
    engine = next((each for each in RUNNING if (each, RUNNING[each]) in named), None)
    if engine is None:
        wanted = " nor ".join(f"{each}:{name}" for each, name in RUNNING.items())
        raise ConfigurationError(
            [f"{source}: has no {wanted}; a fit from /metrics needs a page as vLLM or SGLang writes it"]
        )
    own = [(name, labels, value) for each, name, labels, value in lines if each == engine]
    if (count := _engines(engine, own)) > 1:
        raise SeveralEngines(
            [f"{source}: speaks of {count} engines at once; scrape a server that runs one of them"]
        )
    series = _summed(engine, own)
    if missing := [name for name in NEEDED[engine] if name not in series]:
        raise ConfigurationError([f"{source}: has no {engine}:{missing[0]}, which a fit from /metrics needs"])
    return _of_vllm(at_s, series, own) if engine == VLLM else _of_sglang(at_s, series, own)


_Lines = Sequence[tuple[str, Mapping[str, str], str]]


def _engines(engine: str, lines: _Lines) -> int:
    """How many; ranks and priorities of one have series of their own."""
    running = [labels for name, labels, _ in lines if name == RUNNING[engine]]
    if engine == VLLM:
        return len(running)
    return len({(labels.get("model_name"), labels.get("dp_rank")) for labels in running})


def _summed(engine: str, lines: _Lines) -> dict[str, float]:
    """By vLLM's names."""
    series: dict[str, float] = {}
    for name, labels, value in lines if engine == VLLM else _once(lines):
        if not name.endswith(("_bucket", "_created", "_info")):
            name = (
                f"{name}:{labels['mode']}" if name == "realtime_tokens_total" and "mode" in labels else name
            )
            series[name] = series.get(name, 0.0) + _number(value)
    for other, name in (SAME[engine] | OLDER).items():
        if (number := series.pop(other, None)) is not None:
            series.setdefault(name, number)
    return series


def _once(lines: _Lines) -> Iterator[tuple[str, Mapping[str, str], str]]:
    """Without what other ranks of the engine say again, and without gauges by priority beside their sum."""
    for name, labels, value in lines:
        first = all(labels.get(rank, "0") == "0" for rank in ("tp_rank", "pp_rank", "moe_ep_rank"))
        parted = name in ("num_running_reqs", "num_queue_reqs") and labels.get("priority", "")
        if first and not parted:
            yield name, labels, value


def _of_vllm(at_s: float, series: dict[str, float], lines: _Lines) -> Page:
    config = next((labels for name, labels, _ in lines if name == "cache_config_info"), {})
    blocks, block_tokens = _count(config.get("num_gpu_blocks")), _count(config.get("block_size"))
    return Page(
        at_s=at_s,
        series=series,
        block_tokens=block_tokens,
        # What layers with a window hold is in its own figure, which older builds do not have.
        kv_tokens=_count(config.get("kv_cache_size_tokens"))
        or (blocks * block_tokens if blocks and block_tokens else None),
        prefix_cache=config.get("enable_prefix_caching") == "True",
    )


def _of_sglang(at_s: float, series: dict[str, float], lines: _Lines) -> Page:
    if any(name.startswith("realtime_tokens_total:") for name in series):
        series |= {"prompt_tokens_total": series.get(COMPUTED, 0.0), "prompt_tokens_cached_total": 0.0}
    config = next((labels for name, labels, _ in lines if name == "cache_config_info"), {})
    return Page(
        at_s=at_s,
        series=series,
        block_tokens=_whole(series.get("page_size")) or _count(config.get("page_size")),
        kv_tokens=_whole(series.get("max_total_num_tokens")),
        context_tokens=_whole(series.get("context_len")),
    )


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        return 0.0
    return value if isfinite(value) else 0.0


def _whole(number: float | None) -> int | None:
    """A number above 0, or None."""
    return int(number) if number is not None and 1 <= number < 2**53 else None


def _count(text: str | None) -> int | None:
    """A number above 0, or None for whatever else an engine may say."""
    return int(text) if text and text.isdecimal() and 0 < int(text) < 2**53 else None
