"""Which engines are known by name: how fast is each, and what fits into it?

`TABLE` says where each profile's constants come from.
"""

from __future__ import annotations

from math import inf

import msgspec

from tidegate.core.curve import Curve, Linear
from tidegate.core.errors import ConfigurationError
from tidegate.sim.settings import Disaggregation, ReplicaSettings


class Profile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One engine: its step times and its bounds."""

    curve: Curve
    replica: ReplicaSettings
    disaggregation: Disaggregation | None = None
    """Not one engine but several that share the work."""
    prefill: Profile | None = None
    """Of those that compute prompts; None: as `disaggregation` says."""

    def __post_init__(self) -> None:
        """ConfigurationError for engines for prompts that nothing would ask."""
        if self.prefill is not None and self.disaggregation is None:
            problem = "prefill is of engines that compute prompts apart, and nothing says that any do"
            raise ConfigurationError([f"{problem}; write disaggregation beside it, or leave it out"])
        if self.prefill is not None and self.prefill.disaggregation is not None:
            problem = "prefill has a disaggregation of its own: engines are apart once"
            raise ConfigurationError([f"{problem}; leave that out"])


DEMO = Linear(a_s=15e-3, b_s_per_sequence=0.1e-3, c_s_per_context_token=0.1e-6, d_s_per_prefill_token=50e-6)

TABLE: dict[str, Profile] = {
    # Pinned, not measured: the demo and the noisy-neighbour scenario rest on these figures. Prefill runs
    # at 20,000 tokens/s; 30 sequences of 500 tokens take 15 + 3 + 1.5 = 19.5 ms per token.
    "demo": Profile(
        curve=DEMO,
        replica=ReplicaSettings(
            max_num_seqs=32, max_batched_tokens=2048, kv_tokens=65_536, context_tokens=16_384
        ),
    ),
    # The same speed with room for long prompts. One of 100,000 tokens keeps a replica busy for 6 s.
    "demo-128k": Profile(
        curve=DEMO,
        replica=ReplicaSettings(
            max_num_seqs=32, max_batched_tokens=2048, kv_tokens=262_144, context_tokens=131_072
        ),
    ),
    # Llama-3.1-8B in bf16 on an H100 SXM (3.35 TB/s, 989 TFLOP/s dense, both taken at 80 %).
    # a: 16.06 GB of weights read = 6.0 ms, plus 0.4 ms to launch. c: 2 x 32 layers x 8 KV heads x 128 x 2 B
    # = 131,072 B per token at full bandwidth. d: 2 x 8.03e9 FLOP per token. b: fitted. KV: 0.9 x 80 GB less
    # weights and 4 GB of activations. Against 34 measured TPOTs (TensorRT-LLM, 8 to 128 sequences, prompts
    # of 1 to 4 K; from the aiconfigurator project) these give a mean error of 2.7 %, at most 7.1 %.
    "h100-8b": Profile(
        curve=Linear(
            a_s=6.4e-3, b_s_per_sequence=10e-6, c_s_per_context_token=39e-9, d_s_per_prefill_token=20.3e-6
        ),
        replica=ReplicaSettings(
            max_num_seqs=256, max_batched_tokens=8192, kv_tokens=396_000, context_tokens=131_072
        ),
    ),
    # A 0.9 M-parameter Llama on vLLM 0.32's CPU build, 2 cores of AMD Zen 3: a, b and c as fitted to its
    # decode steps (R2 0.98), d as the slope of its prefill up to 1 K tokens.
    "vllm-cpu-tiny": Profile(
        curve=Linear(
            a_s=5.9e-3,
            b_s_per_sequence=0.61e-3,
            c_s_per_context_token=0.32e-6,
            d_s_per_prefill_token=0.145e-3,
        ),
        replica=ReplicaSettings(
            max_num_seqs=16, max_batched_tokens=2048, kv_tokens=32_768, context_tokens=4096
        ),
    ),
    # A step of any size takes 1 ms: a server of constant rate, for checks against queueing theory.
    "constant": Profile(
        curve=Linear(a_s=1e-3),
        replica=ReplicaSettings(
            max_num_seqs=1, max_batched_tokens=1_048_576, kv_tokens=16_777_216, context_tokens=1_048_576
        ),
    ),
}


def named(name: str, speed: float = 1.0) -> Profile:
    """The profile of that name at `speed` times its pace; ConfigurationError if there is none."""
    profile = TABLE.get(name)
    if profile is None:
        raise ConfigurationError([f"profile {name!r} is not known; there are: {', '.join(TABLE)}"])
    return at_speed(profile, speed)


def at_speed(profile: Profile, speed: float) -> Profile:
    """The same engine at `speed` times its pace. ConfigurationError for a speed that cannot be."""
    if not 0 < speed < inf:
        raise ConfigurationError([f"speed must be above 0 and finite, not {speed}"])
    faster = msgspec.structs.replace(profile.replica, speed=speed * profile.replica.speed)
    return msgspec.structs.replace(profile, replica=faster)
