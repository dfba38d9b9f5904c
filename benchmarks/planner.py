"""`python -m benchmarks.planner`: what does a plan cost in CPU time, and is that within what was promised?

Everything is in CPU seconds of the process, so that other guests of the machine count little: the median of
some rounds, and the least, which a quiet machine would come near. A command's first output, and its verdict,
are what it has used by then, from the scheduler's own counter.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
from rich.console import Console
from rich.table import Table

from tidegate.catalog.catalog import Catalog
from tidegate.core.records import Budgets
from tidegate.perf.deployment import Deployment
from tidegate.plan.ask import Ask, HandFigures, Kind, Load, Terms
from tidegate.plan.bounds import gates_of
from tidegate.plan.deployed import deployed
from tidegate.plan.laws.batching import Batch
from tidegate.plan.laws.population import Arrivals
from tidegate.plan.laws.steady import steady
from tidegate.plan.search.candidates import Space
from tidegate.plan.search.cheapest import KINDS, search
from tidegate.plan.served import lengths_of
from tidegate.plan.sizing import size_of

LOAD = Load(kinds=(Kind(prompt_tokens=2000, output_tokens=500),), requests_per_s=8.0)
TERMS = Terms(budgets=Budgets(ttft_s=1.0, tpot_s=0.04), per_hour_usd=2.95)
COMMAND = ("--qps", "8", "--input", "2000", "--output", "500", "--ttft", "1s", "--tpot", "40ms")
HAND = ("--throughput", "2000", "--output", "500", "--tpot", "20ms", "--qps", "10")


class Cost(NamedTuple):
    """CPU seconds of each round, and what they should be at most; None: nothing was promised."""

    name: str
    seconds: list[float]
    most_s: float | None


def main() -> None:
    """Measure all, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="of each measurement (default 5)")
    rounds = parser.parse_args().rounds
    table = Table(title="CPU time")
    table.add_column("what")
    for heading in ("median", "least", "promised", ""):
        table.add_column(heading, justify="right")
    for cost in costs(rounds):
        median, least = statistics.median(cost.seconds), min(cost.seconds)
        told = "" if cost.most_s is None else "held" if median <= cost.most_s else "missed"
        promised = "-" if cost.most_s is None else _told(cost.most_s)
        table.add_row(cost.name, _told(median), _told(least), promised, told)
    Console().print(table)


def costs(rounds: int) -> Iterator[Cost]:
    """One after the other."""
    yield from _points(rounds)
    yield from _searches(rounds)
    whole = ("--model", "Llama-3.1-70B", *COMMAND)
    for name, options, lines, most_s in (
        ("first output, by hand", HAND, 1, 1.0),
        ("first output, by hardware", (*whole, "--gpu", "h100-sxm", "--tp", "4"), 1, 1.0),
        ("first output, whole catalogue", whole, 1, 1.0),
        ("verdict, whole catalogue", whole, 2, None),
    ):
        yield Cost(name, [_until(options, lines) for _ in range(rounds)], most_s)


def _points(rounds: int) -> Iterator[Cost]:
    """Of one replica."""
    catalog = Catalog.shipped()
    model, accelerator = catalog.model("Llama-3.1-70B"), catalog.accelerator("h100-sxm")
    deployment = Deployment(model=model, accelerator=accelerator, tp=4, weights="fp8")
    replica = deployed(deployment)
    ask, arrivals = Ask(load=LOAD, replica=replica, terms=TERMS), Arrivals(rate_per_s=8.0, replicas=3)
    hand = Ask(load=LOAD, replica=HandFigures(tokens_per_s=2000, tpot_s=0.02))

    def gates() -> object:
        batch = Batch(replica.engine, lengths_of(LOAD))
        return batch.saturated(gates_of(batch, TERMS).least)

    def latencies() -> object:
        return steady(Batch(replica.engine, lengths_of(LOAD)), arrivals)

    steady(Batch(replica.engine, lengths_of(LOAD)), arrivals)  # imports what it needs
    for name, call, most_s in (
        ("step times of a deployment", lambda: deployed(deployment), 1e-3),
        ("gates and sustained rate", gates, 1e-3),
        ("fleet by hand figures", lambda: size_of(hand), 1e-3),
        ("all latency laws at one rate", latencies, 1e-3),
        ("fleet within budgets", lambda: size_of(ask), None),
    ):
        yield Cost(name, [_repeated(call, 20) for _ in range(rounds)], most_s)


def _searches(rounds: int) -> Iterator[Cost]:
    """Of every accelerator and shape in the catalogue."""
    catalog = Catalog.shipped()
    for name, kinds in (("aggregated", KINDS[:1]), ("and disaggregated", KINDS)):
        for model in ("Llama-3.1-8B", "Llama-3.1-70B", "DeepSeek-V3"):
            space = Space(model=catalog.model(model), accelerators=tuple(catalog.accelerators.values()))
            seconds = [_repeated(lambda: search(space, _ask_for, kinds=kinds), 1) for _ in range(rounds)]  # noqa: B023
            yield Cost(f"whole catalogue, {model}, {name}", seconds, 2.0)


def _ask_for(deployment: Deployment) -> Ask:
    price = deployment.accelerator.price
    terms = msgspec.structs.replace(TERMS, per_hour_usd=price.per_hour_usd if price else None)
    return Ask(load=LOAD, replica=deployed(deployment), terms=terms)


def _repeated(call: Callable[[], object], times: int) -> float:
    begun = time.process_time()
    for _ in range(times):
        call()
    return (time.process_time() - begun) / times


def _until(options: tuple[str, ...], lines: int) -> float:
    """CPU seconds that the command has used when so many lines are there."""
    command = [sys.executable, "-m", "tidegate", "plan", *options]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment
    ) as process:
        assert process.stdout is not None
        for _ in range(lines):
            process.stdout.readline()
        tasks = Path(f"/proc/{process.pid}/task").glob("*/schedstat")
        nanoseconds = sum(int(task.read_text().split()[0]) for task in tasks)
        process.stdout.read()
    return nanoseconds / 1e9


def _told(seconds: float) -> str:
    return f"{1e3 * seconds:.2f} ms" if seconds < 0.1 else f"{seconds:.2f} s"


if __name__ == "__main__":
    main()
