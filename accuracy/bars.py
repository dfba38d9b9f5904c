"""How accurate must the simulator be, and how accurate is the one to beat?"""

from __future__ import annotations

from accuracy.methods import Result

DENSE = {"e2e_mean_s": 0.05, "tpot_mean_s": 0.03, "ttft_mean_s": 0.10, "ttft_p99_s": 0.15}
EXPERTS = {"ttft_mean_s": 0.15}
"""Largest relative errors, of either sign."""

PUBLISHED = {
    "rtx4090_llama31-8b_tp1": {"ttft_mean_s": 0.006, "tpot_mean_s": 0.002},
    "rtxpro6000_llama31-8b_tp1": {"ttft_mean_s": -0.040, "tpot_mean_s": -0.010},
    "rtxpro6000_qwen3-30b-a3b_dp2ep2": {"ttft_mean_s": -0.136, "tpot_mean_s": -0.017},
}
"""What LLMServingSim, with the same tables and more of them, says of itself (README of the runs)."""


def bars(result: Result) -> dict[str, float]:
    """That this result must keep."""
    return EXPERTS if result.experts else DENSE


def missed(result: Result) -> list[str]:
    """Bars that it does not keep."""
    return [name for name, bar in bars(result).items() if abs(getattr(result.errors, name)) > bar]
