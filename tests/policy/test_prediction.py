"""Prediction: what is learned from settled requests, and that its bounds are bounds."""

from __future__ import annotations

from math import inf
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from tests.policy.build import EXACT, approx, ask
from tidegate.policy.prediction import TEMPLATE_TOKENS, BytesPerToken, DrainRate, Predictor, Quantile
from tidegate.policy.settings import PredictionSettings


def test_bytes_per_token_follow_the_engine() -> None:
    """Thirty prompts of another language move the ratio most of the way; short and absurd ones do not."""
    ratio = BytesPerToken(4.0)
    ratio.learn(63, 1)  # mostly template
    ratio.learn(1_000, 0)
    assert ratio.value == 4.0

    for _ in range(60):
        ratio.learn(1_000, 500)
    assert ratio.value == approx(2.0, abs=0.1)
    for _ in range(500):
        ratio.learn(1_000_000, 1)
    assert ratio.value == approx(16.0, rel=0.01)


def test_a_quantile_is_exceeded_by_its_share() -> None:
    """After many samples a fifth of them lies above the 0.8 quantile."""
    rng, quantile = Random(7), Quantile(256.0, 0.8)
    above = 0
    for number in range(20_000):
        sample = rng.expovariate(1 / 100)
        above += number >= 2_000 and sample > quantile.value
        quantile.learn(sample)
    assert above / 18_000 == approx(0.2, abs=0.02)


def test_estimates_of_one_request() -> None:
    """Likely, certain and most: prompt and output, over choices, as far as each is bounded."""
    predictor = Predictor.of(PredictionSettings(bytes_per_token=4.0, output_tokens=100.0))
    text = ask(1, prompt_bytes=800, prompt_tokens_known=7)

    assert predictor.prompt_tokens(text) == 207
    assert predictor.prompt_tokens_certain(text) == 57
    assert predictor.prompt_tokens_bound(text) == 807 + TEMPLATE_TOKENS
    for request, max_tokens, context, likely, most in [
        (text, None, None, 100, inf),
        (text, None, 1_057, 100, 1_000),
        (text, 40, 1_057, 40, 40),
        (text, 400, None, 100, 400),
        (ask(2, choices=3), 40, None, 120, 120),
        (ask(3, choices=3), None, 1_010, 300, 3 * 1_009.375),
        (ask(4, generates=False), None, None, 0, 0),
        (ask(5, prompt_bytes=16_000), None, 10, 100, 1),  # over its context: the engine will say so
    ]:
        assert predictor.output_tokens(request, max_tokens) == likely, request
        assert predictor.output_tokens_bound(request, max_tokens, context) == most, request


def test_tenants_learn_apart() -> None:
    """One tenant's long answers do not raise what another one reserves."""
    predictor = Predictor.of(EXACT)
    for _ in range(100):
        predictor.learn(ask(1, choices=2), 10, 2_000)
    assert predictor.output_tokens(ask(2), None) == approx(1_000, rel=0.15)
    assert predictor.output_tokens(ask(3, tenant="b"), None) == 10


def test_no_lesson_from_what_is_not_text_or_not_output() -> None:
    """Token-id prompts teach no ratio, embeddings no output length."""
    predictor = Predictor.of(EXACT)
    predictor.learn(ask(1, prompt_bytes=1_000, prompt_tokens_known=5), 10, 10)
    predictor.learn(ask(2, generates=False), 10, 0)
    assert predictor.bytes_per_token.value == 1.0
    assert list(predictor.outputs) == ["a"]


@given(st.lists(st.tuples(st.integers(1, 10**6), st.integers(1, 10**6)), max_size=50), st.integers(0, 10**6))
def test_certain_is_never_above_likely(lessons: list[tuple[int, int]], prompt_bytes: int) -> None:
    """Whatever was learned, certain <= likely, and certain <= most."""
    predictor = Predictor.of(EXACT)
    for prompt, output in lessons:
        predictor.learn(ask(1, prompt_bytes=prompt), output, output)
    request = ask(2, prompt_bytes=prompt_bytes)
    assert predictor.prompt_tokens_certain(request) <= predictor.prompt_tokens(request) * (1 + 1e-9)
    assert predictor.prompt_tokens_certain(request) <= predictor.prompt_tokens_bound(request)


# -- the drain ------------------------------------------------------------------------------------


def busy(tokens_per_s: float) -> DrainRate:
    """A drain that worked at that rate from 0 to 100."""
    drain = DrainRate()
    drain.on_waiting(0.0, True)
    for tick in range(1, 101):
        drain.on_dispatched(float(tick), tokens_per_s)
    return drain


def test_the_rate_is_that_of_busy_time() -> None:
    """Tokens per second while something waits; idle hours neither dilute nor fade it."""
    drain = busy(50)
    assert drain.tokens_per_s == approx(50, rel=0.06)
    drain.on_waiting(100.0, False)
    drain.on_dispatched(5_000.0, 1e9)  # nothing waited: it says nothing about the rate
    drain.on_waiting(9_000.0, True)
    assert drain.tokens_per_s == approx(50, rel=0.06)
    assert drain.wait_s(500) == approx(10, rel=0.06)


def test_the_rate_is_right_from_the_first_second_on() -> None:
    """Not believed before a second of work; then already right, not a tenth of it."""
    drain = DrainRate()
    drain.on_waiting(0.0, True)
    for tick in range(1, 10):
        drain.on_dispatched(tick / 10, 5)
    assert (drain.tokens_per_s, drain.wait_s(1_000), drain.book(0.9, 10, 10)) == (0.0, 0.0, 1.0)
    drain.on_dispatched(1.2, 15)
    assert drain.tokens_per_s == approx(50, rel=0.1)


def test_promises_are_booked_one_behind_the_other() -> None:
    """Each refused request is told its own place; time that passes works promises off."""
    drain = busy(50)

    waits = [drain.book(100.0, 100, 50) for _ in range(4)]
    assert waits == approx([3, 4, 5, 6], rel=0.06)
    assert drain.book(104.0, 100, 50) == approx(3, rel=0.06)


def test_promises_do_not_reach_beyond_what_clients_wait() -> None:
    """A flood of a million refusals is not held against those who ask when it is over."""
    drain = busy(50)
    for _ in range(100_000):
        assert drain.book(100.0, 100, 50) <= 120.0
    assert drain.book(219.0, 0, 50) < 3.0
