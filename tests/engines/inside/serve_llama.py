"""How is llama.cpp's own HTTP server started from a Python wheel?

`xllamacpp` embeds the `llama-server` engine: this sets what a test may choose, and leaves the rest as
the engine ships it. Ends on SIGTERM, and with the process that started it. Runs inside an engine's
environment.
"""

from __future__ import annotations

import argparse
import os
import signal
import time
from typing import Any

import xllamacpp  # type: ignore[import-not-found]


def parameters(options: argparse.Namespace) -> Any:
    """The engine's settings. `kv_unified` stays off: on, a step costs slots times the whole context."""
    settings = xllamacpp.CommonParams()
    settings.model.path = options.model
    settings.model_alias = {options.alias}
    settings.hostnames = ["127.0.0.1"]
    settings.port = options.port
    settings.n_parallel = options.slots
    settings.n_ctx = options.slots * options.context
    settings.kv_unified = False
    # Two threads on a busy machine wait for each other at every barrier: 2,000 tokens/s become 10.
    settings.cpuparams.n_threads = 1
    settings.cpuparams_batch.n_threads = 1
    settings.n_gpu_layers = 0
    settings.cache_ram_mib = 0
    settings.use_jinja = True
    settings.ui = False
    settings.endpoint_metrics = True
    settings.endpoint_slots = True
    settings.endpoint_props = True
    if options.embedding:
        settings.embedding = True
        settings.pooling_type = xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_MEAN
    return settings


def main() -> None:
    """Serve until told to stop, or until nobody is left to tell."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--alias", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--slots", type=int, required=True)
    parser.add_argument("--context", type=int, required=True, help="tokens per slot")
    parser.add_argument("--embedding", action="store_true")
    options = parser.parse_args()

    stops: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: stops.append(number))
    parent = os.getppid()
    server = xllamacpp.Server(parameters(options))
    print("serving on", server.listening_address, flush=True)
    while not stops and os.getppid() == parent:
        time.sleep(0.1)
    os._exit(0)  # the server's threads have no way to be joined from here


if __name__ == "__main__":
    main()
