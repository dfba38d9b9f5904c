"""How does a test start a server, know that it is ready, and end it?

One way for the gateway, the emulator and the real engines: a child process on a free loopback port,
its output in a file, ready when a URL answers 200, ended by its own process group's id.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
POLL_S = 0.05


@dataclass(slots=True)
class ServerProcess:
    """A child that serves HTTP, and what it has written so far."""

    name: str
    popen: subprocess.Popen[bytes]
    log_path: Path

    @property
    def pid(self) -> int:
        """Process id; also the id of its process group."""
        return self.popen.pid

    def log(self) -> str:
        """Everything it wrote to stdout and stderr."""
        return self.log_path.read_text(errors="replace")

    def wait_ready(self, url: str, timeout_s: float) -> None:
        """Return once `url` answers 200; AssertionError with the log's end if it dies or takes too long."""
        give_up_at = time.monotonic() + timeout_s
        while not answers_200(url):
            exit_code = self.popen.poll()
            assert exit_code is None, (
                f"{self.name} ended with {exit_code} before it was ready:\n{self._tail()}"
            )
            assert time.monotonic() < give_up_at, f"{self.name} not ready in {timeout_s} s:\n{self._tail()}"
            time.sleep(POLL_S)

    def stop(self, grace_s: float) -> int:
        """Ask it to end, insist after `grace_s`, and return its exit code (negative: the signal)."""
        if self.popen.poll() is None:
            self.popen.terminate()
        try:
            return self.popen.wait(grace_s)
        except subprocess.TimeoutExpired:
            self.kill()
            return self.popen.wait()

    def kill(self) -> None:
        """End whatever is left of its process group, at once."""
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            return

    def _tail(self) -> str:
        return self.log()[-4000:]


@contextmanager
def started(
    name: str, command: Sequence[str | Path], log_path: Path, env: Mapping[str, str] | None = None
) -> Iterator[ServerProcess]:
    """Start `command`; nothing of it outlives the block, however the block ends."""
    with log_path.open("wb") as log:
        popen = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(env or {})},
            cwd=REPOSITORY,
            start_new_session=True,
        )
    server = ServerProcess(name, popen, log_path)
    try:
        yield server
    finally:
        server.kill()
        popen.wait()


def answers_200(url: str) -> bool:
    """True if `url` answers 200 now; any other answer, or none, is False."""
    try:
        with urllib.request.urlopen(url, timeout=5) as response:
            return bool(response.status == 200)
    except urllib.error.HTTPError as answer:
        answer.close()
        return False
    except OSError:
        return False


def free_port() -> int:
    """A loopback port that nobody listens on at this moment."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
