"""`python -m benchmarks`: rounds of short bursts, and the table."""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.targets import KEY, LOAD_CORE, Target, targets

WRK_LUA = """
wrk.method = "POST"
wrk.headers["content-type"] = "application/json"
wrk.headers["authorization"] = "Bearer {key}"
wrk.body = '{{"model":"mock","messages":[{{"role":"system","content":"You are a helpful assistant."}},' ..
  '{{"role":"user","content":"{text}"}}],"max_tokens":100,"temperature":0.7,"top_p":0.95,"stream":false}}'
"""


def on_load_core() -> None:
    os.sched_setaffinity(0, {LOAD_CORE})


def burst_of_requests(target: Target, script: Path, seconds: int) -> tuple[int, int]:
    """Requests answered, and how many of them were not 2xx or broke."""
    printed = subprocess.run(
        [
            "wrk",
            "-t1",
            "-c64",
            f"-d{seconds}s",
            "-s",
            script,
            f"http://127.0.0.1:{target.port}/v1/chat/completions",
        ],
        capture_output=True,
        text=True,
        check=True,
        preexec_fn=on_load_core,
    ).stdout
    counted = re.search(r"(\d+) requests in", printed)
    assert counted, printed
    bad = sum(int(number) for number in re.findall(r"Non-2xx or 3xx responses: (\d+)", printed))
    for line in re.findall(r"Socket errors: (.*)", printed):
        bad += sum(int(number) for number in re.findall(r"\d+", line))
    return int(counted[1]), bad


def burst_of_streams(target: Target, streams: int) -> dict[str, object]:
    printed = subprocess.run(
        [sys.executable, "-m", "benchmarks.streams", str(target.port), str(streams), KEY],
        capture_output=True,
        text=True,
        check=True,
        preexec_fn=on_load_core,
    ).stdout
    result: dict[str, object] = json.loads(printed)
    return result


def measure(
    up: list[Target], script: Path, rounds: int, seconds: int, streams: int
) -> dict[str, dict[str, list[float]]]:
    """Microseconds of CPU per request and per chunk, and bad answers, for each target and round."""
    figures: dict[str, dict[str, list[float]]] = {
        target.name: {"request": [], "chunk": [], "bad": []} for target in up
    }
    for _ in range(rounds):
        for target in random.sample(up, len(up)):
            before = target.cpu_s()
            count, bad = burst_of_requests(target, script, seconds)
            figures[target.name]["request"].append((target.cpu_s() - before) / count * 1e6)
            figures[target.name]["bad"].append(bad)
        for target in random.sample(up, len(up)):
            before = target.cpu_s()
            result = burst_of_streams(target, streams)
            assert isinstance(result["chunks"], int)
            figures[target.name]["chunk"].append((target.cpu_s() - before) / result["chunks"] * 1e6)
            outcomes = result["outcomes"]
            assert isinstance(outcomes, dict)
            figures[target.name]["bad"].append(streams - outcomes.get("ok", 0))
    return figures


def ratio(values: list[float], floor: list[float]) -> str:
    """Median and quartiles of the ratios inside each round."""
    ratios = [value / base for value, base in zip(values, floor, strict=True)]
    if len(ratios) < 2:
        return f"{ratios[0]:.2f}"
    low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return f"{middle:.2f} [{low:.2f}-{high:.2f}]"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=int, default=1, help="of each burst of requests")
    parser.add_argument("--streams", type=int, default=400, help="in each burst of streams")
    parser.add_argument(
        "--crowd", type=int, default=1000, help="streams that start at once, for the last table"
    )
    parser.add_argument("--compiled", type=Path, help="where a compiled tidegate is installed")
    parser.add_argument("--json", type=Path, help="also write the figures there")
    args = parser.parse_args()
    console = Console(width=110)  # so that no figure is cut where there is no terminal
    with tempfile.TemporaryDirectory() as folder, targets(Path(folder), args.compiled) as up:
        script = Path(folder) / "post.lua"
        script.write_text(WRK_LUA.format(key=KEY, text="the quick brown fox jumps over the lazy dog " * 16))
        for target in up:  # warm-up: connections, learned figures, code paths
            burst_of_requests(target, script, 1)
        figures = measure(up, script, args.rounds, args.seconds, args.streams)
        crowds = {target.name: burst_of_streams(target, args.crowd) for target in up}
        memory = {target.name: target.rss_mb() for target in up}

    table = Table(title=f"CPU, {args.rounds} paired rounds")
    for heading in (
        "",
        "us/request",
        "x nginx [quartiles]",
        "us/chunk",
        "x nginx [quartiles]",
        "bad",
        "RSS MB",
    ):
        table.add_column(heading, justify="right" if heading else "left")
    floor = figures["nginx"]
    for name, each in figures.items():
        table.add_row(
            name,
            f"{statistics.median(each['request']):.1f}",
            ratio(each["request"], floor["request"]),
            f"{statistics.median(each['chunk']):.1f}",
            ratio(each["chunk"], floor["chunk"]),
            str(int(sum(each["bad"]))),
            f"{memory[name]:.0f}",
        )
    console.print(table)
    crowd = Table(title=f"{args.crowd} streams that start at once")
    for heading in ("", "outcomes", "TTFT P50 ms", "TTFT max ms"):
        crowd.add_column(heading)
    for name, result in crowds.items():
        times = [result["ttft_p50_s"], result["ttft_max_s"]]
        crowd.add_row(name, str(result["outcomes"]), *(f"{float(str(t)) * 1e3:.0f}" for t in times))
    console.print(crowd)
    if args.json:
        args.json.write_text(json.dumps({"cpu_us": figures, "crowd": crowds, "rss_mb": memory}, indent=2))


if __name__ == "__main__":
    main()
