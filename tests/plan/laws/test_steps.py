"""Many steps at once take what each of them takes by itself."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.core.curve import Curve, Grid, Line, Linear, Stack, Table
from tidegate.perf.speculative import Verifying
from tidegate.plan.laws.steps import Chunks, Steps

LINEAR = Linear(
    a_s=10e-3,
    b_s_per_sequence=0.1e-3,
    c_s_per_context_token=1e-7,
    d_s_per_prefill_token=50e-6,
    e_s_per_prefill_token_squared=1e-9,
)
TOKENS = Line(points=(1.0, 64.0, 512.0, 4096.0), seconds=(5e-3, 5.5e-3, 9e-3, 60e-3))
DECODE = Grid(rows=(0.0, 1.0), columns=(0.0, 4096.0, 2.0**18), seconds=((0.0,) * 3, (0.0, 4e-5, 9e-4)))
PREFILL = Grid(
    rows=(0.0, 16.0, 2048.0), columns=(0.0, 8192.0), seconds=((0.0, 0.0), (1e-5, 9e-5), (3e-3, 2e-2))
)
PLAIN = Table(tokens=TOKENS)
FULL = Table(
    tokens=TOKENS,
    sequences=Line(points=(1.0, 256.0), seconds=(1e-4, 2e-3)),
    decode=DECODE,
    prefill=PREFILL,
)
ONE_POINT = Table(
    tokens=Line(points=(8.0,), seconds=(5e-3,)), prefill=Grid(rows=(1.0,), columns=(1.0,), seconds=((2e-3,),))
)
MIXED = Table(
    tokens=TOKENS,
    decode=DECODE,
    prefill=PREFILL,
    mixed=Stack(
        depths=(0.0, 1024.0),
        grids=(DECODE, Grid(rows=(0.0, 8.0), columns=(0.0, 9000.0), seconds=((0.0, 1e-4), (1e-4, 5e-3)))),
    ),
)
GUESSING = [Verifying(curve=curve, draft_tokens=3, acceptance_ratio=0.7) for curve in (LINEAR, FULL, MIXED)]
CURVES: list[Curve | Verifying] = [LINEAR, PLAIN, FULL, ONE_POINT, MIXED, *GUESSING]
NAMES = ["linear", "tokens only", "table", "one point", "mixed", "line guesses", "table guesses", "both"]


@pytest.mark.parametrize("curve", CURVES, ids=NAMES)
@settings(max_examples=25, deadline=None)
@given(
    steps=st.lists(
        st.tuples(
            st.integers(0, 600),  # decoding sequences, none among them
            st.integers(1, 20),  # prompts
            st.floats(1, 9000),  # tokens of each: before the first point, between, beyond the last
            st.floats(0, 20_000),  # tokens before them
        ),
        min_size=1,
        max_size=6,
    ),
    context=st.floats(0, 5e5),
)
def test_steps_at_once_are_steps_one_by_one(
    curve: Curve | Verifying, steps: list[tuple[int, int, float, float]], context: float
) -> None:
    """Whatever the curve is made of, and wherever its points end."""
    decodes, prompts, new, before = (np.array(each, float) for each in zip(*steps, strict=True))
    chunks = Chunks(prompts=prompts, new=new, before=before)

    alone_s = Steps(curve).decoding_s(decodes, decodes * context)
    beside_s = Steps(curve).beside_s(decodes, decodes * context, chunks)

    for place, (count, several, tokens, cached) in enumerate(steps):
        assert alone_s[place] == pytest.approx(curve.step_s(count, count * context), rel=1e-12)
        found = curve.step_s(count, count * context, [(tokens, cached)] * several)  # type: ignore[list-item]
        assert beside_s[place] == pytest.approx(found, rel=1e-12)
