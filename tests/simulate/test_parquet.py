"""Is the Parquet file what the records were?"""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow.parquet
import pytest

from tests.simulate.records import record, refused
from tests.simulate.test_columns import columns_of
from tidegate.core.errors import ConfigurationError
from tidegate.simulate import parquet
from tidegate.simulate.parquet import ParquetFile


def test_a_row_per_request(tmp_path: Path) -> None:
    """Texts are texts, and what was never reached is null."""
    path = tmp_path / "runs.parquet"
    with ParquetFile(path) as file:
        file.write(columns_of([refused(2.0, number=2), record(1.0, number=1)]), point=0, seed=7)
        file.write(columns_of([record(1.0, number=1, tenant="lab", replica="b")]), point=3, seed=8)

    rows = pyarrow.parquet.read_table(path).to_pylist()
    assert [(row["point"], row["seed"], row["request_id"]) for row in rows] == [
        (0, 7, 1),
        (0, 7, 2),
        (3, 8, 1),
    ]
    assert [(row["tenant"], row["replica"], row["reason"]) for row in rows] == [
        ("acme", "a", None),
        ("acme", "", "queue_timeout"),
        ("lab", "b", None),
    ]
    assert [row["first_token_at"] for row in rows] == [1.5, None, 1.5]
    assert [row["status"] for row in rows] == [200, 503, 200]


def test_it_is_written_in_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader of a few columns or of some rows need not read the rest."""
    monkeypatch.setattr(parquet, "ROWS_PER_GROUP", 10)
    path = tmp_path / "runs.parquet"
    with ParquetFile(path) as file:
        file.write(columns_of([record(float(at), number=at) for at in range(25)]), point=0, seed=1)

    metadata = pyarrow.parquet.read_metadata(path)
    assert (metadata.num_row_groups, metadata.num_rows) == (3, 25)


def test_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message says which extra brings it."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)

    with pytest.raises(ConfigurationError) as caught:
        ParquetFile(tmp_path / "runs.parquet")
    assert caught.value.problems == [
        "--parquet needs pyarrow; install it with: pip install 'tidegate[parquet]'"
    ]


def test_where_nothing_can_be_written(tmp_path: Path) -> None:
    """A path that cannot be is the caller's mistake, named before a run is made."""
    with pytest.raises(ConfigurationError, match=r"^--parquet .*none/runs.parquet: "):
        ParquetFile(tmp_path / "none" / "runs.parquet")
