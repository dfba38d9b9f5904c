"""Whose fault was it?

    TidegateError
    ├── CallerError          the program that calls us broke a contract
    ├── ConfigurationError   the file or the command line says something that cannot be
    └── UpstreamError        an engine or a peer answered what it must not

A refusal is not an error: it is a value with a `Reason` (`core.reasons`).
"""

from __future__ import annotations


class TidegateError(Exception):
    """Root of every exception that tidegate raises on purpose."""


class CallerError(TidegateError):
    """A broken contract between our own parts; always a bug."""


class ConfigurationError(TidegateError):
    """A setting that cannot be. `problems` hold one line each: where, what, and the remedy."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class UpstreamError(TidegateError):
    """An engine or a peer answered something that its protocol does not allow."""
