"""How are disaggregated replicas written? One address for the gateway, and for the simulator both kinds.

The gateway does not hand caches on: the engines' own router does. It stands before that router, and governs
what reaches it.
"""

from __future__ import annotations

from tidegate.plan.alternatives import Apart
from tidegate.plan.answer import Answer
from tidegate.plan.ask import Ask, Replica
from tidegate.plan.disaggregated.front import Front
from tidegate.planning.emit.engines import curve_lines, engine_started
from tidegate.planning.emit.yaml_lines import Lines

ROUTER = "router"
"""What stands for all replicas of a disaggregated pool."""


def router_words(apart: Apart) -> str:
    """Of what is behind that one address."""
    prefill, decode = apart.prefill_replicas, apart.decode_replicas
    spare = f"{apart.prefill_spare_replicas} and {apart.decode_spare_replicas} of them spare"
    return (
        f"The engines' own router (of vLLM, SGLang, Dynamo or llm-d). Behind it {prefill} replicas of "
        f"{apart.prefill_replica} compute prompts, and {decode} of {apart.decode_replica} decode, {spare}. "
        "It hands caches on; tidegate governs what reaches it."
    )


def disaggregation(lines: Lines, ask: Ask, answer: Answer, front: Front) -> None:
    """Below the engine of a simulated pool, which is that of those that decode."""
    apart, link = answer.disaggregated, front.link
    assert apart is not None
    lines.key(3, "disaggregation", reason="One replica stands for all of them.")
    lines.key(4, "prefill_replicas", apart.prefill_replicas)
    lines.key(4, "decode_replicas", apart.decode_replicas)
    lines.key(4, "prefill", reason="What those that compute prompts have otherwise.")
    assert isinstance(ask.replica, Replica)
    if front.prefill.engine.profile_curve != ask.replica.engine.profile_curve:
        curve_lines(lines, 5, front.prefill.engine.profile_curve, front.prefill.name)
    lines.key(5, "engine", engine_started(front.prefill, ask.load))
    told = {
        "bandwidth_bytes_per_s": link.bytes_per_s,
        "kv_bytes_per_token": apart.kv_bytes_per_request / max(1.0, ask.load.prompt_tokens),
        "latency_s": link.latency_s,
        "shared": link.shared,
    }
    lines.key(4, "link", told)
