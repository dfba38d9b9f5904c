"""From an engine to a profile file, and from the file to what plans, simulates and emulates that engine."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import msgspec
import pytest
import typer
from typer.testing import CliRunner

from tests.calibrate.sglang import SglangEngine
from tests.calibrate.test_files import arrivals, records_in, served, written
from tests.calibrate.virtual import TRUE, VirtualEngine
from tests.emulator.inside import served as emulated
from tests.raw_http import post
from tidegate.calibrate.commands import calibrate
from tidegate.calibrate.experiment import Cell
from tidegate.calibrate.streams import points_of
from tidegate.config.profiles import profile_by, read_profile
from tidegate.emulator.replica_server import Options
from tidegate.planning.commands import plan_app
from tidegate.simulate.commands import simulate

app = typer.Typer()
app.command("calibrate")(calibrate)
app.command("simulate")(simulate)
app.add_typer(plan_app, name="plan")
GIVEN = ("--max-num-seqs", "24", "--kv-tokens", "65536", "--context-tokens", "8192")
LOAD = ("--input", "300", "--output", "100", "--qps", "2", "--ttft", "1s", "--tpot", "50ms")


def answered(*options: str | Path) -> dict[str, object]:
    """What a command says as JSON."""
    result = CliRunner().invoke(app, [*map(str, options), "--json"])
    assert result.exit_code == 0, result.output
    found: dict[str, object] = json.loads(result.stdout)
    return found


def measured_in(folder: Path, source: str) -> tuple[str, Path]:
    """Where the same traffic on the same engine is written down, by its clients or by itself."""
    if source == "--records":
        return source, records_in(folder / "records.jsonl", served()[0])
    pages = served()[1]
    if source == "sglang":
        pages = SglangEngine().serve(arrivals(400, 1.5), scrape_every_s=1.0)[1]
    lines = [msgspec.json.encode({"at_s": at, "page": page}) for at, page in pages]
    return "--scrapes", written(folder / "scrapes.jsonl", lines)


def step_s(engine: VirtualEngine, cell: Cell) -> float:
    """Of the first steps that a whole batch takes."""
    return points_of(cell, asyncio.run(engine.send(cell)), TRUE.replica.max_batched_tokens)[0].step_s


@pytest.mark.parametrize("source", ["--records", "vllm", "sglang"])
def test_its_profile_is_that_engine_to_all(tmp_path: Path, source: str) -> None:
    """Plan and simulate answer by it, and what emulates it takes as long for a step, within 10 %."""
    out = tmp_path / "mine.yaml"
    answered("calibrate", *measured_in(tmp_path, source), *GIVEN, "--out", out)
    (tmp_path / "fleet.yaml").write_text('pools: {m: {replicas: [{url: "http://a:1"}]}}')

    planned = answered("plan", "--profile", out, *LOAD)
    assert planned["replicas"]
    simulated = answered("simulate", tmp_path / "fleet.yaml", "--profile", out, "--for", "5s")
    assert simulated
    with emulated(profile_by(str(out)), Options(model="m")) as inside:
        asked = {"model": "m", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4}
        answer = json.loads(post(inside.chat, asked).body)
        settings = inside.replica(lambda replica: replica.settings)
    assert answer["usage"]["completion_tokens"] == 4
    assert (settings.max_num_seqs, settings.kv_tokens, settings.context_tokens) == (24, 65_536, 8192)
    for cell in (
        Cell(sequences=1, prompt_tokens=200, output_tokens=40, steps=30),
        Cell(sequences=8, prompt_tokens=1000, output_tokens=80, steps=30),
    ):
        found, true = step_s(VirtualEngine(read_profile(out)), cell), step_s(VirtualEngine(), cell)
        assert found == pytest.approx(true, rel=0.1), cell.name
