"""Agenda: acts in order of their instants, and of being put down."""

from __future__ import annotations

from math import inf

from tidegate.sim.agenda import Agenda


def test_acts_happen_in_order() -> None:
    """Equal instants keep the order in which they were put down; never is never."""
    agenda, seen = Agenda(), list[tuple[float, str]]()
    for when, what in [(2.0, "c"), (1.0, "a"), (inf, "never"), (2.0, "d"), (1.0, "b")]:
        agenda.at(when, lambda now, said: seen.append((now, said)), what)

    agenda.run()

    assert seen == [(1.0, "a"), (1.0, "b"), (2.0, "c"), (2.0, "d")]
    assert (agenda.now, agenda.events) == (2.0, 4)


def test_nothing_happens_after_the_end() -> None:
    """What an act puts down after it has stopped the agenda does not happen either."""
    agenda, seen = Agenda(), list[float]()

    def stop(now: float, again: bool) -> None:
        seen.append(now)
        agenda.stop()
        agenda.at(now, stop, again)

    agenda.at(1.0, stop, True)
    agenda.at(2.0, stop, True)
    agenda.run()

    assert seen == [1.0]
