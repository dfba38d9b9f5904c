"""What does a replica tell of itself, under vLLM's names?

The series and buckets are those of vLLM 0.32 that gateways, routers and planners read; the page is written
by hand because it is scraped every second from every replica.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator

from tidegate.sim.replica import Replica
from tidegate.sim.sequence import Sequence

TTFT_S: tuple[float, ...] = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
    *(20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
ITL_S: tuple[float, ...] = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
    *(20.0, 40.0, 80.0),
)
E2E_S: tuple[float, ...] = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0),
    *(120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
)


class Histogram:
    """Counts of observations by upper bound."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """Count `value`, `times` times."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.sum += value * times

    def lines(self, name: str, labels: str) -> Iterator[str]:
        """The series of one histogram, buckets cumulated."""
        total = 0
        for bound, count in zip((*self.bounds, None), self.counts, strict=True):
            total += count
            le = "+Inf" if bound is None else repr(bound)
            yield f'{name}_bucket{{{labels},le="{le}"}} {total}.0\n'
        yield f"{name}_count{{{labels}}} {total}.0\n{name}_sum{{{labels}}} {self.sum!r}\n"


class Meter:
    """Totals since the replica started."""

    __slots__ = (
        "cut",
        "e2e_s",
        "generation_tokens",
        "itl_s",
        "prompt_tokens",
        "stopped",
        "ttft_s",
    )

    def __init__(self) -> None:
        self.prompt_tokens = 0
        self.generation_tokens = 0
        self.stopped = 0
        self.cut = 0
        self.ttft_s = Histogram(TTFT_S)
        self.itl_s = Histogram(ITL_S)
        self.e2e_s = Histogram(E2E_S)

    def first_token(self, sequence: Sequence, ttft_s: float) -> None:
        """A sequence has produced its first token: its prompt is computed."""
        self.prompt_tokens += sequence.prompt_tokens
        self.ttft_s.observe(ttft_s)

    def generated(self, tokens: int, first_tokens: int, step_s: float) -> None:
        """So many tokens are there, so many of them first ones; every other one was waited for as long."""
        self.generation_tokens += tokens
        if tokens > first_tokens:
            self.itl_s.observe(step_s, tokens - first_tokens)

    def finished(self, sequence: Sequence, cut: bool, e2e_s: float) -> None:
        """A sequence is complete. One that generates nothing has had no first token to count its prompt."""
        if not sequence.output_tokens:
            self.prompt_tokens += sequence.prompt_tokens
        if cut:
            self.cut += 1
        else:
            self.stopped += 1
        self.e2e_s.observe(e2e_s)


def page(model: str, replica: Replica, meter: Meter) -> bytes:
    """The text of /metrics."""
    quoted = model.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    labels = f'engine="0",model_name="{quoted}"'
    settings = replica.settings
    cache = f'block_size="{settings.block_tokens}",enable_prefix_caching="{settings.prefix_cache}",'
    cache += f'engine="0",kv_cache_size_tokens="{settings.blocks * settings.block_tokens}",'
    cache += f'num_gpu_blocks="{settings.blocks}"'
    stopped, cut = f'{labels},finished_reason="stop"', f'{labels},finished_reason="length"'
    capacity = f'{labels},reason="capacity"'
    parts = [
        _gauge("num_requests_running", "Sequences in the batch.", labels, replica.running),
        _gauge("num_requests_waiting", "Sequences in the queue.", labels, replica.waiting),
        _gauge("num_requests_waiting_by_reason", "The same, by reason.", capacity, replica.waiting),
        _gauge("kv_cache_usage_perc", "KV cache in use; 1 is all.", labels, replica.kv_used_ratio),
        _gauge("cache_config_info", "The KV cache.", cache, 1),
        _counter("prompt_tokens", "Prompt tokens computed.", {labels: meter.prompt_tokens}),
        _counter("generation_tokens", "Tokens generated.", {labels: meter.generation_tokens}),
        _counter("num_preemptions", "Preemptions.", {labels: replica.counters.preemptions}),
        _counter(
            "request_success", "Completed sequences by their end.", {stopped: meter.stopped, cut: meter.cut}
        ),
        _histogram("time_to_first_token_seconds", "Arrival to first token.", labels, meter.ttft_s),
        _histogram("inter_token_latency_seconds", "Token to token.", labels, meter.itl_s),
        _histogram("e2e_request_latency_seconds", "Arrival to last token.", labels, meter.e2e_s),
    ]
    return "".join(parts).encode()


def _gauge(name: str, help_text: str, labels: str, value: float) -> str:
    return f"{_head(name, help_text, 'gauge')}vllm:{name}{{{labels}}} {float(value)!r}\n"


def _counter(name: str, help_text: str, values: dict[str, int]) -> str:
    lines = (f"vllm:{name}_total{{{labels}}} {value}.0\n" for labels, value in values.items())
    return _head(f"{name}_total", help_text, "counter") + "".join(lines)


def _histogram(name: str, help_text: str, labels: str, histogram: Histogram) -> str:
    lines: Iterable[str] = histogram.lines(f"vllm:{name}", labels)
    return _head(name, help_text, "histogram") + "".join(lines)


def _head(name: str, help_text: str, kind: str) -> str:
    return f"# HELP vllm:{name} {help_text}\n# TYPE vllm:{name} {kind}\n"
