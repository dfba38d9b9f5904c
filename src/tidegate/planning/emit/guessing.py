"""What of a simulated engine says that it guesses ahead? Its curve has what guesses cost."""

from __future__ import annotations

from tidegate.perf.speculative import Verifying
from tidegate.plan.laws.engine import Engine


def guessing_of(engine: Engine) -> dict[str, object]:
    """`sim.settings.Speculation`, under its name; nothing where none is guessed."""
    curve = engine.curve
    if not isinstance(curve, Verifying):
        return {}
    return {"speculation": {"draft_tokens": curve.draft_tokens, "acceptance_ratio": curve.acceptance_ratio}}
