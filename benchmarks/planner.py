"""`python -m benchmarks.planner`: what does a plan cost in CPU time, and is that within what was promised?

Everything is in CPU seconds of the process, so that other guests of the machine count little: the median of
some rounds, and the least, which a quiet machine would come near. Each call has a load of its own, so that
nothing is remembered from the one before. A command's first output, and its verdict, are what it has used by
then, from the scheduler's own counter. Exit status 1 where a median is above what was promised.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import NamedTuple

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
from tidegate.plan.served import lengths_of
from tidegate.plan.sizing import size_of
from tidegate.planning.options import Options
from tidegate.planning.searching import searched_for

POINT_S, SEARCH_S, FIRST_S = 1e-3, 2.0, 1.0
"""What was promised: a closed-form point, a search of the whole catalogue, a command's first output."""
TERMS = Terms(budgets=Budgets(ttft_s=1.0, tpot_s=0.04), per_hour_usd=2.95)
BUDGETS = {"ttft": "1s", "tpot": "40ms"}
SHOWN = ("--input", "2000", "--output", "500", "--ttft", "1s", "--tpot", "40ms")
WHOLE = ("plan", "--model", "Llama-3.1-70B", *SHOWN)
NODE = ("--gpu", "h100-sxm", "--tp", "4", "--quant", "fp8")
CALLS = 20
"""Of a point in a round."""


class Cost(NamedTuple):
    """CPU seconds of each round, and what they should be at most; None: nothing was promised."""

    name: str
    seconds: list[float]
    most_s: float | None

    @property
    def missed(self) -> bool:
        """Whether the median is above."""
        return self.most_s is not None and statistics.median(self.seconds) > self.most_s


