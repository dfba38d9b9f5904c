"""What is wrong with points is said in a sentence that names the constant and the remedy."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from tests.bench.scripted import run, serving, whole
from tidegate.bench.target import ListedModel, Target
from tidegate.calibrate.advice import Judged, warnings_of
from tidegate.calibrate.points import Point, decoding, name_of_batch, prompt_alone
from tidegate.calibrate.told import Told, told_by
from tidegate.core.curve import Linear
from tidegate.perf.regression import fit

CURVE = Linear(
    a_s=10e-3,
    b_s_per_sequence=0.2e-3,
    c_s_per_context_token=0.2e-6,
    d_s_per_prefill_token=50e-6,
    e_s_per_prefill_token_squared=2e-9,
)


def steps(*batches: tuple[int, int], curve: Linear = CURVE, noise: float = 0.0) -> Iterator[Point]:
    """Decode steps of so many sequences with so much context each, in turn too long and too short."""
    for index, (sequences, context) in enumerate(batches):
        off = 1 + (noise if index % 2 else -noise)
        seconds = curve.step_s(sequences, sequences * context) * off
        yield decoding(
            "x", seconds, 1, sequences=sequences, context_tokens=sequences * context, held_out=False
        )


def prompts(*lengths: int) -> Iterator[Point]:
    """Prompts alone."""
    for length in lengths:
        seconds = CURVE.step_s(0, 0, [(length, 0)]) + 1e-3
        yield prompt_alone("p", seconds, length, 0, budget_tokens=10**6, held_out=False)


GOOD = [(n, context) for n in (1, 4, 16) for context in (64, 512, 4096)]
ALONE = (64, 256, 1024, 4096)


@pytest.mark.parametrize(
    ("points", "error", "said"),
    [
        ([*steps(*GOOD), *prompts(*ALONE)], 0.02, []),
        (
            [*steps(*((n, 512) for n in (1, 2, 4, 8, 16))), *prompts(*ALONE)],
            0.0,
            [
                "b (each sequence) and c (each token of context) cannot be told apart: batch and context "
                "were not varied independently (each sequence had 512 tokens of context), so that errors "
                "stated here hold for such traffic only (elsewhere lines like this were 74 to 368 % off); "
                "add runs of 1 to 16 sequences at a time with prompts of about 128 and of 2,048 tokens"
            ],
        ),
        (
            [*steps(*((8, context) for context in (64, 256, 1024, 2048, 4096))), *prompts(*ALONE)],
            0.0,
            [
                "varied enough (8 sequences at a time), so that errors stated here hold for such batches "
                "only; add runs of 1 and of 32 sequences at a time"
            ],
        ),
        (
            [*steps(*GOOD), *prompts(512, 512, 512)],
            0.0,
            [
                "cannot be told apart: prompts alone had 512 tokens; add three lengths or more, the longest "
                "at least 4,096 tokens"
            ],
        ),
        (
            [*steps(*GOOD)],
            0.0,
            [
                "d (each prompt token) is unknown and taken for 0: no prompt was computed by itself or "
                "beside others"
            ],
        ),
        (
            [*steps(*GOOD), *prompts(*ALONE)],
            None,
            ["no points were held out, so that nothing says how well the line predicts"],
        ),
        ([*steps(*GOOD), *prompts(*ALONE)], 0.3, ["held-out points are 30% off in the mean"]),
        (
            [*steps(*GOOD, noise=0.3), *prompts(*ALONE)],
            0.1,
            ["b (each sequence) is uncertain by", "e (prompt tokens squared) is uncertain by"],
        ),
    ],
)
def test_what_is_said_of_points(points: list[Point], error: float | None, said: list[str]) -> None:
    """Each fault has its sentence, and good points have none."""
    found = warnings_of(fit([each.observation for each in points]), points, Judged(error_ratio=error))

    assert len(found) == len(said), found
    for warning, words in zip(found, said, strict=True):
        assert words in warning


def test_batches_by_powers_of_two() -> None:
    """Points of a run that nobody designed are told by the size of their batch."""
    for sequences, name in [(0.6, "1"), (1.2, "1"), (1.6, "2"), (3.0, "4"), (8.4, "8"), (300.0, "512")]:
        assert name_of_batch(sequences) == f"up to {name} at once"


@pytest.mark.parametrize(
    ("props", "told"),
    [
        (
            {"total_slots": 4, "default_generation_settings": {"n_ctx": 2048}},
            Told(max_num_seqs=4, context_tokens=2048),
        ),
        (
            {"total_slots": 1, "default_generation_settings": {"n_ctx": 2048}},
            Told(max_num_seqs=1, context_tokens=2048, kv_tokens=2048),
        ),
        ({"total_slots": 4}, Told(max_num_seqs=4)),
        ({"total_slots": True, "default_generation_settings": 5}, Told()),
        ([1], Told()),
    ],
)
def test_what_llamacpp_tells(props: Any, told: Told) -> None:
    """Slots and the longest context, as far as it says them; how much several hold together it does not."""

    async def main() -> None:
        async with serving(whole(200, props)) as server:
            target = Target(url=server.url, model="m")
            assert await told_by(target, ListedModel(id="m", owned_by="llamacpp")) == told

    run(main())


def test_an_engine_that_tells_nothing() -> None:
    """It still may list how long a sequence may be; what is given stands before what is told."""

    async def main() -> None:
        async with serving(whole(404, {})) as server:
            listed = ListedModel(id="m", max_model_len=4096)
            told = await told_by(Target(url=server.url, model="m"), listed)
        assert told == Told(context_tokens=4096)
        given = Told(context_tokens=1024, kv_tokens=9999)
        assert given.over(told) == Told(context_tokens=1024, kv_tokens=9999)
        assert Told().over(told) == told
        assert Told().over(msgspec.structs.replace(told, prefix_cache=True)).prefix_cache

    asyncio.run(main())
