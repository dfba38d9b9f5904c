"""A trace is found by name: what ships, or a file of the user's."""

from __future__ import annotations

import gzip
from itertools import pairwise
from pathlib import Path
from statistics import mean, pstdev

import pytest

from tidegate.bench.traces import load_trace
from tidegate.core.errors import ConfigurationError
from tidegate.workload.traces import TraceRow


@pytest.mark.parametrize(
    "name, rows, span_s, variation, prompt_mean, output_mean",
    [
        ("azure-conv", 19_366, 3_501.7, 1.09, 1154.7, 211.1),
        ("azure-code", 8_819, 3_435.9, 13.15, 2047.8, 27.9),
    ],
)
def test_the_shipped_traces_are_the_published_ones(
    name: str, rows: int, span_s: float, variation: float, prompt_mean: float, output_mean: float
) -> None:
    """Rows, span, burstiness and lengths are those of the published files."""
    trace = load_trace(name)
    gaps = [later.arrived_s - earlier.arrived_s for earlier, later in pairwise(trace)]

    assert len(trace) == rows
    assert trace[-1].arrived_s == pytest.approx(span_s, abs=0.1)
    assert pstdev(gaps) / mean(gaps) == pytest.approx(variation, abs=0.01)
    assert mean(row.prompt_tokens for row in trace) == pytest.approx(prompt_mean, abs=0.1)
    assert mean(row.output_tokens for row in trace) == pytest.approx(output_mean, abs=0.1)


def test_a_file_is_read_gzipped_or_not(tmp_path: Path) -> None:
    """The ending of the name says which."""
    content = b"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,1,2\n"
    (tmp_path / "plain.csv").write_bytes(content)
    (tmp_path / "small.csv.gz").write_bytes(gzip.compress(content))

    for name in ("plain.csv", "small.csv.gz"):
        assert load_trace(str(tmp_path / name)) == [TraceRow(0.0, 1, 2)], name


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    """Missing, a folder, not gzip, cut short, damaged: refused, by name, with the traces that ship."""
    whole = gzip.compress(b"TIMESTAMP,ContextTokens,GeneratedTokens\n" * 99)
    (tmp_path / "folder").mkdir()
    (tmp_path / "text.gz").write_bytes(b"TIMESTAMP")
    (tmp_path / "cut.gz").write_bytes(whole[:-12])
    (tmp_path / "damaged.gz").write_bytes(whole[:20] + b"\xff" * 20 + whole[40:])

    for name in ("missing.csv", "folder", "text.gz", "cut.gz", "damaged.gz"):
        with pytest.raises(ConfigurationError, match=f"trace .*{name}: .*azure-conv, azure-code"):
            load_trace(str(tmp_path / name))
