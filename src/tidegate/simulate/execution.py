"""Where do runs happen: here, in processes on all cores, or on a Ray cluster?

Each way takes numbered runs and yields their results as they come. Closing the generator, as Ctrl-C does,
ends what still runs.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import active_children, get_context
from types import ModuleType
from typing import Any

import msgspec

from tidegate.core.errors import ConfigurationError
from tidegate.simulate.run import RunResult, RunSettings, run

EXTRA = "--ray needs ray; install it with: pip install 'tidegate[ray]'"


class Failure(msgspec.Struct, frozen=True):
    """A run that cannot be."""

    problems: tuple[str, ...]


Task = tuple[int, RunSettings]
"""A run and the number of its point."""
Done = tuple[int, RunResult | Failure]


def here(
    tasks: Sequence[Task], on_time: Callable[[float], None] | None = None
) -> Generator[Done, None, None]:
    """One after the other, in this process, until one is interrupted."""
    for number, settings in tasks:
        result = attempt(settings, on_time)
        yield number, result
        if isinstance(result, RunResult) and result.counts is None:
            return


def in_processes(tasks: Sequence[Task], jobs: int) -> Generator[Done, None, None]:
    """`jobs` at a time, each in a process of its own."""
    executor = ProcessPoolExecutor(
        min(jobs, len(tasks)),
        mp_context=get_context("spawn"),  # a fork would copy whatever threads hold
        initializer=signal.signal,
        initargs=(signal.SIGINT, signal.SIG_IGN),  # Ctrl-C is ours to answer
    )
    try:
        numbers = {executor.submit(attempt, settings): number for number, settings in tasks}
        for future in as_completed(numbers):
            yield numbers.pop(future), future.result()
    except BrokenProcessPool:
        raise ConfigurationError(
            ["a process was ended from outside, for want of memory perhaps; try with fewer --jobs"]
        ) from None
    except BaseException:
        for process in active_children():
            process.terminate()
        raise
    finally:
        executor.shutdown(cancel_futures=True)


def on_ray(tasks: Sequence[Task], address: str) -> Generator[Done, None, None]:
    """On the cluster at `address`: `auto`, `local` (one that is started for it here), or host:port.

    Its nodes need tidegate installed.
    """
    ray = _ray()
    try:
        ray.init(address=address, log_to_driver=False, logging_level="error")
    except (ConnectionError, ValueError) as error:
        first_line = (str(error).splitlines() or [type(error).__name__])[0]
        raise ConfigurationError([f"--ray {address}: {first_line}"]) from None
    try:
        remote: Any = ray.remote(attempt)
        numbers = {remote.remote(settings): number for number, settings in tasks}
        while numbers:
            (ready,), _ = ray.wait(list(numbers), num_returns=1)
            yield numbers.pop(ready), ray.get(ready)
    finally:
        ray.shutdown()


def attempt(settings: RunSettings, on_time: Callable[[float], None] | None = None) -> RunResult | Failure:
    """Run, and say what cannot be as a value, which crosses between processes."""
    try:
        return run(settings, on_time)
    except ConfigurationError as error:
        return Failure(tuple(error.problems))


def _ray() -> ModuleType:
    try:
        import ray
    except ImportError:
        raise ConfigurationError([EXTRA]) from None
    module: ModuleType = ray
    return module
