"""An emulated engine for all SDK tests, and a gateway before it for those that need no other."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.emulator_process import EmulatorProcess, running_emulator
from tests.gateway_process import GatewayProcess, running_gateway


@pytest.fixture(scope="package")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmulatorProcess]:
    """One emulated engine that all tests share, fast enough not to be waited for."""
    with running_emulator(tmp_path_factory.mktemp("engine"), "--speed", "8") as running:
        yield running


@pytest.fixture(scope="package")
def slow_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmulatorProcess]:
    """One whose answers, at some 60 ms per token, are still under way whenever a test cuts them."""
    with running_emulator(tmp_path_factory.mktemp("slow-engine"), "--speed", "0.25") as running:
        yield running


@pytest.fixture(scope="package")
def front(engine: EmulatorProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """A gateway that was told nothing but the engine's URL."""
    with running_gateway(tmp_path_factory.mktemp("front"), engine.url) as running:
        yield running
