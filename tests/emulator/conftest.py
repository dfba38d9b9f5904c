"""One quick emulated replica that the HTTP tests share; none of them leaves anything behind in it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.emulator.inside import Inside, served


@pytest.fixture(scope="package")
def quick() -> Iterator[Inside]:
    """A replica of about a thousand tokens per second in each of four seats."""
    with served() as inside:
        yield inside
