"""How long does one step of a replica take, and what fits into it?

A step costs `a + b x sequences + c x context tokens + d x prefill tokens`: reading the weights, the
bookkeeping for each sequence, reading the KV cache, and the arithmetic of new prompt tokens. The form is
the usual linear one; `TABLE` says where each profile's constants come from.
"""

from __future__ import annotations

from math import inf

import msgspec

from tidegate.core.errors import ConfigurationError


class Profile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One replica: its speed and its bounds."""

    a_s: float
    """A step of any size."""
    b_s_per_sequence: float
    c_s_per_context_token: float
    """Per token of KV cache that the step reads."""
    d_s_per_prefill_token: float
    """Per prompt token computed in the step."""
    max_num_seqs: int
    """Sequences in a batch."""
    max_batched_tokens: int
    """Token budget of a step; a longer prompt is computed in chunks."""
    kv_tokens: int
    """KV cache; whole blocks of it are used."""
    context_tokens: int
    """Prompt and output of one sequence together."""
    speed: float = 1.0
    """Every duration is divided by it."""

    def step_s(self, sequences: int, context_tokens: int, prefill_tokens: int) -> float:
        """Seconds that a step takes which computes `prefill_tokens` and reads `context_tokens`."""
        return (
            self.a_s
            + self.b_s_per_sequence * sequences
            + self.c_s_per_context_token * context_tokens
            + self.d_s_per_prefill_token * prefill_tokens
        ) / self.speed


TABLE: dict[str, Profile] = {
    # Pinned, not measured: the demo and the noisy-neighbour scenario rest on these figures. Prefill runs
    # at 20,000 tokens/s; 30 sequences of 500 tokens take 15 + 3 + 1.5 = 19.5 ms per token.
    "demo": Profile(
        a_s=15e-3,
        b_s_per_sequence=0.1e-3,
        c_s_per_context_token=0.1e-6,
        d_s_per_prefill_token=50e-6,
        max_num_seqs=32,
        max_batched_tokens=2048,
        kv_tokens=65_536,
        context_tokens=16_384,
    ),
    # The same speed with room for long prompts. One of 100,000 tokens keeps a replica busy for 6 s.
    "demo-128k": Profile(
        a_s=15e-3,
        b_s_per_sequence=0.1e-3,
        c_s_per_context_token=0.1e-6,
        d_s_per_prefill_token=50e-6,
        max_num_seqs=32,
        max_batched_tokens=2048,
        kv_tokens=262_144,
        context_tokens=131_072,
    ),
    # Llama-3.1-8B in bf16 on an H100 SXM (3.35 TB/s, 989 TFLOP/s dense, both taken at 80 %).
    # a: 16.06 GB of weights read = 6.0 ms, plus 0.4 ms to launch. c: 2 x 32 layers x 8 KV heads x 128 x 2 B
    # = 131,072 B per token at full bandwidth. d: 2 x 8.03e9 FLOP per token. b: fitted. KV: 0.9 x 80 GB less
    # weights and 4 GB of activations. Against 34 measured TPOTs (TensorRT-LLM, 8 to 128 sequences, prompts
    # of 1 to 4 K; from the aiconfigurator project) these give a mean error of 2.7 %, at most 7.1 %.
    "h100-8b": Profile(
        a_s=6.4e-3,
        b_s_per_sequence=10e-6,
        c_s_per_context_token=39e-9,
        d_s_per_prefill_token=20.3e-6,
        max_num_seqs=256,
        max_batched_tokens=8192,
        kv_tokens=396_000,
        context_tokens=131_072,
    ),
    # A 0.9 M-parameter Llama on vLLM 0.32's CPU build, 2 cores of AMD Zen 3: a, b and c as fitted to its
    # decode steps (R2 0.98), d as the slope of its prefill up to 1 K tokens.
    "vllm-cpu-tiny": Profile(
        a_s=5.9e-3,
        b_s_per_sequence=0.61e-3,
        c_s_per_context_token=0.32e-6,
        d_s_per_prefill_token=0.145e-3,
        max_num_seqs=16,
        max_batched_tokens=2048,
        kv_tokens=32_768,
        context_tokens=4096,
    ),
}


def named(name: str, speed: float = 1.0) -> Profile:
    """The profile of that name at `speed` times its pace; ConfigurationError if there is none."""
    profile = TABLE.get(name)
    if profile is None:
        raise ConfigurationError([f"profile {name!r} is not known; there are: {', '.join(TABLE)}"])
    if not 0 < speed < inf:
        raise ConfigurationError([f"speed must be above 0 and finite, not {speed}"])
    return msgspec.structs.replace(profile, speed=speed)
