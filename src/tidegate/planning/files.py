"""How is a file written that is there whole or not at all, and never in place of another by accident?"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import NamedTemporaryFile


def taken(option: str, path: Path, *, force: bool, folder: bool = True) -> Iterator[str]:
    """Why it may not be written: what is there already, or, if `folder` is looked at, that it has none."""
    if path.is_dir():
        yield f"{option} {path}: is a folder; name a file"
    elif path.exists() and not force:
        yield f"{option} {path}: is there already; write --force to replace it"
    if folder and not path.parent.is_dir():
        yield f"{option} {path}: there is no folder {path.parent}; make it first"


def write_whole(path: Path, text: str) -> None:
    """All of it or nothing: into a file beside it, which then takes its name. Raises OSError."""
    with NamedTemporaryFile(
        "w", encoding="utf-8", dir=path.parent, prefix=f".{path.name}.", delete=False
    ) as file:
        try:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
            Path(file.name).chmod(0o644)
            Path(file.name).replace(path)
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise
