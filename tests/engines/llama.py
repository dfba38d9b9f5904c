"""How does a test get a real llama.cpp server?

Installed once (10 to 30 s from nothing), started in a fraction of a second on a free port, with a random
model of a million parameters: its text is noise, but slots, queue, prompt cache, metrics and every trap
of its HTTP server are the real thing.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.engines.install import INSIDE, installed, make_venv, pip_install, run
from tests.server_process import free_port, started

ALIAS = "tiny-llama"
PINS = [
    "xllamacpp==2026.10.11549",
    "gguf==0.19.0",
    "numpy==2.3.5",
    "pyyaml==6.0.4",
    "tqdm==4.70.1",
    "tokenizers==0.23.3",
]
SCRIPTS = [INSIDE / "tiny_llama.py", INSIDE / "tiny_gguf.py"]


@dataclass(frozen=True, slots=True)
class Llama:
    """A running llama-server, and its own account of itself."""

    url: str
    alias: str
    slots: int
    context_tokens: int
    """Per slot: prompt and output together."""

    def busy_slots(self) -> int:
        """Slots that are working on a request now."""
        return sum(bool(slot["is_processing"]) for slot in self._get_json("/slots"))

    def metrics(self) -> dict[str, float]:
        """Its /metrics page, without the `llamacpp:` prefix."""
        with urllib.request.urlopen(self.url + "/metrics", timeout=30) as response:
            lines = response.read().decode().splitlines()
        series = (line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))
        return {name.removeprefix("llamacpp:"): float(value) for name, value in series}

    def _get_json(self, path: str) -> Any:
        with urllib.request.urlopen(self.url + path, timeout=30) as response:
            return json.load(response)


def install_llama() -> Path:
    """The folder with the engine's environment and `tiny.gguf`."""
    return installed("llama", [*PINS, *(script.read_text() for script in SCRIPTS)], _build)


def _build(folder: Path) -> None:
    python = make_venv(folder)
    pip_install(python, *PINS, timeout_s=600)
    run([python, SCRIPTS[0], folder / "tiny"], timeout_s=120)
    run([python, SCRIPTS[1], folder / "tiny", folder / "tiny.gguf"], timeout_s=120)


@contextmanager
def llama_server(
    log_folder: Path, slots: int = 4, context_tokens: int = 2048, embedding: bool = False
) -> Iterator[Llama]:
    """A llama-server with `slots` seats of `context_tokens` each; `embedding` opens /v1/embeddings too."""
    folder = install_llama()
    port = free_port()
    command: list[str | Path] = [folder / "bin" / "python", INSIDE / "serve_llama.py"]
    command += ["--model", folder / "tiny.gguf", "--alias", ALIAS, "--port", str(port)]
    command += ["--slots", str(slots), "--context", str(context_tokens)]
    if embedding:
        command.append("--embedding")
    # An idle OpenMP thread must sleep, not spin: the gateway under test needs that core.
    env = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
    with started("llama-server", command, log_folder / f"llama-{port}.log", env) as server:
        url = f"http://127.0.0.1:{port}"
        server.wait_ready(url + "/health", timeout_s=60)
        yield Llama(url, ALIAS, slots, context_tokens)
        exit_code = server.stop(grace_s=10)
        assert exit_code == 0, server.log()[-4000:]
