"""Timers: due in order, equal instants as they were set, the dead never seen and not kept."""

from __future__ import annotations

from math import inf

from hypothesis import given
from hypothesis import strategies as st

from tidegate.policy.timers import Timers


def test_due_items_come_in_order() -> None:
    """Earlier first, equal instants in the order of set, and nothing before its time."""
    timers: Timers[str] = Timers(lambda _: False)
    for when, item in [(2.0, "c"), (1.0, "a"), (1.0, "b"), (inf, "never")]:
        timers.set(when, item)

    assert timers.next_at() == 1.0
    assert timers.pop_due(0.999) is None
    assert [timers.pop_due(1.0), timers.pop_due(1.0), timers.pop_due(1.0)] == ["a", "b", None]
    assert timers.pop_due(5.0) == "c"
    assert timers.next_at() == inf
    assert len(timers) == 0


def test_the_dead_are_skipped() -> None:
    """Who has died wakes nobody."""
    dead = {"a"}
    timers: Timers[str] = Timers(dead.__contains__)
    timers.set(1.0, "a")
    timers.set(2.0, "b")

    assert timers.next_at() == 2.0
    assert timers.pop_due(9.0) == "b"


def test_a_hundred_thousand_short_lives_leave_nothing_behind() -> None:
    """Ten-minute deadlines of requests that ended long ago do not pile up."""
    dead: set[int] = set()
    timers: Timers[int] = Timers(dead.__contains__)
    most = 0
    for item in range(100_000):
        timers.set(600.0 + item, item)
        if item >= 100:
            dead.add(item - 100)
            timers.forget()
        most = max(most, len(timers))

    assert most < 1_000
    assert timers.next_at() == 600.0 + 99_900


@given(st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=800))
def test_compaction_loses_no_living_item(items: list[tuple[int, bool]]) -> None:
    """All who live come out, in order, whatever died in between."""
    dead: set[int] = set()
    timers: Timers[int] = Timers(dead.__contains__)
    for number, (when, dies) in enumerate(items):
        timers.set(float(when), number)
        if dies:
            dead.add(number)
            timers.forget()

    out = []
    while (item := timers.pop_due(10.0)) is not None:
        out.append(item)
    living = [n for n in range(len(items)) if n not in dead]
    assert out == sorted(living, key=lambda n: (items[n][0], n))


ACTS = st.one_of(
    st.tuples(st.just("set"), st.integers(0, 40)),
    st.tuples(st.just("die"), st.integers(0, 40)),
    st.tuples(st.just("pass"), st.integers(0, 12)),
)


@given(st.lists(ACTS, max_size=120))
def test_a_plain_list_says_the_same(acts: list[tuple[str, int]]) -> None:
    """Deadlines within a second and seconds off, set, given up and passed: as if all were looked through."""
    dead: set[int] = set()
    timers: Timers[int] = Timers(dead.__contains__)
    living: list[tuple[float, int]] = []
    now, sets = 0.0, 0
    for act, number in acts:
        if act == "set":
            timers.set(now + number / 4, sets)
            living.append((now + number / 4, sets))
            sets += 1
        elif act == "die" and living:
            dead.add(living.pop(number % len(living))[1])
            timers.forget()
        elif act == "pass":
            now += number / 4
            due = sorted(each for each in living if each[0] <= now)
            assert timers.any_due(now) or not due
            assert [timers.pop_due(now) for _ in range(len(due) + 1)] == [*(item for _, item in due), None]
            living = [each for each in living if each not in due]
        assert timers.next_at() == min((when for when, _ in living), default=inf)
        assert len(timers) >= len(living)
