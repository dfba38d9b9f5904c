"""Where is a trace, by the name that a user gives it?"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator, Sequence
from functools import lru_cache
from importlib.resources import as_file, files
from pathlib import Path

from tidegate.core.errors import ConfigurationError
from tidegate.workload.laws.lengths import Lengths, Pairs, trace_lengths
from tidegate.workload.traces.formats import Format, detect, read_rows
from tidegate.workload.traces.rows import TraceRow

SHIPPED = {
    "azure-conv": "AzureLLMInferenceTrace_conv.csv.gz",
    "azure-code": "AzureLLMInferenceTrace_code.csv.gz",
}

_GZIP = b"\x1f\x8b"
_FOREIGN = {
    b"PK\x03\x04": "a ZIP archive: unpack it",
    b"PAR1": "a Parquet file: convert it to CSV",
    b"\x28\xb5\x2f\xfd": "packed with zstd: unpack it",
    b"\xfd7zXZ": "packed with xz: unpack it",
    b"BZh": "packed with bzip2: unpack it",
    b"\xff\xfe": "UTF-16: save it as UTF-8",
    b"\xfe\xff": "UTF-16: save it as UTF-8",
    b"version https://git-lfs": "a pointer of Git LFS, not the file itself: fetch it with `git lfs pull`",
}
"""First bytes of what people hand over for a trace, and the remedy."""
_CHUNK_BYTES = 1 << 20


def open_lines(name: str) -> Iterator[bytes]:
    """Lines of a trace that ships with tidegate, or of a file, unzipped if its first bytes say that it is.

    Lazy, so that a trace may be larger than memory. Raises ConfigurationError, at the first line or once it
    is reached, for what is not there or no text.
    """
    if name in SHIPPED:
        with as_file(files("tidegate") / "data" / SHIPPED[name]) as path:
            yield from _lines(name, path)
    else:
        yield from _lines(name, Path(name))


def load_trace(name: str, form: Format | None = None) -> list[TraceRow]:
    """All rows of a trace. Raises ConfigurationError: not there, not sound, or without times."""
    found, lines = detect(open_lines(name), name) if form is None else (form, open_lines(name))
    if found is Format.PAIRS:
        raise ConfigurationError([f"{name}: has lengths but no times; take arrivals from elsewhere"])
    return list(read_rows(lines, name, found))


def load_lengths(name: str, form: Format | None = None) -> list[Lengths]:
    """The pairs of a trace, or of a list of lengths. Raises ConfigurationError as `load_trace` does."""
    return list(trace_lengths(read_rows(open_lines(name), name, form)))


# A sweep makes many workloads of the same files.


@lru_cache(maxsize=8)
def known_trace(name: str) -> Sequence[TraceRow]:
    """What `load_trace` makes of it, read once for all that replay it."""
    return load_trace(name)


@lru_cache(maxsize=8)
def known_pairs(name: str) -> Pairs:
    """What `load_lengths` makes of it, read once for all that draw from it."""
    return Pairs(load_lengths(name))


def _lines(name: str, path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as raw:
            head = raw.read(max(map(len, _FOREIGN)))
            for magic, what in _FOREIGN.items():
                if head.startswith(magic):
                    raise ConfigurationError([f"trace {name}: is {what}"])
            raw.seek(0)
            # Unpacked by what it is, not by what it is called: a download may have lost its ending.
            file = gzip.GzipFile(fileobj=raw) if head.startswith(_GZIP) else raw
            while lines := file.readlines(_CHUNK_BYTES):
                yield from lines
    except EOFError:
        raise ConfigurationError([f"trace {name}: is cut short; fetch it again"]) from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise ConfigurationError([f"trace {name}: is damaged ({error}); fetch it again"]) from None
    except OSError as error:
        known = ", ".join(SHIPPED)
        problem = f"{error.strerror or error}; give a file, or one of {known}"
        raise ConfigurationError([f"trace {name}: {problem}"]) from None
