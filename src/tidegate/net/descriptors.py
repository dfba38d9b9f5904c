"""How many files, sockets among them, may this process have open?"""

from __future__ import annotations

import resource
import sys
from contextlib import suppress

OPEN_MAX = 10_240
"""What macOS grants although it names no bound. Source: its manual, setrlimit(2)."""


def raise_descriptor_limit() -> int:
    """Take as many as the system allows, and say how many that is."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (ValueError, OSError):
            with suppress(ValueError, OSError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, OPEN_MAX), hard))
    return descriptor_limit()


def descriptor_limit() -> int:
    """How many may be open now."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft
