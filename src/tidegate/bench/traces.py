"""Where is a trace, by the name that a user gives it?"""

from __future__ import annotations

import gzip
import zlib
from importlib.resources import files
from io import BytesIO
from pathlib import Path
from typing import IO

from tidegate.core.errors import ConfigurationError
from tidegate.workload.traces import TraceRow, read_trace

SHIPPED = {
    "azure-conv": "AzureLLMInferenceTrace_conv.csv.gz",
    "azure-code": "AzureLLMInferenceTrace_code.csv.gz",
}


def open_trace(name: str) -> IO[bytes]:
    """The text of a trace that ships with tidegate, or of a file, unzipped. Raises ConfigurationError."""
    path = files("tidegate") / "data" / SHIPPED[name] if name in SHIPPED else Path(name)
    try:
        content = path.read_bytes()
        return BytesIO(gzip.decompress(content) if path.name.endswith(".gz") else content)
    except (OSError, EOFError, zlib.error) as error:  # not there, a folder, not gzip, cut short
        known = ", ".join(SHIPPED)
        raise ConfigurationError([f"trace {name}: {error}; give a CSV file, or one of {known}"]) from None


def load_trace(name: str) -> list[TraceRow]:
    """All rows of a trace. Raises ConfigurationError for one that is not there or not sound."""
    with open_trace(name) as trace:
        return list(read_trace(trace, name))
