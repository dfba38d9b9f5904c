"""What is known of one of two sides of a comparison? Of a saved answer, what it says of itself."""

from __future__ import annotations

from math import inf, nan
from pathlib import Path
from typing import Any, Literal

import msgspec

from tidegate.core.errors import ConfigurationError
from tidegate.core.records import Budgets
from tidegate.planning.compare.deciding import of_answer

KIND = "give a configuration, or an answer of `tidegate plan --json`"
"""What else would do."""


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """One of two."""

    file: str
    kind: Literal["configuration", "answer"]
    replicas: int
    settings: dict[str, str]
    """What decides, by name, as people read it."""
    spare_replicas: int = 0
    requests_per_s: float = 0.0
    """Its own load, in the busiest window."""
    prompt_tokens: float = 0.0
    output_tokens: float = 0.0
    concurrency_per_replica: int = 0
    sustained_per_s: float = 0.0
    """By all replicas."""
    carried_per_s: float | None = None
    """The highest rate within budgets and terms; None: not known of a saved answer."""
    utilisation: float = 0.0
    binding: str = ""
    because: str = ""
    ttft_p95_s: float = inf
    """At its own load; without end where more comes than is served."""
    tpot_p95_s: float = inf
    e2e_p95_s: float = inf
    cost_per_hour: float | None = None
    budgets: Budgets | None = None
    """Within which it is to serve; None: not known of a saved answer."""
    notes: tuple[str, ...] = ()
    impossible: str = ""
    """Why there is no answer, and no figures."""


class _Saved(msgspec.Struct, frozen=True, kw_only=True):
    """What is read of an answer."""

    replicas: int
    spare_replicas: int
    requests_per_s: float
    prompt_tokens: float
    output_tokens: float
    concurrency_per_replica: int
    requests_per_s_per_replica: float
    utilisation: float
    binding: str
    because: str
    ttft_s: dict[str, float | None]
    tpot_s: dict[str, float | None]
    e2e_s: dict[str, float | None]
    cost_per_hour: float | None = None
    advice: dict[str, Any] | None = None


def of_text(text: str, path: Path) -> Side:
    """Of a saved answer. Raises ConfigurationError for a file that is none."""
    try:
        saved = msgspec.json.decode(text, type=_Saved)
    except msgspec.DecodeError as error:
        raise ConfigurationError([f"{path}: is no answer of a plan ({error}); {KIND}"]) from None
    return Side(
        file=str(path),
        kind="answer",
        replicas=saved.replicas,
        settings=of_answer(saved.replicas, saved.advice or {}),
        spare_replicas=saved.spare_replicas,
        requests_per_s=saved.requests_per_s,
        prompt_tokens=saved.prompt_tokens,
        output_tokens=saved.output_tokens,
        concurrency_per_replica=saved.concurrency_per_replica,
        sustained_per_s=saved.replicas * saved.requests_per_s_per_replica,
        utilisation=saved.utilisation,
        binding=saved.binding,
        because=saved.because,
        ttft_p95_s=_p95(saved.ttft_s),
        tpot_p95_s=_p95(saved.tpot_s),
        e2e_p95_s=_p95(saved.e2e_s),
        cost_per_hour=saved.cost_per_hour,
    )


def _p95(found: dict[str, float | None]) -> float:
    """Null is what is not known, or without end."""
    value = found.get("p95")
    return nan if value is None else value
