"""Where are the public traces that tests read, beside the repository?"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.server_process import REPOSITORY

FOLDER = REPOSITORY.parent / "shared" / "data"


def shared(name: str) -> str:
    """The path of a file of `../shared/data`; the test is skipped where only the repository was cloned."""
    if not FOLDER.is_dir():
        pytest.skip("the folder ../shared/data is not beside this clone")
    path: Path = FOLDER / name
    return str(path)
