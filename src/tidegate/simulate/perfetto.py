"""How does a run look on a time axis? As a trace for ui.perfetto.dev or chrome://tracing.

Each replica is a process whose slices are its batches; queues and KV caches are counters. Written as it
comes, so that a long run needs no memory. Format: Google's "Trace Event Format", the object form of JSON;
times in microseconds.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from tidegate.core.errors import ConfigurationError
from tidegate.sim.samples import Sample

GATEWAY = "gateway"
_US = 1e6


class BatchTrace:
    """A file of slices and counters. Raises ConfigurationError if it cannot be written."""

    def __init__(self, path: Path) -> None:
        try:
            self._file = path.open("wb")
        except OSError as error:
            raise ConfigurationError([f"--perfetto {path}: {error.strerror}"]) from None
        self._file.write(b'{"displayTimeUnit":"ms","traceEvents":[\n')
        self._encode = msgspec.json.Encoder().encode
        self._first = True
        self._processes: dict[str, int] = {}

    def batch(
        self,
        replica: str,
        start_at: float,
        end_at: float,
        steps: int,
        decodes: int,
        prefill_tokens: int,
        waiting: int,
        kv_used_ratio: float,
    ) -> None:
        """A run of steps of the same batch."""
        parts = [f"{decodes} decode"] if decodes else []
        parts += [f"prefill {prefill_tokens}"] if prefill_tokens else []
        self._write(
            {
                "ph": "X",
                "name": " + ".join(parts) or "step",
                "pid": self._process(replica),
                "tid": 1,
                "ts": start_at * _US,
                "dur": (end_at - start_at) * _US,
                "args": {
                    "steps": steps,
                    "decodes": decodes,
                    "prefill_tokens": prefill_tokens,
                    "waiting": waiting,
                    "kv_used_ratio": kv_used_ratio,
                },
            }
        )

    def sample(self, sample: Sample) -> None:
        """How things stand."""
        for name, pool in sample.pools.items():
            self._counter(GATEWAY, f"queue of {name}", sample.at_s, requests=pool.queued)
        for name, replica in sample.replicas.items():
            self._counter(name, "waiting", sample.at_s, requests=replica.waiting)
            self._counter(name, "running", sample.at_s, requests=replica.running)
            self._counter(name, "KV in use", sample.at_s, ratio=replica.kv_used_ratio)

    def close(self) -> None:
        """End the file."""
        self._file.write(b"\n]}\n")
        self._file.close()

    def _counter(self, process: str, name: str, at_s: float, **values: float) -> None:
        self._write(
            {"ph": "C", "name": name, "pid": self._process(process), "ts": at_s * _US, "args": values}
        )

    def _process(self, name: str) -> int:
        number = self._processes.get(name)
        if number is None:
            number = self._processes[name] = len(self._processes) + 1
            for kind, value in (("process_name", name), ("thread_name", "batches")):
                self._write({"ph": "M", "name": kind, "pid": number, "tid": 1, "args": {"name": value}})
        return number

    def _write(self, event: dict[str, object]) -> None:
        self._file.write(self._encode(event) if self._first else b",\n" + self._encode(event))
        self._first = False
