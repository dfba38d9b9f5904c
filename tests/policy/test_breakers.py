"""Breakers: what opens one, how it closes again, and that trials are capped and never lost."""

from __future__ import annotations

from math import inf

from hypothesis import given
from hypothesis import strategies as st

from tidegate.policy.breakers import Breaker, BreakerState
from tidegate.policy.settings import BreakerSettings

CLOSED, OPEN, HALF_OPEN = BreakerState.CLOSED, BreakerState.OPEN, BreakerState.HALF_OPEN


def opened(now: float = 0.0, **settings: float) -> Breaker:
    breaker = Breaker(BreakerSettings(**settings))  # type: ignore[arg-type]
    breaker.open(now)
    return breaker


def test_five_failures_in_a_row_open_it() -> None:
    """A success between them starts the row anew; the fifth in a row opens for `open_s`."""
    breaker = Breaker(BreakerSettings(min_samples=1_000))

    for now, ok, state in [
        (0.0, False, CLOSED),
        (0.1, False, CLOSED),
        (0.2, False, CLOSED),
        (0.3, False, CLOSED),
        (0.4, True, CLOSED),
        (0.5, False, CLOSED),
        (0.6, False, CLOSED),
        (0.7, False, CLOSED),
        (0.8, False, CLOSED),
        (0.9, False, OPEN),
    ]:
        breaker.on_success(now, 0) if ok else breaker.on_failure(now, 0)
        assert breaker.state is state, now
    assert not breaker.admits(5.89)
    assert breaker.next_wakeup() == 5.9
    assert breaker.admits(5.9)
    assert (breaker.state_at(5.89), breaker.state_at(5.9)) == (OPEN, HALF_OPEN)
    assert breaker.on_dispatch(5.9) == 1
    assert (breaker.state, breaker.next_wakeup()) == (HALF_OPEN, inf)


def test_a_rate_of_failures_opens_it() -> None:
    """Half of at least twenty within one window open it; an old window is forgotten."""
    breaker = Breaker(BreakerSettings())
    for number in range(18):  # half of these fail, but they are too few
        breaker.on_success(0.1, 0) if number % 2 else breaker.on_failure(0.1, 0)
    for number in range(19):  # nor does the window before help these
        breaker.on_failure(10.1, 0) if number % 2 else breaker.on_success(10.1, 0)
    assert breaker.state is CLOSED

    assert breaker.on_failure(10.2, 0)
    assert breaker.state is OPEN


def test_answers_below_500_never_open_it() -> None:
    """Twenty answers in a row that blame the client say that the replica is well."""
    breaker = Breaker(BreakerSettings())
    for now in range(20):
        breaker.on_success(float(now), 0)
        breaker.on_neutral(0)
    assert breaker.state is CLOSED


def test_half_open_lets_one_through() -> None:
    """A hundred wait as the pause ends: one is tried, and one more when it has answered well."""
    breaker = opened()

    trials = [breaker.on_dispatch(5.0) for _ in range(100) if breaker.admits(5.0)]
    assert trials == [1]
    breaker.on_success(5.1, 1)
    assert breaker.state is HALF_OPEN
    assert [breaker.on_dispatch(5.2) for _ in range(100) if breaker.admits(5.2)] == [1]
    breaker.on_success(5.3, 1)
    assert breaker.state is CLOSED
    assert breaker.on_dispatch(5.4) == 0


def test_a_failed_trial_opens_it_again_for_twice_as_long() -> None:
    """Pauses double each time in a row up to their maximum, and begin anew once it had closed."""
    breaker = opened(open_s=5, open_max_s=15, successes_to_close=1)

    now = 5.0
    for pause_s in [10, 15, 15]:
        assert breaker.admits(now)
        # Whoever may not open it more than it is stays shut out by a failed trial all the same.
        assert breaker.on_failure(now, breaker.on_dispatch(now), may_open=False)
        assert breaker.next_wakeup() == now + pause_s
        now += pause_s
    assert breaker.admits(now)
    breaker.on_success(now, breaker.on_dispatch(now))
    breaker.open(now)
    assert breaker.next_wakeup() == now + 5


def test_a_trial_without_result_frees_its_permit() -> None:
    """A trial whose caller left says nothing, and the next request becomes the trial."""
    breaker = opened()
    assert breaker.admits(5.0)
    trial = breaker.on_dispatch(5.0)
    assert not breaker.admits(5.1)

    breaker.on_neutral(trial)
    assert breaker.state is HALF_OPEN
    assert breaker.admits(5.1)


def test_an_old_trial_says_nothing_about_a_new_round() -> None:
    """What a trial of an earlier half-open round reports neither closes this one nor frees its permit."""
    breaker = opened(half_open_trials=2, successes_to_close=1)
    assert breaker.admits(5.0)
    first, second = breaker.on_dispatch(5.0), breaker.on_dispatch(5.0)
    breaker.on_failure(5.1, first)
    assert breaker.admits(15.1)
    assert breaker.on_dispatch(15.1) == second + 1

    breaker.on_success(15.2, second)
    breaker.on_neutral(first)
    assert (breaker.state, breaker.trials) == (HALF_OPEN, 1)


def test_may_not_open_means_counting_goes_on() -> None:
    """While too many others are out it stays in, and opens with the next failure once it may."""
    breaker = Breaker(BreakerSettings())
    for _ in range(9):
        assert not breaker.on_failure(0.0, 0, may_open=False)
    assert breaker.state is CLOSED
    assert breaker.on_failure(0.1, 0, may_open=True)


def test_stragglers_of_a_bad_time_do_not_open_it_twice() -> None:
    """Failures of attempts sent before it opened leave no mark on the breaker that has closed since."""
    breaker = opened(successes_to_close=1)
    for _ in range(50):
        breaker.on_failure(1.0, 0)
    assert breaker.next_wakeup() == 5.0
    assert breaker.admits(5.0)
    breaker.on_success(5.0, breaker.on_dispatch(5.0))

    breaker.on_failure(5.1, 0)
    assert breaker.state is CLOSED


@given(
    st.integers(1, 3),
    st.lists(st.tuples(st.floats(0, 4), st.sampled_from(["ask", "good", "bad", "left"])), max_size=120),
)
def test_trials_never_exceed_their_cap(cap: int, steps: list[tuple[float, str]]) -> None:
    """Whatever happens in whatever order, half open has at most its trials under way and loses none."""
    breaker = Breaker(BreakerSettings(consecutive_failures=2, half_open_trials=cap, open_s=3))
    now = 0.0
    running: list[int] = []
    for gap_s, step in steps:
        now += gap_s
        if step == "ask" and breaker.admits(now):
            running.append(breaker.on_dispatch(now))
        elif step != "ask" and running:
            trial = running.pop(0)
            if step == "good":
                breaker.on_success(now, trial)
            elif step == "bad":
                breaker.on_failure(now, trial)
            else:
                breaker.on_neutral(trial)
        assert 0 <= breaker.trials <= cap
    for trial in running:
        breaker.on_neutral(trial)
    assert breaker.trials == 0
    assert breaker.admits(now + 1_000)
