"""Does a curve take the seconds that its constants or measurements say, and a run those of its steps?"""

from __future__ import annotations

from math import inf, nan

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.core.curve import UNBOUNDED, Curve, Grid, Line, Linear, Table, scaled
from tidegate.core.errors import ConfigurationError

LINEAR = Linear(
    a_s=10.0,
    b_s_per_sequence=1.0,
    c_s_per_context_token=0.1,
    d_s_per_prefill_token=0.01,
    e_s_per_prefill_token_squared=0.0001,
)
TABLE = Table(
    tokens=Line(points=(1, 64, 512), seconds=(8.0, 8.5, 20.0)),
    sequences=Line(points=(1, 32), seconds=(0.5, 1.5)),
    decode=Grid(rows=(1, 8, 32), columns=(16, 128, 1024), seconds=((1, 2, 9), (2, 5, 31), (4, 14, 118))),
    prefill=Grid(rows=(16, 256), columns=(0, 1024), seconds=((0.1, 0.4), (2.0, 6.0))),
)


def test_the_linear_curve_term_by_term() -> None:
    """Sequences of both kinds count, the context of those that decode, new tokens, and their squares."""
    for decodes, context_tokens, chunks, drafts, seconds in [
        (1, 0, [], 0, 11.0),
        (3, 100, [], 0, 23.0),
        (3, 100, [], 6, 23.06),
        (0, 0, [(100, 0)], 0, 10 + 1 + 1 + 1.0),
        (0, 0, [(100, 100)], 0, 10 + 1 + 1 + 3.0),  # 200² - 100²
        (2, 50, [(10, 0), (20, 30)], 0, 10 + 4 + 5 + 0.3 + 0.01 + 0.16),
    ]:
        assert LINEAR.step_s(decodes, context_tokens, chunks, drafts) == pytest.approx(seconds), chunks


def test_the_table_at_its_points_and_between() -> None:
    """Measured points are met; between them it is straight, before the first level, after the last on."""
    for decodes, context_tokens, chunks, seconds in [
        (1, 16, [], 8.0 + 0.5 + 1),
        (8, 8 * 128, [], 8.0 + 7 / 63 * 0.5 + 0.5 + 7 / 31 + 5),
        (1, 72, [], 8.0 + 0.5 + 1.5),
        (1, 4, [], 8.0 + 0.5 + 1),
        (1, 1920, [], 8.0 + 0.5 + 16),
        (0, 0, [(64, 512)], 8.5 + 0.5 + 0.25 + 0.2 * (4.0 - 0.25)),
        (0, 0, [(512, 0)], 20.0 + 0.5 + 2.0 + 256 / 240 * 1.9),
    ]:
        assert TABLE.step_s(decodes, context_tokens, chunks) == pytest.approx(seconds), (decodes, chunks)


@given(
    st.sampled_from([LINEAR, TABLE, Table(tokens=TABLE.tokens)]),
    st.integers(1, 40),
    st.integers(1, 2000),
    st.sampled_from([None, 0.5, 3.25]),
    st.integers(0, 12),
)
def test_a_run_takes_what_its_steps_take(
    curve: Curve, decodes: int, context_each: int, growth_each: float | None, drafts: int
) -> None:
    """The closed form of a run is the sum of its steps, up to the breakpoint that ends it."""
    growth = None if growth_each is None else growth_each * decodes
    run = curve.decode_run(decodes, decodes * context_each, growth, drafts)

    for step in range(min(run.steps, 200)):
        context_tokens = decodes * context_each + step * (decodes if growth is None else growth)
        expected = curve.step_s(decodes, context_tokens, (), drafts)
        assert run.first_s + step * run.growth_s == pytest.approx(expected, rel=1e-12), step


def test_a_run_ends_at_a_column_and_never_stands_still() -> None:
    """The step that reaches a column is the last of its run; on the last piece there is no end."""
    for context_tokens, growth_each, steps in [
        (10, None, 7),  # level up to the first column: contexts 10 to 16
        (16, None, 113),  # contexts 16 to 128
        (100, None, 29),
        (100, 0.5, 57),
        (100, 64.0, 1),
        (128, None, UNBOUNDED),
        (2000, None, UNBOUNDED),
    ]:
        growth = None if growth_each is None else 8 * growth_each
        assert TABLE.decode_run(8, 8 * context_tokens, growth).steps == steps, (context_tokens, growth_each)


def test_a_curve_survives_a_file() -> None:
    """A tape or a file carries either kind, told apart by its tag."""
    for curve in (LINEAR, TABLE):
        assert msgspec.json.decode(msgspec.json.encode(curve), type=Curve) == curve


@pytest.mark.parametrize("a_s", [0.0, -1.0, inf, nan])
def test_a_step_takes_time(a_s: float) -> None:
    """A step of no time would let a simulation stand still."""
    with pytest.raises(ConfigurationError):
        Linear(a_s=a_s)


def test_tables_that_cannot_be() -> None:
    """Points that do not ascend, cells that are missing or not finite, ends that fall below zero later."""
    for points, seconds in [
        ((), ()),
        ((1, 1), (1.0, 2.0)),
        ((1, 2), (1.0,)),
        ((1, 2), (1.0, nan)),
        ((1, 2), (1.0, -1.0)),
        ((1, 2), (2.0, 1.0)),
    ]:
        with pytest.raises(ConfigurationError):
            Line(points=points, seconds=seconds)
        with pytest.raises(ConfigurationError):
            Grid(rows=(1,), columns=points, seconds=(seconds,))
    with pytest.raises(ConfigurationError):
        Grid(rows=(1, 2), columns=(1,), seconds=((1.0,),))


@pytest.mark.parametrize("curve", [LINEAR, TABLE])
def test_a_scaled_curve_takes_so_many_times_as_long(curve: Curve) -> None:
    """Every step, whatever is in it."""
    slower = scaled(curve, 4.0)

    for decodes, context_tokens, chunks in [(1, 20, []), (16, 4_000, []), (8, 900, [(100, 0), (30, 512)])]:
        seconds = curve.step_s(decodes, context_tokens, chunks)
        assert slower.step_s(decodes, context_tokens, chunks) == pytest.approx(4 * seconds)
