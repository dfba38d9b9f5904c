"""How does a file become YAML nodes, of a size and a depth that harm nobody?

Nodes know their lines; what they mean is read along the types of the settings (`decoding`).
"""

from __future__ import annotations

from pathlib import Path

import yaml

from tidegate.config.problems import Problem, report
from tidegate.core.errors import ConfigurationError

MAX_BYTES = 2**20
MAX_DEPTH = 32


def read(path: Path, most_bytes: int = MAX_BYTES) -> str:
    """The text of a file, and a byte more where it is larger. Raises ConfigurationError if it cannot be read,
    or is no text.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(most_bytes + 1)
    except OSError as error:
        raise ConfigurationError([f"{path}: cannot be read: {error.strerror}"]) from None
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigurationError([f"{path}: is not UTF-8 at byte {error.start}; save it as UTF-8"]) from None


class _Composer(yaml.SafeLoader):
    """Composes nodes to a bounded depth; deeper ones would exhaust the stack."""

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: object) -> yaml.Node | None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.MarkedYAMLError(problem=f"more than {MAX_DEPTH} levels deep", problem_mark=mark)
        try:
            return super().compose_node(parent, index)  # type: ignore[arg-type]
        finally:
            self.depth -= 1


def compose(text: str, source: str, needs: str) -> yaml.Node:
    """The nodes of YAML text; `needs` is said of an empty one. Raises ConfigurationError if it is no YAML."""
    if len(text.encode("utf-8", "replace")) > MAX_BYTES:
        raise ConfigurationError([f"{source}: is larger than {MAX_BYTES} bytes; split it"])
    try:
        node = yaml.compose(text, Loader=_Composer)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        at = (mark.line + 1, mark.column + 1) if mark else None
        raise ConfigurationError(report(source, [Problem((), _syntax(error), at)], {})) from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        first_line = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ConfigurationError([f"{source}: is not YAML: {first_line}"]) from None
    if node is None:
        raise ConfigurationError([f"{source}: is empty; {needs}"])
    return node


def _syntax(error: yaml.MarkedYAMLError) -> str:
    problem = error.problem or error.context or "cannot be read"
    if "\\t" in problem:
        return "is not YAML: a tab stands where only spaces may; indent with spaces"
    if "mapping values are not allowed" in problem:
        return "is not YAML: a second colon in one line; put a text that holds ': ' into quotes"
    if "expected a single document" in f"{error.context}":
        return "is more than one YAML document; remove what follows ---"
    return f"is not YAML: {problem}"
