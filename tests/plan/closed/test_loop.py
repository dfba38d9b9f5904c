"""Clients in a closed loop: what follows from a step's time, and who waits where not all fit."""

from __future__ import annotations

from math import isnan

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.core.curve import Linear
from tidegate.core.errors import ConfigurationError
from tidegate.perf.efficiencies import Waiting
from tidegate.plan.closed.loop import Clients, closed_loop
from tidegate.plan.laws.engine import Engine

ENGINE = Engine(
    curve=Linear(
        a_s=0.01,
        b_s_per_sequence=5e-5,
        c_s_per_context_token=2e-8,
        d_s_per_prefill_token=4e-5,
        e_s_per_prefill_token_squared=1e-9,
    ),
    max_num_seqs=256,
    max_batched_tokens=8192,
    kv_tokens=400_000,
    context_tokens=131_072,
)
PLAIN = Waiting(steps=1.0)


def clients(count: float, prompt: int = 1000, output: int = 200, **others: float) -> Clients:
    """So many."""
    return Clients(count=count, prompt_tokens=prompt, output_tokens=output, **others)


def test_a_lone_client_waits_for_nobody() -> None:
    """TTFT is its prompt and one step more; TPOT the steps of one sequence at its mean context."""
    loop = closed_loop(ENGINE, clients(1), waiting=PLAIN)
    curve = ENGINE.curve
    step_s, prompt_s = curve.step_s(1, 1100), curve.step_s(0, 0, [(1000, 0)])

    assert loop.tpot_s == pytest.approx(step_s, rel=1e-3)
    assert loop.ttft_s == pytest.approx(prompt_s + step_s, rel=1e-3)
    assert loop.e2e_s == loop.ttft_s + 199 * loop.tpot_s
    assert loop.requests_per_s == pytest.approx(1 / loop.e2e_s)
    assert (loop.seats, loop.binding, loop.waiting_s) == (1, "clients", 0.0)


def test_decoding_stops_for_the_prompts_of_the_others() -> None:
    """In the time of one request each of the others has one prompt, too."""
    many = closed_loop(ENGINE, clients(32), waiting=PLAIN)
    prompt_s = ENGINE.curve.step_s(32, 0, [(1000, 0)]) - ENGINE.curve.step_s(32, 0)
    alone_s = ENGINE.curve.step_s(32, 32 * 1100)
    served_s = many.ttft_s + 200 * many.tpot_s

    assert many.tpot_s == pytest.approx(alone_s + 31 * prompt_s * many.tpot_s / served_s, rel=0.02)


def test_all_begin_at_once_and_so_wait_for_half_of_the_others() -> None:
    """With one request each, all of that is in the mean TTFT; with ten, a tenth."""
    once, often = (closed_loop(ENGINE, clients(32, requests=n), waiting=PLAIN) for n in (1, 10))
    prompt_s = ENGINE.curve.step_s(32, 0, [(1000, 0)]) - ENGINE.curve.step_s(32, 0)

    assert once.ttft_s - often.ttft_s == pytest.approx(0.9 * 31 * prompt_s / 2, rel=0.15)


def test_clients_of_equal_requests_wait_for_the_group_before() -> None:
    """Two prompts, where they keep in step: with short outputs, and with others; not where lengths vary."""
    waiting = Waiting(behind=2.0, in_step_tokens=600.0, queue=0.0)
    prompt_s = ENGINE.curve.step_s(32, 0, [(1000, 0)]) - ENGINE.curve.step_s(32, 0)

    def behind_s(count: int, output: int, **others: float) -> float:
        asked = clients(count, 1000, output, **others)
        return closed_loop(ENGINE, asked, waiting=waiting).queue_s

    assert behind_s(32, 128) == pytest.approx(2 * prompt_s / (1 + (128 / 600) ** 4), rel=0.01)
    assert behind_s(32, 600) == pytest.approx(prompt_s, rel=0.01)
    assert behind_s(32, 4800) < 0.001 * prompt_s
    assert behind_s(2, 128) == pytest.approx(behind_s(32, 128) / 3, rel=0.01)
    assert behind_s(1, 128) == behind_s(32, 128, alike=0.0) == 0


def test_an_engine_that_computes_prompts_first_keeps_equal_clients_together() -> None:
    """Of short outputs all requests wait for half of the others, of long ones the first of each client."""
    kept = Waiting(together=1.0, in_step_tokens=600.0)
    short, long = (closed_loop(ENGINE, clients(32, 1000, output), waiting=kept) for output in (16, 16_000))

    assert short.together == pytest.approx(1.0, abs=1e-3)
    assert long.together == pytest.approx(0.1, abs=1e-3)


