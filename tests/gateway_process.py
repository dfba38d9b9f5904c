"""How does a test run the gateway as its users do: a process, sockets, signals, a log?

`gateway(url, ...)` and `gateway(config={...})` start `tidegate serve` on free loopback ports and return
once it is ready. At the end each must stop on SIGTERM with exit code 0 and no traceback in its log.
"""

from __future__ import annotations

import json
import re
import sys
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.server_process import ServerProcess, free_port, started

READY_WITHIN_S = 30.0
STOPS_WITHIN_S = 30.0


@dataclass(frozen=True, slots=True)
class GatewayProcess:
    """A running `tidegate serve`."""

    base_url: str
    """Where clients go; SDKs add `/v1` for OpenAI and nothing for Anthropic."""
    admin_url: str
    server: ServerProcess

    def status(self) -> dict[str, Any]:
        """What the admin API says is in flight, queued, and how the pools are."""
        with urllib.request.urlopen(self.admin_url + "/status", timeout=10) as response:
            found: dict[str, Any] = json.load(response)
        return found

    def metrics(self) -> str:
        """Its own /metrics page."""
        with urllib.request.urlopen(self.admin_url + "/metrics", timeout=10) as response:
            page: str = response.read().decode()
        return page

    def sample(self, name: str) -> float:
        """One series of that page summed over its labels; 0 when it has none yet."""
        values = re.findall(rf"^{re.escape(name)}(?:\{{.*\}})? (\S+)$", self.metrics(), re.MULTILINE)
        return sum(float(value) for value in values)


@contextmanager
def running_gateway(
    folder: Path, *urls: str, config: Mapping[str, Any] | None = None
) -> Iterator[GatewayProcess]:
    """Serve in front of `urls`, or as `config` says; its configuration and log are kept in `folder`."""
    port, admin_port = free_port(), free_port()
    command: list[str | Path] = [sys.executable, "-m", "tidegate", "serve", *urls]
    command += ["--listen", f"127.0.0.1:{port}", "--admin", f"127.0.0.1:{admin_port}"]
    if config is not None:
        path = folder / f"gateway-{port}.yaml"
        path.write_text(yaml.safe_dump(dict(config)))
        command += ["--config", path]
    with started("tidegate serve", command, folder / f"gateway-{port}.log") as server:
        running = GatewayProcess(f"http://127.0.0.1:{port}", f"http://127.0.0.1:{admin_port}", server)
        server.wait_ready(running.admin_url + "/readyz", READY_WITHIN_S)
        yield running
        exit_code = server.stop(STOPS_WITHIN_S)
        assert exit_code == 0, f"exit code {exit_code} after SIGTERM:\n{server.log()[-4000:]}"
        assert "Traceback" not in server.log(), server.log()[-4000:]


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Callable[..., GatewayProcess]]:
    """`gateway(*urls, config=None)`: start one or more; all are stopped and judged when the test ends."""
    with ExitStack() as stack:

        def start(*urls: str, config: Mapping[str, Any] | None = None) -> GatewayProcess:
            return stack.enter_context(running_gateway(tmp_path, *urls, config=config))

        yield start