def main() -> None:
    """Measure all, print the table, and exit with 1 where a promise is broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="of each measurement (default 5)")
    rounds = parser.parse_args().rounds
    table = Table(title="CPU time")
    table.add_column("what")
    for heading in ("median", "least", "promised", ""):
        table.add_column(heading, justify="right")
    missed = 0
    for cost in costs(rounds):
        missed += cost.missed
        told = "" if cost.most_s is None else "missed" if cost.missed else "held"
        promised = "-" if cost.most_s is None else _told(cost.most_s)
        median, least = statistics.median(cost.seconds), min(cost.seconds)
        table.add_row(cost.name, _told(median), _told(least), promised, told)
    Console().print(table)
    sys.exit(1 if missed else 0)


def costs(rounds: int) -> Iterator[Cost]:
    """One after the other."""
    yield from _points(rounds)
    yield from _searches(rounds)
    yield from _commands(rounds)


def _loads() -> Iterator[Load]:
    """Never the same twice: prompts and answers differ, and every other load varies in its lengths."""
    for number in count():
        cv = 0.5 + number % 97 / 97 if number % 2 else 0.0
        kind = Kind(
            prompt_tokens=1500 + 7 * number % 1000,
            output_tokens=400 + number % 200,
            prompt_cv=cv,
            output_cv=cv,
        )
        yield Load(kinds=(kind,), requests_per_s=6 + number % 31 / 10)


def _points(rounds: int) -> Iterator[Cost]:
    """Of one replica."""
    catalog, loads = Catalog.shipped(), _loads()
    model, accelerator = catalog.model("Llama-3.1-70B"), catalog.accelerator("h100-sxm")
    deployment = Deployment(model=model, accelerator=accelerator, tp=4, weights="fp8")
    replica = deployed(deployment)

    def gates() -> object:
        batch = Batch(replica.engine, lengths_of(next(loads)))
        return batch.saturated(gates_of(batch, TERMS).least)

    def hand() -> object:
        load = next(loads)
        return size_of(Ask(load=load, replica=HandFigures(tokens_per_s=2000, tpot_s=0.02)))

    def latencies(replicas: int = 3) -> object:
        load = next(loads)
        assert load.requests_per_s is not None
        arrivals = Arrivals(rate_per_s=load.requests_per_s * replicas / 3, replicas=replicas)
        return steady(Batch(replica.engine, lengths_of(load)), arrivals)

    known = Batch(replica.engine, lengths_of(next(loads)))
    rates = (5 + number % 400 / 100 for number in count())
    latencies()  # imports what it needs
    for name, call, most_s in (
        ("step times of a deployment", lambda: deployed(deployment), POINT_S),
        ("gates and sustained rate of a load", gates, POINT_S),
        ("fleet by hand figures", hand, POINT_S),
        (
            "all latency laws at one more rate of a load",
            lambda: steady(known, Arrivals(rate_per_s=next(rates), replicas=3)),
            POINT_S,
        ),
        ("all latency laws of a new load, 3 replicas", latencies, POINT_S),
        ("all latency laws of a new load, 300 replicas", lambda: latencies(300), POINT_S),
        (
            "fleet within budgets (several points)",
            lambda: size_of(Ask(load=next(loads), replica=replica, terms=TERMS)),
            None,
        ),
    ):
        yield Cost(name, [_cpu_s(call, CALLS) for _ in range(rounds)], most_s)


def _searches(rounds: int) -> Iterator[Cost]:
    """Of every accelerator and shape in the catalogue, both kinds, reading what is asked for included."""
    chat = {"input": "2000", "output": "500"}
    for name, model, asked, varied in (
        ("a rate", "Llama-3.1-8B", chat | BUDGETS, "qps"),
        ("a rate", "Llama-3.1-70B", chat | BUDGETS, "qps"),
        ("a rate", "DeepSeek-V3", chat | {"ttft": "2s", "tpot": "60ms"}, "qps"),
        ("azure-conv", "Llama-3.1-70B", {"trace": "azure-conv", "tpot": "40ms"}, "ttft"),
        ("azure-code", "Llama-3.1-8B", {"trace": "azure-code", "tpot": "40ms"}, "ttft"),
        ("users who think", "Llama-3.1-70B", chat | BUDGETS | {"think": "10s"}, "users"),
        ("users who never think", "Llama-3.1-70B", chat | BUDGETS, "users"),
        ("only --e2e", "Llama-3.1-70B", chat | {"e2e": "20s"}, "qps"),
        ("4 replicas", "Llama-3.1-70B", chat | {"replicas": "4", "tpot": "40ms"}, "ttft"),
    ):
        seconds = []
        for number in range(rounds):
            options = Options(model=model, **asked | {varied: _varied(varied, number)})  # type: ignore[arg-type]
            seconds.append(_cpu_s(lambda: searched_for(options, json=True), 1))  # noqa: B023
        yield Cost(f"search, {model}, {name}", seconds, SEARCH_S)


def _varied(option: str, number: int) -> str:
    """In each round another."""
    values = {"qps": f"{8 + 3 * number}", "users": f"{300 + 170 * number}", "ttft": f"{1000 + 50 * number}ms"}
    return values[option]


def _commands(rounds: int) -> Iterator[Cost]:
    """What is printed first, by each of the ways in."""
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / name for name in ("a.yaml", "b.yaml")]
        for path, qps in zip(files, ("8", "12"), strict=True):
            _run([*WHOLE, *NODE, "--qps", qps, "--emit", str(path)])
        measured = ("--profile", "h100-8b")
        for name, command, most_s in (
            (
                "by hand",
                ["plan", "--throughput", "2000", "--output", "500", "--tpot", "20ms", "--qps", "10"],
                FIRST_S,
            ),
            ("by hardware", [*WHOLE, *NODE, "--qps", "8"], FIRST_S),
            ("by measurement", ["plan", *measured, *SHOWN, "--qps", "8"], FIRST_S),
            ("by what there is", [*WHOLE, *NODE, "--replicas", "3"], FIRST_S),
            ("users", [*WHOLE, *NODE, "--users", "100", "--think", "10s"], FIRST_S),
            ("whole catalogue", [*WHOLE, "--qps", "8"], FIRST_S),
            ("compare", ["plan", "compare", *map(str, files)], FIRST_S),
            ("catalog show", ["catalog", "show", "Llama-3.1-70B"], FIRST_S),
        ):
            seconds = [_until(command, 1) for _ in range(rounds)]
            yield Cost(f"first output, {name}", seconds, most_s)
        yield Cost(
            "verdict, whole catalogue", [_until([*WHOLE, "--qps", "8"], 2) for _ in range(rounds)], None
        )


def _cpu_s(call: Callable[[], object], times: int) -> float:
    begun = time.process_time()
    for _ in range(times):
        call()
    return (time.process_time() - begun) / times


def _run(arguments: list[str]) -> None:
    subprocess.run([sys.executable, "-m", "tidegate", *arguments], check=True, capture_output=True)


def _until(arguments: list[str], lines: int) -> float:
    """CPU seconds that the command has used when so many lines are there."""
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "tidegate", *arguments]
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
