"""How does a test run a demo as its users do, and read what it prints?"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tests.server_process import REPOSITORY

ENDS_WITHIN_S = 60.0


@contextmanager
def demo(*options: str) -> Iterator[subprocess.Popen[str]]:
    """`tidegate demo` with its output in a pipe; nothing of it outlives the block."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tidegate", "demo", *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "COLUMNS": "100"},
        cwd=REPOSITORY,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def ended(process: subprocess.Popen[str]) -> str:
    """The rest of its output, once it has ended by itself."""
    out, _ = process.communicate(timeout=ENDS_WITHIN_S)
    return out
