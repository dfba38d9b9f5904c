"""A trace is found by name: what ships, or a file of the user's."""

from __future__ import annotations

import gzip
from itertools import pairwise
from pathlib import Path
from statistics import mean, pstdev

import pytest

from tidegate.config.traces import load_lengths, load_trace
from tidegate.core.errors import ConfigurationError
from tidegate.workload.laws.lengths import Lengths
from tidegate.workload.traces.rows import TraceRow


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
    """Its first bytes say which, whatever it is called."""
    content = b"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,1,2\n"
    (tmp_path / "plain.csv").write_bytes(content)
    (tmp_path / "small.csv.gz").write_bytes(gzip.compress(content))
    (tmp_path / "misnamed.csv").write_bytes(gzip.compress(content))
    (tmp_path / "unpacked.gz").write_bytes(content)
    # What `cat a.gz b.gz` makes is gzip too.
    (tmp_path / "joined.gz").write_bytes(gzip.compress(content[:45]) + gzip.compress(content[45:]))

    for name in ("plain.csv", "small.csv.gz", "misnamed.csv", "unpacked.gz", "joined.gz"):
        assert load_trace(str(tmp_path / name)) == [TraceRow(0.0, 1, 2)], name


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    """Missing, a folder, cut short, damaged, of another kind: refused, by name, with the remedy."""
    whole = gzip.compress(b"TIMESTAMP,ContextTokens,GeneratedTokens\n" * 99)
    (tmp_path / "folder").mkdir()
    for name, content in {
        "cut.gz": whole[:-12],
        "damaged.gz": whole[:20] + b"\xff" * 20 + whole[40:],
        "trace.zip": b"PK\x03\x04and more",
        "trace.parquet": b"PAR1and more",
        "excel.csv": "TIMESTAMP".encode("utf-16"),
        "latin.csv": b"TIMESTAMP,Pr\xe9nom",
        "pointer.jsonl": b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n",
        "nothing.csv": b"",
    }.items():
        (tmp_path / name).write_bytes(content)

    for name, said in {
        "missing.csv": "No such file or directory; give a file, or one of azure-conv, azure-code",
        "folder": "Is a directory; give a file, or one of azure-conv, azure-code",
        "cut.gz": "is cut short; fetch it again",
        "damaged.gz": "is damaged",
        "trace.zip": "is a ZIP archive: unpack it",
        "trace.parquet": "is a Parquet file: convert it to CSV",
        "excel.csv": "is UTF-16: save it as UTF-8",
        "latin.csv": "line 1: byte 12 is not UTF-8; save the file as UTF-8",
        "pointer.jsonl": "is a pointer of Git LFS",
        "nothing.csv": "is empty",
    }.items():
        with pytest.raises(ConfigurationError) as error:
            load_trace(str(tmp_path / name))
        assert name in str(error.value), name
        assert said in str(error.value), name


def test_a_list_of_lengths_is_no_trace(tmp_path: Path) -> None:
    """It has no times to replay; but lengths are read from it, as from any trace."""
    file = tmp_path / "lengths.csv"
    file.write_text("prompt_tokens,output_tokens\n74,918\n0,1\n")

    with pytest.raises(ConfigurationError, match="has lengths but no times; take arrivals from elsewhere"):
        load_trace(str(file))
    assert load_lengths(str(file)) == [Lengths(74, 918), Lengths(1, 1)]
    assert len(load_lengths("azure-code")) == 8_819
