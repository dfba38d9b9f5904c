"""Can two processes govern by one file?"""

import subprocess
import sys
from pathlib import Path

import pytest

from tidegate.config import lock
from tidegate.core.errors import ConfigurationError

TRY = """
import sys
from pathlib import Path
from tidegate.config import lock
from tidegate.core.errors import ConfigurationError
try:
    with lock(Path(sys.argv[1])):
        print("held")
except ConfigurationError as error:
    print(error)
"""


def second_process(path: Path) -> str:
    done = subprocess.run([sys.executable, "-c", TRY, str(path)], capture_output=True, text=True, timeout=60)
    return done.stdout + done.stderr


def test_a_second_process_must_not_start(tmp_path: Path) -> None:
    """The second is refused with the remedy while the first holds the file, and only then."""
    path = tmp_path / "f.yaml"
    path.touch(mode=0o400)

    with lock(path):
        assert "another process already governs by this file" in second_process(path)
        with pytest.raises(ConfigurationError, match="stop the other one, or give this one"), lock(path):
            pass
    assert second_process(path) == "held\n"


def test_a_file_that_is_not_there_cannot_be_locked(tmp_path: Path) -> None:
    """A missing file is a problem of the configuration, not a crash."""
    with pytest.raises(ConfigurationError, match="cannot be read"), lock(tmp_path / "none.yaml"):
        pass
