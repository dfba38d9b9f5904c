"""Where do the real engines come from, and when must they be installed again?

Each engine has a virtual environment of its own under `$TIDEGATE_ENGINES` (default `.engines` in the
repository), named after the digest of everything that went into it: other pins make another
environment, an unfinished one is made anew, and two test sessions at once make it only once. What
cannot be installed is an error, never a skipped test.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.server_process import REPOSITORY

INSIDE = Path(__file__).parent / "inside"
"""Scripts that run in an engine's environment, not in ours."""


def engines_folder() -> Path:
    """The cache of installed engines; safe to delete."""
    return Path(os.environ.get("TIDEGATE_ENGINES", REPOSITORY / ".engines")).resolve()


def installed(name: str, inputs: Sequence[str], build: Callable[[Path], None]) -> Path:
    """The folder that `build` filled for exactly these `inputs`: the cached one, or a new one."""
    digest = hashlib.sha256("\n".join([sys.version, *inputs]).encode()).hexdigest()[:12]
    folder = engines_folder() / f"{name}-{digest}"
    ready = folder / "ready"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not ready.exists():
            shutil.rmtree(folder, ignore_errors=True)
            build(folder)
            ready.touch()
    return folder


def make_venv(folder: Path) -> Path:
    """An empty environment in `folder`, and its Python. It needs no pip: ours installs into it."""
    run([sys.executable, "-m", "venv", "--without-pip", folder], timeout_s=60)
    return folder / "bin" / "python"


def pip_install(python: Path, *arguments: str | Path, timeout_s: float) -> None:
    """Install into `python`'s environment exactly what is named: pins are complete, so no resolver."""
    quietly = ["--quiet", "--disable-pip-version-check", "--root-user-action=ignore", "--no-deps"]
    run(
        [sys.executable, "-m", "pip", "--python", python, "install", *quietly, *arguments],
        timeout_s=timeout_s,
    )


def run(command: Sequence[str | Path], timeout_s: float) -> None:
    """Run to a successful end; RuntimeError with the end of its output otherwise."""
    done = subprocess.run(
        [str(part) for part in command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=timeout_s,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(
            f"{command} ended with {done.returncode}:\n{done.stdout.decode(errors='replace')[-4000:]}"
        )
