"""How does a plan come into files that `tidegate serve` and `tidegate simulate` take?

Two of them: the configuration, and beside it the traffic that was planned for. Both have passed the checks
of the commands that read them before any of them is written, and each is there whole or not at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from tidegate.config.loading import parse
from tidegate.config.traffic_loading import parse_traffic
from tidegate.core.errors import ConfigurationError
from tidegate.plan.advised import Advice
from tidegate.plan.answer import Answer
from tidegate.plan.ask import Ask
from tidegate.plan.disaggregated.front import Front
from tidegate.plan.tenants import Tenant
from tidegate.planning.emit.configuration import HEADER, configuration_text
from tidegate.planning.emit.traffic import traffic_text
from tidegate.planning.files import taken, write_whole
from tidegate.planning.wanted import MODEL


class Emitted(msgspec.Struct, frozen=True, kw_only=True):
    """The texts of both files."""

    configuration: str
    traffic: str


def emitted(
    plan: tuple[Ask, Answer, Advice],
    tenants: Sequence[Tenant],
    path: Path,
    model: str = MODEL,
    *,
    front: Front | None = None,
) -> Emitted:
    """Both files, as they would be written to `path` and beside it. `front`: replicas for prompts.

    Raises ConfigurationError if what was asked makes no configuration, such as a name that none takes.
    """
    ask, answer, _ = plan
    beside = traffic_path(path)
    header = [text.format(file=path.name, traffic=beside.name, span="10m") for text in HEADER]
    configuration = configuration_text(plan, tenants, model=model, header=header, front=front)
    traffic = traffic_text(ask, answer, tenants, path.name)
    config = parse(configuration, str(path), environ=None)
    parse_traffic(traffic, str(beside)).check(config)
    return Emitted(configuration=configuration, traffic=traffic)


def traffic_path(path: Path) -> Path:
    """Where the traffic goes that belongs to a configuration: tidegate.yaml has tidegate.traffic.yaml."""
    return path.with_name(f"{path.stem}.traffic{path.suffix or '.yaml'}")


def check_free(path: Path, *, force: bool) -> None:
    """Raise ConfigurationError for what may not be written: what is there already, or has no folder."""
    problems = [*taken("--emit", path, force=force)]
    problems += taken("--emit", traffic_path(path), force=force, folder=False)
    if problems:
        raise ConfigurationError(problems)


def write(texts: Emitted, path: Path, *, force: bool = False) -> None:
    """Write both files. Raises ConfigurationError as `check_free` does, and where the system refuses."""
    check_free(path, force=force)
    try:
        # The traffic first: a configuration whose header names it is never there without it.
        write_whole(traffic_path(path), texts.traffic)
        write_whole(path, texts.configuration)
    except OSError as error:
        raise ConfigurationError([f"--emit {path}: cannot be written: {error.strerror}"]) from None
