"""Is another process already governing by this configuration?

Two governors on one configuration would each spend all of every limit. Until they can share (leases),
the second must not start. The lock is the kernel's, on the file itself: it ends with the process,
however that ends, and leaves nothing to clean up. Another copy of the file is another lock.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tidegate.core.errors import ConfigurationError


@contextmanager
def lock(path: Path) -> Iterator[None]:
    """Hold `path` as the one process that governs by it; ConfigurationError if another one does."""
    try:
        file = path.open("rb")
    except OSError as error:
        raise ConfigurationError([f"{path}: cannot be read: {error.strerror}"]) from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigurationError(
                [
                    f"{path}: another process already governs by this file, and two would each spend all of "
                    "every limit; stop the other one, or give this one a configuration of its own"
                ]
            ) from None
        except OSError as error:
            raise ConfigurationError([f"{path}: cannot be locked: {error.strerror}"]) from None
        yield
