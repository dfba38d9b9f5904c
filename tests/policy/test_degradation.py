"""Degradation: steps entered above one threshold, left below another after a dwell, and what they mean."""

from __future__ import annotations

from math import inf

from hypothesis import given
from hypothesis import strategies as st

from tidegate.policy.degradation import NO_RELIEF, Ladder, Relief
from tidegate.policy.settings import ClampStep, FallbackStep, ShedStep

CLAMP = ClampStep(above=0.5, below=0.3, max_tokens=64, dwell_s=5.0)
FALL_BACK = FallbackStep(above=0.7, below=0.5, pool="small", classes=("batch",), dwell_s=5.0)
SHED = ShedStep(above=0.9, below=0.6, classes=("batch",), dwell_s=1.0)


def test_hysteresis() -> None:
    """A step holds between its thresholds, and leaves only after it was calm for the whole dwell."""
    ladder = Ladder((CLAMP,))

    for now, pressure, active, wakeup in [
        (0.0, 0.49, False, inf),
        (1.0, 0.50, True, inf),
        (2.0, 0.31, True, inf),  # between the thresholds
        (3.0, 0.29, True, 8.0),  # calm from here on
        (7.9, 0.10, True, 8.0),
        (7.95, 0.30, True, inf),  # not calm after all
        (8.0, 0.0, True, 13.0),
        (12.9, 0.0, True, 13.0),
        (13.0, 0.0, False, inf),
    ]:
        ladder.on_pressure(now, pressure)
        assert (ladder.active, ladder.next_wakeup()) == ([active], wakeup), now


def test_relief_by_class() -> None:
    """Steps add up, each for its classes; protected classes get none."""
    ladder = Ladder((CLAMP, FALL_BACK, SHED))

    for pressure, batch, chat, names in [
        (0.2, NO_RELIEF, NO_RELIEF, ()),
        (0.6, Relief(max_tokens=64), Relief(max_tokens=64), ("clamp",)),
        (0.8, Relief(max_tokens=64, pool="small"), Relief(max_tokens=64), ("clamp", "fallback")),
        (
            0.95,
            Relief(max_tokens=64, pool="small", shed=True),
            Relief(max_tokens=64),
            ("clamp", "fallback", "shed"),
        ),
    ]:
        ladder.on_pressure(0.0, pressure)
        assert ladder.relief("batch", protected=False) == batch
        assert ladder.relief("chat", protected=False) == chat
        assert ladder.relief("batch", protected=True) is NO_RELIEF
        assert ladder.names() == names


def test_the_tightest_clamp_counts() -> None:
    """Of several clamps that are active the smallest bound holds."""
    ladder = Ladder((CLAMP, ClampStep(above=0.8, below=0.6, max_tokens=16)))
    ladder.on_pressure(0.0, 1.0)
    assert ladder.relief("chat", protected=False).max_tokens == 16


@given(st.floats(0, 1e6), st.floats(0.001, 100))
def test_the_wakeup_is_when_it_leaves(calm_at: float, dwell_s: float) -> None:
    """Looked at exactly when it asked to be, a calm step is left, whatever the rounding of that instant."""
    ladder = Ladder((ClampStep(above=0.5, below=0.3, max_tokens=1, dwell_s=dwell_s),))
    ladder.on_pressure(calm_at, 1.0)
    ladder.on_pressure(calm_at, 0.0)

    ladder.on_pressure(ladder.next_wakeup(), 0.0)
    assert (ladder.active, ladder.next_wakeup()) == ([False], inf)


@given(st.lists(st.tuples(st.floats(0, 6), st.floats(0, 1)), max_size=80))
def test_no_step_flaps(steps: list[tuple[float, float]]) -> None:
    """Between entering and leaving a step always lies its dwell."""
    ladder = Ladder((CLAMP,))
    now, entered_at = 0.0, -inf
    for gap_s, pressure in steps:
        now += gap_s
        before = ladder.active[0]
        ladder.on_pressure(now, pressure)
        if ladder.active[0] and not before:
            assert pressure >= CLAMP.above
            entered_at = now
        if before and not ladder.active[0]:
            assert now - entered_at >= CLAMP.dwell_s - 1e-9
            assert pressure < CLAMP.below
