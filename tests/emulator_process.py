"""How does a test run the emulator as its users do?"""

from __future__ import annotations

import json
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.server_process import ServerProcess, free_port, started

READY_WITHIN_S = 30.0
STOPS_WITHIN_S = 10.0


@dataclass(frozen=True, slots=True)
class EmulatorProcess:
    """A running `tidegate emulate`."""

    url: str
    model: str
    server: ServerProcess


@contextmanager
def running_emulator(folder: Path, *options: str) -> Iterator[EmulatorProcess]:
    """Emulate one engine with `options` of the command line; its log is kept in `folder`."""
    port = free_port()
    command: list[str | Path] = [sys.executable, "-m", "tidegate", "emulate", "--port", str(port), *options]
    with started("tidegate emulate", command, folder / f"emulator-{port}.log") as server:
        url = f"http://127.0.0.1:{port}"
        server.wait_ready(url + "/health", READY_WITHIN_S)
        with urllib.request.urlopen(url + "/v1/models", timeout=10) as response:
            model: str = json.load(response)["data"][0]["id"]
        yield EmulatorProcess(url, model, server)
        exit_code = server.stop(STOPS_WITHIN_S)
        assert exit_code == 0, f"exit code {exit_code} after SIGTERM:\n{server.log()[-4000:]}"
        assert "Traceback" not in server.log(), server.log()[-4000:]
