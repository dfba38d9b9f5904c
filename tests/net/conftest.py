"""Sweeps come more often in these tests, so that short deadlines are noticed soon."""

from __future__ import annotations

import pytest

from tidegate.net import client, server


@pytest.fixture(autouse=True)
def _frequent_sweeps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "SWEEP_S", 0.02)
    monkeypatch.setattr(server, "SWEEP_S", 0.02)
