"""How do the records of a run leave for other tools? As one Parquet file, a row per request.

Needs pyarrow: `pip install 'tidegate[parquet]'`.
"""

from __future__ import annotations

from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

import numpy as np

from tidegate.core.errors import ConfigurationError
from tidegate.simulate.columns import ANSWERED, FIELDS, REASONS, TEXTS, Columns, Rows

ROWS_PER_GROUP = 131_072
"""Readers skip whole groups; a group of 10 MB is small beside any memory."""
EXTRA = "--parquet needs pyarrow; install it with: pip install 'tidegate[parquet]'"


class ParquetFile:
    """A file that grows run by run: `with` closes it, and only then is it one."""

    def __init__(self, path: Path) -> None:
        """Raises ConfigurationError if there is no pyarrow, or the path cannot be written."""
        self._arrow = _pyarrow()
        self._schema = _schema(self._arrow)
        try:
            self._writer = self._arrow.parquet.ParquetWriter(path, self._schema)
        except OSError as error:
            raise ConfigurationError([f"--parquet {path}: {error.strerror or error}"]) from None

    def __enter__(self) -> ParquetFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.close()

    def write(self, columns: Columns, *, point: int, seed: int) -> None:
        """Append a run. `point` is its place in the sweep, from 0."""
        rows = columns.rows()
        names = {field: columns.names(field) for field in TEXTS}
        for start in range(0, len(rows), ROWS_PER_GROUP):
            self._writer.write_table(self._table(rows[start : start + ROWS_PER_GROUP], names, point, seed))

    def _table(self, rows: Rows, names: dict[str, list[str]], point: int, seed: int) -> Any:
        pa = self._arrow
        columns: dict[str, Any] = {
            "point": np.full(len(rows), point, np.int32),
            "seed": np.full(len(rows), seed, np.int64),
        }
        for field in FIELDS:
            values = np.ascontiguousarray(rows[field])
            if field in TEXTS:
                columns[field] = pa.DictionaryArray.from_arrays(values.astype(np.int32), names[field])
            elif field == "reason":
                columns[field] = pa.DictionaryArray.from_arrays(
                    pa.array(values.astype(np.int32), mask=values == ANSWERED),
                    [str(each) for each in REASONS],
                )
            else:
                columns[field] = pa.array(values, from_pandas=True)  # nan becomes null
        return pa.table(columns, schema=self._schema)


def _schema(pa: ModuleType) -> Any:
    kinds = {"i8": pa.int64(), "f8": pa.float64(), "u4": pa.uint32(), "u2": pa.uint16(), "u1": pa.uint8()}
    text = pa.dictionary(pa.int32(), pa.string())
    fields = [(name, text if name in (*TEXTS, "reason") else kinds[kind]) for name, kind in FIELDS.items()]
    return pa.schema([("point", pa.int32()), ("seed", pa.int64()), *fields])


def _pyarrow() -> ModuleType:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise ConfigurationError([EXTRA]) from None
    module: ModuleType = pyarrow
    return module
