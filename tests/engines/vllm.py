"""How does a test get a real vLLM, on a machine without a GPU?

The CPU build with a dummy-weight Llama of a million parameters: the scheduler, paged KV cache, prefix cache,
preemption, priorities, metrics and HTTP server are vLLM's own. It takes minutes and 2 GB to install
and about a minute to start, so one session shares one instance, and only `make test-engines` asks.
"""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.engines.install import INSIDE, installed, make_venv, pip_install, run
from tests.server_process import free_port, started

MODEL = "tiny-llama"
VERSION = "0.32.0+cpu"
LOCK = Path(__file__).parent / "vllm-lock.txt"
SEATS = 4
CONTEXT_TOKENS = 2048
BLOCK_TOKENS = 32  # what the CPU build's attention needs: a multiple of 32
KV_BLOCKS = 128

OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
}
ON_LOOPBACK = {"VLLM_HOST_IP": "127.0.0.1", "VLLM_LOOPBACK_IP": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo"}
ON_ONE_CPU = {
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "passive",
    "TORCHDYNAMO_DISABLE": "1",
}


@dataclass(frozen=True, slots=True)
class Vllm:
    """A running vLLM, and its own account of itself."""

    url: str
    model: str
    seats: int
    context_tokens: int

    def metric(self, name: str) -> float:
        """The sum over all series of one `vllm:` metric."""
        with urllib.request.urlopen(self.url + "/metrics", timeout=30) as response:
            page = response.read().decode()
        values = re.findall(rf"^vllm:{re.escape(name)}(?:\{{.*\}})? (\S+)$", page, re.MULTILINE)
        assert values, f"vLLM exports no {name}"
        return sum(float(value) for value in values)

    def running(self) -> int:
        """Requests that hold a seat in the batch now."""
        return int(self.metric("num_requests_running"))


def install_vllm() -> Path:
    """The folder with the engine's environment and the model in `tiny`."""
    return installed("vllm", [LOCK.read_text(), (INSIDE / "tiny_llama.py").read_text()], _build)


def _build(folder: Path) -> None:
    python = make_venv(folder)
    pip_install(python, "--no-compile", "-r", LOCK, timeout_s=1800)
    _name_it_vllm(folder)
    run([python, INSIDE / "tiny_llama.py", folder / "tiny"], timeout_s=120)


def _name_it_vllm(folder: Path) -> None:
    """vLLM looks itself up as the package `vllm`, and takes "cpu" in that version as its backend."""
    (packages,) = folder.glob("lib/python*/site-packages")
    metadata = packages / f"vllm-{VERSION}.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {VERSION}\n")


@contextmanager
def vllm_server(log_folder: Path) -> Iterator[Vllm]:
    """One vLLM with `SEATS` seats, prefix cache and priorities on."""
    folder = install_vllm()
    port = free_port()
    command: list[str | Path] = [folder / "bin" / "vllm", "serve", folder / "tiny"]
    command += ["--served-model-name", MODEL, "--host", "127.0.0.1", "--port", str(port)]
    command += ["--load-format", "dummy", "--dtype", "float32", "--enforce-eager"]
    command += ["--max-model-len", str(CONTEXT_TOKENS), "--max-num-seqs", str(SEATS)]
    command += ["--block-size", str(BLOCK_TOKENS), "--num-gpu-blocks-override", str(KV_BLOCKS)]
    command += [
        "--enable-prefix-caching",
        "--enable-prompt-tokens-details",
        "--scheduling-policy",
        "priority",
    ]
    command += ["--disable-uvicorn-access-log"]
    env = OFFLINE | ON_LOOPBACK | ON_ONE_CPU
    with started("vLLM", command, log_folder / f"vllm-{port}.log", env) as server:
        url = f"http://127.0.0.1:{port}"
        server.wait_ready(url + "/health", timeout_s=400)
        yield Vllm(url, MODEL, SEATS, CONTEXT_TOKENS)
        server.stop(grace_s=30)
