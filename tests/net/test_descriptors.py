"""As many open files as the system allows, whatever it says of them."""

from __future__ import annotations

import resource
import sys

import pytest

from tidegate.net.descriptors import OPEN_MAX, descriptor_limit, raise_descriptor_limit

ENDLESS = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    "soft, hard, granted, expected",
    [
        (256, 4_096, 4_096, 4_096),
        (4_096, 4_096, 4_096, 4_096),
        (256, ENDLESS, OPEN_MAX, OPEN_MAX),  # macOS: no bound is named, and none is taken by its word
        (20_000, ENDLESS, 20_000, 20_000),
        (256, ENDLESS, 100, 256),  # refuses everything
        (ENDLESS, ENDLESS, 0, sys.maxsize),
    ],
)
def test_all_that_is_allowed_is_taken(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, granted: int, expected: int
) -> None:
    """The hard limit, or what is granted of one that is endless; never less than there was."""
    now = [soft, hard]

    def setrlimit(which: int, wanted: tuple[int, int]) -> None:
        if wanted[0] == ENDLESS or wanted[0] > granted:
            raise ValueError("current limit exceeds maximum limit")
        now[:] = wanted

    monkeypatch.setattr(resource, "getrlimit", lambda which: tuple(now))
    monkeypatch.setattr(resource, "setrlimit", setrlimit)

    assert raise_descriptor_limit() == expected
    assert descriptor_limit() == expected
