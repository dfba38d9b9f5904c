"""`python -m benchmarks.simulator`: what does a simulated request cost, and does it stay the same?

Each measurement is a process of its own on one core. In each round every case runs once, in random order;
ratios are taken inside the round. The cost in customers of the `yardstick`, which is laid on just before and
just after each run, depends less on the machine of the day.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

import msgspec
from rich.console import Console
from rich.table import Table

from benchmarks import yardstick
from tidegate.policy.settings import (
    ClassSettings,
    Deadlines,
    GovernorSettings,
    LimitSettings,
    PoolSettings,
    QueueSettings,
    TenantSettings,
)
from tidegate.sim.profiles import Profile, named
from tidegate.sim.run import simulate
from tidegate.sim.scenario import ReplicaScenario, Scenario
from tidegate.simulate.columns import Columns
from tidegate.workload.requests import OpenLoop, PlannedRequest, replayed
from tidegate.workload.traces.mooncake import read_mooncake

LOAD = 0.8
TRACE = Path(__file__).parents[2] / "shared" / "data" / "mooncake-fast25" / "conversation_trace.jsonl.gz"


class Case(NamedTuple):
    """A fleet at 0.8 of what it can do, and how many requests it is given."""

    replicas: int = 8
    prompt: int = 512
    output: int = 200
    tenants: int = 10
    requests: int = 60_000
    burst: bool = False
    """All come within the first seconds, and wait."""


CASES = {
    "base": Case(),
    "1 replica": Case(replicas=1, requests=20_000),
    "64 replicas": Case(replicas=64, requests=80_000),
    "256 replicas": Case(replicas=256, requests=200_000),
    "1,000 tenants": Case(tenants=1_000),
    "10,000 tenants": Case(tenants=10_000),
    "100 output tokens": Case(output=100),
    "1,000 output tokens": Case(output=1_000),
    "4,000 output tokens": Case(output=4_000, requests=30_000),
    "10,000 come at once": Case(burst=True, requests=10_000),
    "100,000 come at once": Case(burst=True, requests=100_000),
}
BASES = {"100,000 come at once": "10,000 come at once"}
"""What a case is compared with; else with `base`."""
MILLION = Case(requests=1_000_000)


def profile(*, prefix_cache: bool = False) -> Profile:
    """An 8 B model on an H100 whose cache never binds."""
    known = named("h100-8b")
    kv_tokens = known.replica.kv_tokens if prefix_cache else 2**30
    bounds = msgspec.structs.replace(known.replica, kv_tokens=kv_tokens, prefix_cache=prefix_cache)
    return Profile(curve=known.curve, replica=bounds)


def capacity_per_s(engine: Profile, prompt: int, output: int) -> float:
    """What a replica with a full batch completes: each request takes a prefill and its share of each step."""
    batch = engine.replica.max_num_seqs
    prefill_s = engine.curve.step_s(0, 0, [(prompt, 0)]) - engine.curve.step_s(0, 0)
    decode_s = engine.curve.step_s(batch, batch * (prompt + output / 2)) / batch
    return 1 / (prefill_s + (output - 1) * decode_s)


def requests_of(case: Case, rate_per_s: float) -> Iterator[PlannedRequest]:
    """Poisson arrivals of equal requests, tenant after tenant."""
    rng, at_s = Random(1), 0.0
    for index in range(case.requests):
        at_s += rng.expovariate(rate_per_s)
        yield PlannedRequest(
            at_s=at_s,
            tenant=f"tenant {index % case.tenants}",
            prompt_tokens=case.prompt,
            output_tokens=case.output,
        )


def scenario_of(replicas: int, tenants: int, engine: Profile) -> Scenario:
    """A whole governor: limits in two scopes that do not bind, a queue without end, deadlines, probes."""
    limits = LimitSettings(tokens_per_minute=1e15, requests_per_minute=1e15)
    pool = PoolSettings(
        queue=QueueSettings(max_requests=10**6, max_tokens=1e15, max_bytes=2**50),
        deadlines=Deadlines(ttft_s=1e6, total_s=1e6),
    )
    return Scenario(
        governor=GovernorSettings(
            pools={"pool": pool},
            classes={name: ClassSettings(max_wait_s=1e6) for name in ("high", "normal", "low")},
            tenants={f"tenant {index}": TenantSettings(limits=limits) for index in range(tenants)},
            limits=limits,
        ),
        pools={"pool": tuple(ReplicaScenario(name=f"r{n}", profile=engine) for n in range(replicas))},
        callers={f"tenant {index}": ("high", "normal", "low")[index % 3] for index in range(tenants)},
    )


def measure(case: Case) -> dict[str, float]:
    """CPU per request, in microseconds and in customers of the yardstick; the peak of memory in MB."""
    engine = profile()
    rate_per_s = LOAD * case.replicas * capacity_per_s(engine, case.prompt, case.output)
    if case.burst:
        rate_per_s *= 1_000
    scenario, columns = scenario_of(case.replicas, case.tenants, engine), Columns()
    customer_us = yardstick.measure_us()
    start = time.process_time()
    outcome = simulate(scenario, OpenLoop(requests_of(case, rate_per_s)), 1, on_record=columns.add)
    cpu_s = time.process_time() - start
    assert outcome.counts.finished == case.requests == len(columns)
    customer_us = (customer_us + yardstick.measure_us()) / 2
    return {
        "cpu_us": cpu_s / case.requests * 1e6,
        "customer_us": customer_us,
        "customers": cpu_s / case.requests * 1e6 / customer_us,
        "events": outcome.events / case.requests,
        "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def measure_prefixes() -> dict[str, float]:
    """The Mooncake conversations over eight replicas whose caches are full: CPU per block of 512 tokens."""
    with gzip.open(TRACE, "rt") as lines:
        requests = list(replayed(read_mooncake(lines), Random(1)))
    blocks = sum(len(request.prefix) for request in requests)
    columns = Columns()
    start = time.process_time()
    simulate(scenario_of(8, 1, profile(prefix_cache=True)), OpenLoop(requests), 1, on_record=columns.add)
    cpu_s = time.process_time() - start
    return {"cpu_us": cpu_s / len(requests) * 1e6, "block_us": cpu_s / blocks * 1e6, "blocks": blocks}


def in_a_process(name: str) -> dict[str, float]:
    printed = subprocess.run(
        [sys.executable, "-m", "benchmarks.simulator", "--one", name],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    figures: dict[str, float] = json.loads(printed)
    return figures


def one(name: str) -> dict[str, float]:
    if name == "mooncake":
        return measure_prefixes()
    return measure(MILLION if name == "a million" else CASES[name])


def show(rounds: list[dict[str, dict[str, float]]], console: Console) -> None:
    table = Table(title=f"CPU per simulated request, {len(rounds)} rounds")
    for heading in ("", "us", "a second", "customers", "x its base [least-most]", "RSS MB"):
        table.add_column(heading, justify="right" if heading else "left")
    for name in CASES:
        base = BASES.get(name, "base")
        cpu_us = statistics.median(each[name]["cpu_us"] for each in rounds)
        ratios = [each[name]["cpu_us"] / each[base]["cpu_us"] for each in rounds]
        table.add_row(
            name,
            f"{cpu_us:.0f}",
            f"{1e6 / cpu_us:,.0f}",
            f"{statistics.median(each[name]['customers'] for each in rounds):.0f}",
            f"{statistics.median(ratios):.2f} [{min(ratios):.2f}-{max(ratios):.2f}]",
            f"{max(each[name]['rss_mb'] for each in rounds):.0f}",
        )
    console.print(table)
    customer_us = statistics.median(each[name]["customer_us"] for each in rounds for name in CASES)
    console.print(f"a customer of the yardstick: {customer_us:.2f} us, {1e6 / customer_us:,.0f} a CPU-second")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.simulator", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--one", help="measure this case only, here, and print its figures as JSON")
    parser.add_argument("--json", type=Path, help="also write the figures there")
    args = parser.parse_args()
    if args.one:
        print(json.dumps(one(args.one)))
        return
    console = Console(width=110)
    rounds = []
    for _ in range(args.rounds):
        names = random.sample(list(CASES), len(CASES))
        rounds.append({name: in_a_process(name) for name in names})
    show(rounds, console)
    million = in_a_process("a million")
    console.print(f"a million requests: {million['cpu_us']:.0f} us each, {million['rss_mb']:.0f} MB at most")
    figures: dict[str, object] = {"rounds": rounds, "million": million}
    if TRACE.exists():
        figures["mooncake"] = mooncake = in_a_process("mooncake")
        console.print(
            f"Mooncake's conversations, prefix cache on: {mooncake['cpu_us']:.0f} us a request, "
            f"{mooncake['block_us']:.1f} us a block of 512 tokens"
        )
    if args.json:
        args.json.write_text(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
