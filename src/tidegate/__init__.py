"""tidegate: sustain a target rate of LLM inference on finite GPU compute, within latency budgets."""

__version__ = "0.1.0"
