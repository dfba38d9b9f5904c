"""Does `tidegate emulate` serve, say where, and end when it is told to?"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.raw_http import post
from tests.server_process import REPOSITORY, free_port, started

EMULATE = [sys.executable, "-m", "tidegate", "emulate"]


def test_several_replicas(tmp_path: Path) -> None:
    """Each on its own port after the first; the name, the speed and the faults are as asked for."""
    port = two_free_ports()
    urls = [f"http://127.0.0.1:{port}", f"http://127.0.0.1:{port + 1}"]
    options = ["--replicas", "2", "--model", "m", "--profile", "h100-8b", "--speed", "50", "--faults"]
    with started("emulate", [*EMULATE, "--port", str(port), *options], tmp_path / "log") as server:
        for url in urls:
            server.wait_ready(url + "/health", 30)
            body = {"model": "m", "prompt": "Hi", "max_tokens": 3, "ignore_eos": True}
            assert post(url + "/v1/completions", body).json()["usage"]["completion_tokens"] == 3
        assert post(urls[1] + "/emulator/fault", {"kind": "slow"}).status == 200
        assert server.log().split() == urls
        assert server.stop(20) == 0


def test_a_profile_of_a_file(tmp_path: Path) -> None:
    """It is served; in how far its bounds go beyond what was measured is said on stderr."""
    profile, port = tmp_path / "mine.yaml", free_port()
    profile.write_text(
        "curve: {type: linear, a_s: 0.001}\n"
        "replica: {max_num_seqs: 8, max_batched_tokens: 512, kv_tokens: 4096, context_tokens: 777}\n"
        "measured: {source: me, points: 9, sequences: {least: 1, most: 2}, "
        "context_tokens: {least: 10, most: 9000}, prompt_tokens: {least: 10, most: 800}}\n"
    )
    command = [*EMULATE, "--port", str(port), "--profile", str(profile)]
    with started("emulate", command, tmp_path / "log") as server:
        server.wait_ready(f"http://127.0.0.1:{port}/health", 30)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=20) as response:
            assert json.load(response)["data"][0]["max_model_len"] == 777
        assert "mine.yaml: extrapolated up to 8 sequences (measured: 1 to 2)\n" in server.log()
        assert server.stop(20) == 0


def test_an_interrupt_ends_it(tmp_path: Path) -> None:
    """With exit code 0, as after SIGTERM."""
    port = free_port()
    with started("emulate", [*EMULATE, "--port", str(port)], tmp_path / "log") as server:
        server.wait_ready(f"http://127.0.0.1:{port}/health", 30)
        os.kill(server.pid, signal.SIGINT)
        assert server.popen.wait(20) == 0
        assert "Traceback" not in server.log()


@pytest.mark.parametrize(
    "wrong",
    [
        ["--profile", "h200"],
        ["--speed", "0"],
        ["--host", "203.0.113.1"],
        ["--port", "70000"],
        ["--port", "65535", "--replicas", "2"],
    ],
)
def test_what_cannot_be_served(wrong: list[str]) -> None:
    """A wrong option or address is said in a line, not in a traceback."""
    done = subprocess.run([*EMULATE, *wrong], capture_output=True, text=True, cwd=REPOSITORY, timeout=60)

    assert done.returncode != 0
    assert done.stderr
    assert "Traceback" not in done.stderr


def two_free_ports() -> int:
    """The first of two neighbours that nobody has, below the range that connections get theirs from."""
    for port in range(12_000 + 2 * (os.getpid() % 4000), 30_000, 2):
        with socket.socket() as first, socket.socket() as second:
            try:
                first.bind(("127.0.0.1", port))
                second.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            return port
    raise AssertionError("no two free ports")
