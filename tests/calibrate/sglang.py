"""What the virtual engine would tell of itself, were it SGLang: pages and server info in its documented form.

Names, labels and what is counted when: docs/references/production_metrics.md and
`python/sglang/srt/observability/metrics_collector.py` of SGLang, of 2026.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.calibrate.virtual import VirtualEngine

RANK = 'engine_type="unified",model_name="m",moe_ep_rank="0",pp_rank="0",tp_rank="0"'
CLIENT = 'engine_type="unified",model_name="m"'
"""Labels of what the scheduler counts, and of what is counted at the front."""


class SglangEngine(VirtualEngine):
    """Tells of itself as SGLang does."""

    def page(self) -> str:
        """The text of /metrics."""
        return "".join(self._lines())

    def _lines(self) -> Iterator[str]:
        replica, meter = self.engine.replica, self.engine.meter
        settings = replica.settings
        capacity = settings.blocks * settings.block_tokens
        for name, value in [
            ("num_running_reqs", replica.running),
            ("num_used_tokens", round(capacity * replica.kv_used_ratio)),
            ("token_usage", round(replica.kv_used_ratio, 2)),
            ("num_queue_reqs", replica.waiting),
            ("num_retracted_reqs", 0),
            ("max_total_num_tokens", capacity),
            ("page_size", settings.block_tokens),
            ("context_len", settings.context_tokens),
        ]:
            yield f"# HELP sglang:{name} {name}.\n# TYPE sglang:{name} gauge\n"
            yield f"sglang:{name}{{{RANK}}} {float(value)!r}\n"
        yield f"sglang:num_retracted_requests_total{{{RANK}}} {float(replica.counters.preemptions)!r}\n"
        for mode, tokens in (
            ("prefill_compute", meter.prompt_tokens),
            ("decode", meter.generation_tokens),
        ):
            if tokens:
                yield f'sglang:realtime_tokens_total{{mode="{mode}",{RANK}}} {float(tokens)!r}\n'
        # Of requests that have ended; here of none, so that whoever reads these sees nothing.
        yield f"sglang:prompt_tokens_total{{{CLIENT}}} 0.0\n"
        if meter.itl_s.sum:
            yield from meter.itl_s.lines("sglang:inter_token_latency_seconds", CLIENT)


def server_info(**said: Any) -> dict[str, Any]:
    """What `/server_info` says of one engine, as far as bounds go."""
    return {
        "served_model_name": "m",
        "context_length": None,
        "max_running_requests": None,
        "chunked_prefill_size": 8192,
        "max_prefill_tokens": 16384,
        "page_size": 1,
        "disable_radix_cache": False,
        "dp_size": 1,
        "max_total_num_tokens": 20480,
        "max_req_input_len": 20474,
        "internal_states": [{"effective_max_running_requests_per_dp": 128}],
        "version": "0.5.20",
    } | said