def test_clients_beyond_the_kv_memory_wait_for_a_seat() -> None:
    """400,000 tokens hold 43 sequences of 8192 and half of 2048: TTFT = (64 - 43) / X + prefill."""
    inside = closed_loop(ENGINE, clients(43, 8192, 2048))
    beyond = closed_loop(ENGINE, clients(64, 8192, 2048))

    assert (inside.binding, beyond.binding, beyond.seats) == ("clients", "kv_memory", 43)
    assert beyond.requests_per_s == inside.requests_per_s
    assert beyond.tpot_s == inside.tpot_s
    assert beyond.waiting_s == pytest.approx(21 / inside.requests_per_s)
    assert beyond.ttft_s == pytest.approx(beyond.waiting_s + inside.ttft_s)


def test_an_engine_that_reserves_outputs_seats_fewer() -> None:
    """400,000 / 10240: 39."""
    loop = closed_loop(ENGINE, clients(64, 8192, 2048), waiting=Waiting(output_reserved=1.0))
    assert loop.seats == 39


def test_clients_beyond_the_batch_wait_for_a_seat() -> None:
    """The limit binds before memory does."""
    small = msgspec.structs.replace(ENGINE, max_num_seqs=8)
    loop = closed_loop(small, clients(20))
    assert (loop.seats, loop.binding) == (8, "batch")
    assert loop.requests_per_s * loop.e2e_s == pytest.approx(20)


def test_what_is_cached_is_not_computed() -> None:
    """A prompt of which 900 of 1000 tokens are known takes a tenth, and attends to all."""
    known = closed_loop(ENGINE, clients(1, cached_tokens=900), waiting=PLAIN)
    expected_s = ENGINE.curve.step_s(0, 0, [(100, 900)]) + ENGINE.curve.step_s(1, 1100)
    assert known.ttft_s == pytest.approx(expected_s, rel=1e-3)


def test_copies_of_attention_compute_a_prompt_each() -> None:
    """A lone prompt is on one of them, and takes as long as two at once."""
    two = closed_loop(ENGINE, clients(2), copies=2, waiting=PLAIN)
    both_s = ENGINE.curve.step_s(0, 0, [(1000, 0), (1000, 0)])
    assert two.ttft_s == pytest.approx(both_s + two.tpot_s, rel=1e-3)

    one = closed_loop(ENGINE, clients(1), copies=2, waiting=PLAIN)
    assert (one.ttft_s, one.tpot_s) == (two.ttft_s, two.tpot_s)
    assert one.requests_per_s == two.requests_per_s / 2


def test_one_output_token_has_no_pace() -> None:
    """TPOT is not defined, all else is."""
    loop = closed_loop(ENGINE, clients(4, output=1))
    assert isnan(loop.tpot_s)
    assert loop.e2e_s == loop.ttft_s > 0


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (clients(0), "1 or more"),
        (clients(1, output=0), "1 or more"),
        (clients(1, cached_tokens=1000), "not all cached"),
        (clients(1, prompt=200_000), "never fits: 131072 do"),
    ],
)
def test_what_can_never_be_served_is_refused(asked: Clients, words: str) -> None:
    """With the reason."""
    with pytest.raises(ConfigurationError, match=words):
        closed_loop(ENGINE, asked)


@given(
    st.integers(1, 300),
    st.integers(1, 20_000),
    st.integers(2, 8000),
    st.sampled_from(
        [
            PLAIN,
            Waiting(steps=6, queue=0.1, beside=1.05, alone=0.6),
            Waiting(together=0.7),
            Waiting(behind=2.0),
        ]
    ),
)
def test_laws_of_a_closed_loop(count: int, prompt: int, output: int, waiting: Waiting) -> None:
    """Little's law; more clients get no less in sum and wait no shorter; memory seats no fewer."""
    loop = closed_loop(ENGINE, clients(count, prompt, output), waiting=waiting)
    more = closed_loop(ENGINE, clients(count + 8, prompt, output), waiting=waiting)
    larger = msgspec.structs.replace(ENGINE, kv_tokens=2 * ENGINE.kv_tokens)
    roomy = closed_loop(larger, clients(count, prompt, output), waiting=waiting)

    assert loop.requests_per_s * loop.e2e_s == pytest.approx(count)
    assert loop.ttft_s > 0
    assert loop.tpot_s >= ENGINE.curve.step_s(1, 0) * 0.999
    assert more.ttft_s >= loop.ttft_s * 0.98
    assert more.requests_per_s >= loop.requests_per_s * 0.97 * waiting.alone
    assert roomy.seats >= loop.seats
    assert roomy.waiting_s <= loop.waiting_s * 1.001
