"""Tables of single operators become step times."""

from __future__ import annotations

from itertools import product

import msgspec
import pytest

from tidegate.core.curve import Curve
from tidegate.core.errors import ConfigurationError
from tidegate.perf.operators import Measured, Row, experts, measured, table

ONLY = {"gpu": "G", "model": "M", "tp": "1"}
TOKENS = (1, 8, 64)
NEW, BEFORE, DECODES, CONTEXT = (16, 64), (0, 100), (1, 4, 16), (16, 160, 320)


def attention_us(new: int, before: int, decodes: int, context: int) -> float:
    """What decodes read costs three times as much beside prompts."""
    alone = new * (before + new / 2) / 100
    return 2 + alone + decodes * context / 50 * (3 if new else 1)


def rows() -> tuple[list[Row], list[Row], list[Row]]:
    """Three tables in the profiler's columns, another GPU's rows among them."""
    shapes = [
        *((new, before, 0, 0) for new, before in product(NEW, BEFORE)),
        *((0, 0, decodes, context) for decodes, context in product(DECODES, CONTEXT)),
        *product(NEW, BEFORE, DECODES, CONTEXT),
    ]
    names = ("prefill_chunk", "kv_prefill", "n_decode", "kv_decode")
    attention: list[Row] = [
        {
            **ONLY,
            **{n: str(v) for n, v in zip(names, shape, strict=True)},
            "time_us": str(attention_us(*shape)),
        }
        for shape in shapes
    ]
    layers = {"embedding": 1.0, "layernorm": 2.0, "qkv_proj": 10.0, "final_layernorm": 3.0}
    dense: list[Row] = [
        {**ONLY, "layer": layer, "tokens": str(tokens), "time_us": str(us * (1 + tokens / 8))}
        for layer, us in layers.items()
        for tokens in TOKENS
    ]
    per_sequence: list[Row] = [
        {**ONLY, "layer": layer, "sequences": str(n), "time_us": str(us + n)}
        for layer, us in {"lm_head": 100.0, "sampler": 5.0}.items()
        for n in (1, 16)
    ]
    other: Row = {**dense[0], "gpu": "other", "time_us": "1e9"}
    return [*dense, other], per_sequence, attention


@pytest.fixture
def operators() -> Measured:
    """Of one model on one GPU."""
    dense, per_sequence, attention = rows()
    return measured(dense, per_sequence, attention, ONLY)


def test_a_step_is_the_sum_of_its_operators(operators: Measured) -> None:
    """Once a layer, or twice, or once a model; attention by what decodes and by each chunk."""
    steps = table(operators, layers=10)

    for decodes, context, chunks, expected_us in [
        (1, 16, (), (1 + 3 + 10 * (2 * 2 + 10)) * 9 / 8 + 107 + 10 * attention_us(0, 0, 1, 16)),
        (4, 4 * 88, (), (4 + 140) * 1.5 + 113 + 10 * attention_us(0, 0, 4, 88)),
        (0, 0, ((64, 100),), (4 + 140) * 9 + 107 + 10 * attention_us(64, 100, 0, 0)),
        (0, 0, ((16, 0), (16, 50)), 144 * 5 + 109 + 10 * (4 + 16 * 8 / 100 + 16 * 58 / 100)),
        (4, 4 * 160, ((60, 0),), 144 * 9 + 115 + 10 * (attention_us(60, 0, 0, 0) + 3 * 4 * 160 / 50)),
    ]:
        assert 1e6 * steps.step_s(decodes, context, chunks) == pytest.approx(expected_us, rel=0.02), decodes


def test_a_gap_is_added_for_each_layer(operators: Measured) -> None:
    """What no operator was measured for takes the same in every step."""
    without, with_gap = table(operators, layers=10), table(operators, layers=10, gap_s=50e-6)

    for decodes, chunks in [(4, ()), (0, ((16, 0),)), (4, ((64, 100),))]:
        longer = with_gap.step_s(decodes, 100, chunks) - without.step_s(decodes, 100, chunks)
        assert longer == pytest.approx(500e-6)


def test_decode_runs_follow_the_table(operators: Measured) -> None:
    """Between two columns the steps of a run are those of `step_s`, and the run ends at the column."""
    steps = table(operators, layers=10)
    context = 4 * 100

    run = steps.decode_run(4, context)

    assert run.steps == 61  # means of 100 to 160
    for k in range(run.steps):
        assert run.first_s + k * run.growth_s == pytest.approx(steps.step_s(4, context + 4 * k), rel=1e-12)


def test_a_table_survives_json(operators: Measured) -> None:
    """Tapes and profiles carry it."""
    steps = table(operators, layers=10)

    assert msgspec.json.decode(msgspec.json.encode(steps), type=Curve) == steps


def test_unmeasured_corners_go_on_as_the_cells_before_them() -> None:
    """Profilers leave out what does not fit into memory; a larger step never takes less."""
    dense, per_sequence, attention = rows()
    fewer = [row for row in attention if (row["n_decode"], row["kv_decode"]) != ("16", "320")]

    steps = table(measured(dense, per_sequence, fewer, ONLY), layers=10)

    whole = table(measured(dense, per_sequence, attention, ONLY), layers=10)
    assert steps.step_s(16, 16 * 320) == pytest.approx(whole.step_s(16, 16 * 320), rel=0.01)


def test_what_nobody_measured_is_named() -> None:
    """A model that the tables do not have is an error that says which."""
    with pytest.raises(ConfigurationError, match="nothing was measured of G N 1"):
        measured(*rows(), {**ONLY, "model": "N"})


def test_experts_are_shared_by_the_ranks() -> None:
    """A rank computes its share of the tokens, with those of its experts that get any."""
    times = {(tokens, active): 10.0 * active + tokens for tokens in (1, 4, 16) for active in (2, 4, 8)}

    line = experts(times, layers=3, ranks=2, experts=8, chosen=2)

    assert line(1) == pytest.approx(3e-6 * (10 * 2 + 1))  # at least as few experts as were measured
    active = 4 * (1 - 0.75**32)
    assert line(32) == pytest.approx(3e-6 * (10 * active + 16), rel=1e-6)
