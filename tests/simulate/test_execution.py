"""Do processes end when they should, and is it said when one is lost?"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from multiprocessing import active_children

import pytest

from tests.simulate.settings import settings
from tidegate.core.errors import ConfigurationError
from tidegate.simulate.execution import Done, Failure, Task, here, in_processes
from tidegate.simulate.run import RunResult


def tasks(seconds: list[float]) -> list[Task]:
    """A run of each length."""
    return [(number, settings(load={"for_s": each})) for number, each in enumerate(seconds)]


@pytest.fixture
def started() -> Iterator[Generator[Done, None, None]]:
    """Two processes: one has done a short run, both are on runs that take minutes."""
    found = in_processes(tasks([1.0, 1e6, 1e6]), jobs=2)
    number, result = next(found)
    assert number == 0
    assert isinstance(result, RunResult)
    yield found
    found.close()


def test_what_is_closed_ends(started: Generator[Done, None, None]) -> None:
    """Ctrl-C leaves no process behind, and does not wait for runs to end."""
    assert active_children()
    started.close()

    assert active_children() == []


def test_a_lost_process(started: Generator[Done, None, None]) -> None:
    """Whoever is ended by the system, for want of memory, is told of with a remedy."""
    for process in active_children():
        process.kill()

    with pytest.raises(ConfigurationError, match="try with fewer --jobs"):
        next(started)


def test_what_cannot_be_is_a_value() -> None:
    """A run that cannot be spoils no other."""
    bad = settings(load={"trace": "nowhere.csv", "rate_per_s": None})
    (first, failure), (second, result) = here([(0, bad), (1, settings(load={"for_s": 1.0}))])

    assert (first, second) == (0, 1)
    assert isinstance(failure, Failure)
    assert "nowhere.csv" in failure.problems[0]
    assert isinstance(result, RunResult)
