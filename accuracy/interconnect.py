"""How long do two GPUs without NVLink take to exchange something?

Measured by the project whose operator tables are used here, on two RTX PRO 6000 (NCCL through vLLM's
communicator, PCIe 5, ACS and IOMMU off, 2026-09-26): casys-kaist/LLMServingSim,
`profiler/perf/RTXPRO6000/hardware.yaml` at commit 1b2cc02d67a2647c9f0d67bf07debf240aba82b5, MIT licence.
Microseconds of one collective in a CUDA graph, which is the best case: eager launches and ranks that wait for
one another come on top.
"""

from __future__ import annotations

from tidegate.core.curve import Line


def _line(measured_us: dict[int, float]) -> Line:
    return Line(
        points=tuple(map(float, measured_us)), seconds=tuple(us * 1e-6 for us in measured_us.values())
    )


ALL_REDUCE = _line(
    {
        4096: 12.71,
        65536: 14.76,
        131072: 17.38,
        262144: 21.72,
        524288: 29.84,
        1048576: 41.04,
        2097152: 67.31,
        4194304: 124.87,
        8388608: 240.59,
        16777216: 471.12,
    }
)
"""By bytes of the tensor."""
ALL_GATHER = _line(
    {
        4096: 10.50,
        65536: 13.62,
        131072: 16.76,
        262144: 18.83,
        524288: 26.92,
        1048576: 45.78,
        2097152: 76.34,
        4194304: 142.29,
        8388608: 277.42,
        16777216: 546.24,
    }
)
"""By bytes that a rank brings."""
REDUCE_SCATTER = _line(
    {
        4096: 9.83,
        65536: 12.75,
        131072: 15.63,
        262144: 21.07,
        524288: 29.36,
        1048576: 49.27,
        2097152: 88.41,
    }
)
"""By bytes that a rank takes away."""
