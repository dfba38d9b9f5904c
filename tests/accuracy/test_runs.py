"""A run of one's own is judged like those that are kept here."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path

import pytest

from accuracy.__main__ import DOCS, main
from accuracy.engines import engine
from accuracy.interconnect import ALL_REDUCE
from accuracy.runs import RUNS, read_rows, read_runs
from accuracy.tables import shard_measured, table_of
from tidegate.core.errors import ConfigurationError
from tidegate.perf.operators import table


def a_folder(path: Path, requests: int, **changes: object) -> Path:
    """The first requests of a known run under another name, with changes to its description."""
    described = json.loads((RUNS / "runs.json").read_bytes())[1]
    known = described["run"]
    described |= {"run": "mine", **changes}
    (path / "runs.json").write_text(json.dumps([described]))
    for name, copy in [
        (f"{known}.requests.csv.gz", "mine.requests.csv.gz"),
        (described["workload"], described["workload"]),
    ]:
        rows = list(read_rows(RUNS / name))[:requests]
        with gzip.open(path / copy, "wt", newline="") as file:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows(rows)
    return path


def test_a_folder_of_runs_is_judged_both_ways_and_the_page_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The exit status says whether it keeps the bars: 24 requests that hardly queue do not."""
    before = (DOCS / "accuracy.md").read_text()
    monkeypatch.setattr("sys.argv", ["accuracy", "--runs", str(a_folder(tmp_path, 24))])
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr("accuracy.methods.BISECTIONS", 1)
    monkeypatch.setattr("tidegate.perf.calibration.STEPS", (0.2,))

    status = main()

    printed = capsys.readouterr().out
    assert printed.count("mine") >= 2
    assert status == (1 if "missed" in printed else 0)
    assert (DOCS / "accuracy.md").read_text() == before


def test_tensor_parallel_ranks_pay_for_their_reductions(tmp_path: Path) -> None:
    """Two a layer and one for the embedding, of the tokens of the step; the tables are of one shard."""
    arguments = json.loads((RUNS / "runs.json").read_bytes())[1]["engine_kwargs"]
    model = "Qwen/Qwen3-32B"
    folder = a_folder(tmp_path, 3, model=model, engine_kwargs={**arguments, "tensor_parallel_size": 2})
    two = engine(read_runs(folder)[0])

    assert two.shape.num_layers == 64
    assert two.shape.kv_bytes_per_token(2) == 2 * 2 * 64 * 4 * 128
    shard = table(shard_measured("RTXPRO6000", model, 2), layers=64)
    longer_s = table_of(two, 0.0).step_s(64, 64 * 1000) - shard.step_s(64, 64 * 1000)
    assert longer_s == pytest.approx((2 * 64 + 1) * ALL_REDUCE(64 * 5120 * 2), rel=0.01)


def test_a_gpu_without_tables_is_named(tmp_path: Path) -> None:
    """And so is the run."""
    run = read_runs(a_folder(tmp_path, 3, gpu="NVIDIA H100"))[0]

    with pytest.raises(ConfigurationError, match="run mine: no operator tables are known for NVIDIA H100"):
        engine(run)


def test_blocks_of_another_size_are_refused(tmp_path: Path) -> None:
    """Prefixes are recorded, and memory is computed, in blocks of 16 tokens."""
    run = read_runs(a_folder(tmp_path, 3, kv_cache={"num_gpu_blocks": 100, "block_size": 32}))[0]

    with pytest.raises(ConfigurationError, match="run mine: blocks of 32 tokens; only 16 are"):
        engine(run)
