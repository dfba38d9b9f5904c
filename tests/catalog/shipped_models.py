"""Which models ship? Writes `src/tidegate/data/models.jsonl` from the config.json objects of ../shared/data.

    python -m tests.catalog.shipped_models

Ten of the objects have names without an owner; they get those of the hub.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import msgspec

from tests.server_process import REPOSITORY
from tests.shared_data import FOLDER
from tidegate.catalog.huggingface import model_of
from tidegate.catalog.models import Model

CONFIGS = "model-configs/model_configs.jsonl.gz"
SHIPPED = REPOSITORY / "src/tidegate/data/models.jsonl"

ON_THE_HUB = {
    "codellama-34b-instruct-hf": "codellama/CodeLlama-34b-Instruct-hf",
    "deepseek-v2-lite": "deepseek-ai/DeepSeek-V2-Lite",
    "llama-2-7b-hf": "meta-llama/Llama-2-7b-hf",
    "llama-3.1-70b-instruct": "meta-llama/Llama-3.1-70B-Instruct",
    "llama-3.1-8b-instruct": "meta-llama/Llama-3.1-8B-Instruct",
    "llama-4-scout-17b-16e-instruct-fp8-dynamic": "RedHatAI/Llama-4-Scout-17B-16E-Instruct-FP8-dynamic",
    "mistral-nemo-instruct-2407": "mistralai/Mistral-Nemo-Instruct-2407",
    "qwen2.5-7b-instruct": "Qwen/Qwen2.5-7B-Instruct",
    "qwen3-14b": "Qwen/Qwen3-14B",
    "yi-34b": "01-ai/Yi-34B",
}
SOURCES = {
    "ai-dynamo/aiconfigurator": "aiconfigurator-core 0.12.0 (Apache-2.0), model_configs/",
    "casys-kaist/LLMServingSim": "casys-kaist/LLMServingSim (MIT), configs/model/",
    "inference-sim/inference-sim": "inference-sim/inference-sim (Apache-2.0), model_configs/",
}
DATED = "2026-11-30"
"""Day on which they were read."""


def configs(file: Path = FOLDER / CONFIGS) -> Iterator[tuple[str, str, dict[str, object]]]:
    """Name on the hub, source, and config.json of each."""
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            yield ON_THE_HUB.get(row["model"], row["model"]), SOURCES[row["source"]], row["config"]


def models() -> Iterator[Model]:
    """All of them, as they ship."""
    for name, source, config in configs():
        yield model_of(config, name, source=source, dated=DATED)


def text() -> bytes:
    """The shipped file: a model a line."""
    return b"".join(msgspec.json.encode(model) + b"\n" for model in models())


if __name__ == "__main__":
    SHIPPED.write_bytes(text())
