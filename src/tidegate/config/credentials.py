"""What does the gateway show an engine to be let in?

A credential stands in the environment or in a file of its own, never in the configuration. It is read when
needed, and no message repeats it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from tidegate.config.schema import ReplicaConfig
from tidegate.core.errors import ConfigurationError

_MAX_BYTES = 16_384
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BEARER = re.compile(r"[!-~]+")  # what a header can carry without question


def credential_of(replica: ReplicaConfig, environ: Mapping[str, str] = os.environ) -> str | None:
    """The bearer token for a replica, None where it needs none; ConfigurationError if it cannot be had."""
    found = credential_problem(replica, environ)
    if found is not None:
        field, text = found
        raise ConfigurationError([f"{replica.name}: {field}: {text}"])
    if replica.credential_env is not None:
        return environ[replica.credential_env].strip()
    if replica.credential_file is not None:
        return _read(replica.credential_file)
    return None


def credential_problem(replica: ReplicaConfig, environ: Mapping[str, str]) -> tuple[str, str] | None:
    """Which field is at fault and why, if the credential cannot be had."""
    if replica.credential_env is not None and replica.credential_file is not None:
        return "credential_file", "stands beside credential_env; keep one of them"
    if replica.credential_env is not None:
        return _problem_of("credential_env", _env_problem(replica.credential_env, environ))
    if replica.credential_file is not None:
        return _problem_of("credential_file", _file_problem(replica.credential_file))
    return None


def _problem_of(field: str, text: str | None) -> tuple[str, str] | None:
    return None if text is None else (field, text)


def _env_problem(name: str, environ: Mapping[str, str]) -> str | None:
    if _VARIABLE.fullmatch(name) and name in environ:
        return _token_problem(environ[name].strip())
    if _VARIABLE.fullmatch(name) and name.isupper():
        return f"names the environment variable {name}, which is not set; set it, or remove the key"
    # Not as variables are usually spelt: it may be the secret itself, so it is not repeated.
    return "names no environment variable that is set; write the variable's name, never the credential itself"


def _file_problem(path: Path) -> str | None:
    try:
        token = _read(path)
    except OSError as error:
        return (
            f"names {path}, which cannot be read: {error.strerror}; paths start at the configuration's folder"
        )
    except UnicodeDecodeError:
        return f"names {path}, which is not text"
    return _token_problem(token)


def _token_problem(token: str) -> str | None:
    if not token:
        return "leads to an empty credential; fill it in, or remove the key"
    if not _BEARER.fullmatch(token) or len(token) > _MAX_BYTES:
        return "leads to a credential with spaces, line breaks or other characters that a header cannot carry"
    return None


def _read(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(_MAX_BYTES + 1).decode().strip()
