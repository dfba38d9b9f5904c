"""Two ways to know an engine's step times, and what they make of a recorded run.

By tables: each operator as its profiler measured it, and one constant, the gap per layer that no operator was
measured for. The constant is a GPU's: it is what makes the mean TPOT of the *other* runs on that GPU right. A
GPU with no other run has none.

Calibrated: a line of four constants, fitted to the requests that came in the first half of the run, judged by
the others. Of these the fit knows when they were sent and how long they are, and nothing that was measured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import log
from statistics import fmean

import msgspec

from accuracy.engines import Engine, engine
from accuracy.replay import Times, by_line, on_a_replica, on_ranks
from accuracy.runs import Request, Run
from accuracy.scoring import Figures, figures, measured, tpot_s
from accuracy.series import Series, second_by_second
from accuracy.tables import LockStep, table_of
from tidegate.core.curve import Linear
from tidegate.core.records import percentile
from tidegate.perf.calibration import fit

SLOWER = 1.01
"""By which step times are multiplied to learn how much an error of 1 % would matter."""
LARGEST_GAP_S = 300e-6
BISECTIONS = 11
FREE = ("a_s", "b_s_per_sequence", "c_s_per_context_token", "d_s_per_prefill_token")


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One run, one way."""

    run: str
    model: str
    gpu: str
    experts: bool
    """A mixture of experts."""
    method: str
    fitted: dict[str, float]
    fitted_on: str
    requests: int
    """That were judged."""
    measured: Figures
    simulated: Figures
    errors: Figures
    """Relative."""
    ttft_per_percent: float
    """Relative change of the mean TTFT when every step takes 1 % longer."""
    series: Series | None = None


def by_tables(run: Run, runs: Sequence[Run]) -> Result:
    """With the operator tables; their constant is fitted on the others of `runs`."""
    others = [other for other in runs if other is not run and engine(other).gpu == engine(run).gpu]
    gap_s = _gap_s(others)
    result = _judged(
        run,
        "tables",
        lambda slower: _from_tables(run, gap_s, slower),
        run.requests,
        {"gap_s": gap_s} if others else {},
        ", ".join(other.name for other in others) or "nothing",
    )
    one = engine(run)
    return msgspec.structs.replace(result, series=second_by_second(run, one, table_of(one, gap_s)))


def calibrated(run: Run, fitted: dict[str, float] | None = None) -> Result:
    """With a line that was fitted to the run's first half. `fitted`: constants of an earlier fit."""
    ordered = sorted(run.requests, key=lambda request: (request.arrival_s, request.id))
    seen, judged = ordered[: len(ordered) // 2], ordered[len(ordered) // 2 :]
    one = engine(run)
    line = _fitted(one, seen, judged) if fitted is None else Linear(**fitted)
    return _judged(
        run,
        "calibrated",
        lambda slower: by_line(_slowed(one, slower), line, run.requests),
        judged,
        {name: getattr(line, name) for name in FREE},
        f"the {len(seen)} requests that came first",
    )


def _judged(
    run: Run,
    method: str,
    replay: Callable[[float], Times],
    judged: Sequence[Request],
    fitted: dict[str, float],
    fitted_on: str,
) -> Result:
    truth = figures(judged, measured(judged))
    simulated = figures(judged, replay(1.0))
    slower = figures(judged, replay(SLOWER))
    return Result(
        run=run.name,
        model=run.description.model,
        gpu=run.description.gpu,
        experts=engine(run).shape.num_experts > 0,
        method=method,
        fitted=fitted,
        fitted_on=fitted_on,
        requests=len(judged),
        measured=truth,
        simulated=simulated,
        errors=simulated.errors(truth),
        ttft_per_percent=slower.ttft_mean_s / simulated.ttft_mean_s - 1,
    )


def _slowed(one: Engine, slower: float) -> Engine:
    settings = msgspec.structs.replace(one.settings, speed=one.settings.speed / slower)
    return msgspec.structs.replace(one, settings=settings)


def _from_tables(run: Run, gap_s: float, slower: float = 1.0) -> Times:
    one = _slowed(engine(run), slower)
    if one.data_ranks == 1:
        return on_a_replica(one, table_of(one, gap_s), run.requests)
    return on_ranks(one, LockStep(one, gap_s), run.requests)


def _gap_s(others: Sequence[Run]) -> float:
    """With which the mean TPOT of these runs is right, by bisection; 0 where even none is too slow."""
    low, high = 0.0, LARGEST_GAP_S
    if not others or _too_slow(others, low) >= 0:
        return 0.0
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (low, middle) if _too_slow(others, middle) > 0 else (middle, high)
    return _rounded((low + high) / 2)


def _too_slow(others: Sequence[Run], gap_s: float) -> float:
    """Relative error of the mean TPOT, the mean over these runs."""
    errors = []
    for run in others:
        truth = figures(run.requests, measured(run.requests))
        errors.append(figures(run.requests, _from_tables(run, gap_s)).errors(truth).tpot_mean_s)
    return fmean(errors)


def _fitted(one: Engine, seen: Sequence[Request], unseen: Sequence[Request]) -> Linear:
    truth = measured(seen)
    # In a fit of the first half a TTFT of little queueing is mostly where in a step a request came, which no
    # constant explains; so its error counts as a part of the whole wait, not of itself.
    typical_s = fmean(truth[request.id][1] - request.arrival_s for request in seen)
    # What was measured of the others stays unknown: they are queued when they were sent.
    sent = [msgspec.structs.replace(request, queued_s=request.arrival_s) for request in unseen]
    requests = sorted([*seen, *sent], key=lambda request: (request.queued_s, request.id))

    def errors(line: Linear) -> list[float]:
        times = by_line(one, line, requests)
        tpots = [log(tpot_s(request, times) / tpot_s(request, truth)) for request in seen]
        ttfts = [(times[request.id][0] - truth[request.id][0]) / typical_s for request in seen]
        return [*tpots, *ttfts]

    found = fit(_guess(seen, truth), errors, free=FREE)
    return Linear(**{name: _rounded(getattr(found, name)) for name in FREE})


def _rounded(value: float) -> float:
    """As it is written down, so that what is written down is what was used."""
    return float(f"{value:.4g}")


def _guess(seen: Sequence[Request], truth: Times) -> Linear:
    """Where the search starts: half of a fast TPOT is in every step, the rest grows with the batch."""
    fast_s = percentile(sorted(tpot_s(request, truth) for request in seen), 0.05)
    first = seen[0]
    return Linear(
        a_s=fast_s / 2,
        b_s_per_sequence=fast_s / 500,
        c_s_per_context_token=fast_s / 500_000,
        d_s_per_prefill_token=(first.first_token_s - first.queued_s) / first.prompt_tokens / 2,
    )
