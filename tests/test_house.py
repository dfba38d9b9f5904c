"""What holds for every file, and no linter says: sizes, docstrings, words, and what may be printed where.

In the spirit of TigerBeetle's tidy: a rule of style that no test holds is a wish.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.server_process import REPOSITORY

SOURCE = REPOSITORY / "src" / "tidegate"
MODULES = sorted(SOURCE.rglob("*.py"))
TESTS = sorted((REPOSITORY / "tests").rglob("*.py"))
TEXTS = [
    path
    for folder in ("src", "tests", "docs", "benchmarks", "deploy", ".ci", ".github")
    for path in sorted((REPOSITORY / folder).rglob("*"))
    if path.suffix in (".py", ".md", ".toml", ".yaml", ".yml", ".sh", ".json") or path.name == "Dockerfile"
] + [
    REPOSITORY / name
    for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "Makefile", "pyproject.toml")
]

MOST_LINES = 400
LONGER = {"policy/governor.py": 500}
"""The one place that composes every mechanism. It may shrink, and nothing may join it."""
MOST_BODY_LINES = 60
"""Of a function, less its signature: the options of a command are a list, not a thought."""
DEEPEST = 3
"""Decisions within decisions of one function; two is the rule. `with` decides nothing, and does not count."""

UNFINISHED = re.compile(r"\b(?:TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b")
ELSEWHERE = re.compile(
    r"/(?:home|Users|root|work|workspace|mnt)/\w"  # a path of some machine
    r"|\b(?:pypi|npmjs|docker|quay|ghcr)\.(?:org|com|io)\b"  # a registry: the ordinary client knows it
)


class Function(NamedTuple):
    """A function, and whether others may call it."""

    path: Path
    node: ast.FunctionDef | ast.AsyncFunctionDef
    public: bool

    def __str__(self) -> str:
        return f"{self.path.relative_to(REPOSITORY)}:{self.node.lineno} {self.node.name}"


def functions() -> Iterator[Function]:
    """Every function and method of the package, those inside of others too."""
    for path in MODULES:
        yield from _functions(path, ast.parse(path.read_text()), public=True)


def _functions(path: Path, parent: ast.AST, *, public: bool) -> Iterator[Function]:
    for node in ast.iter_child_nodes(parent):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield Function(path, node, public and not node.name.startswith("_"))
            yield from _functions(path, node, public=False)
        elif isinstance(node, ast.ClassDef):
            # What a base outside of this file asks for is documented there.
            own = public and not node.name.startswith("_") and not _overrides(node)
            yield from _functions(path, node, public=own)
        else:
            yield from _functions(path, node, public=public)


def _overrides(node: ast.ClassDef) -> bool:
    """Whether a class is called back: by asyncio, by llhttp's parser, by uvicorn, by logging."""
    foreign = {"asyncio.Protocol", "uvicorn.Server", "logging.Handler", "yaml.SafeLoader"}
    called_back = ("Connection", "RequestReader", "UpstreamConnection")  # by shape, not by inheritance
    return node.name in called_back or any(ast.unparse(base) in foreign for base in node.bases)


def where(path: Path) -> str:
    """A path as a failure should show it."""
    return str(path.relative_to(REPOSITORY))


def test_files_are_short() -> None:
    """A file answers one question, and one question takes a few hundred lines."""
    lines = {path.relative_to(SOURCE).as_posix(): len(path.read_text().splitlines()) for path in MODULES}

    assert {name: n for name, n in lines.items() if n > LONGER.get(name, MOST_LINES)} == {}
    assert LONGER.keys() <= lines.keys()


def test_functions_are_short_and_flat() -> None:
    """A function fits a screen, and is not nested so deep that it must be read twice."""
    long = [
        f"{each}: {lines}"
        for each in functions()
        if (lines := (each.node.end_lineno or 0) - each.node.body[0].lineno + 1) > MOST_BODY_LINES
    ]
    deep = [f"{each}: {depth}" for each in functions() if (depth := _depth(each.node)) > DEEPEST]

    assert long == []
    assert deep == []


def _depth(node: ast.AST) -> int:
    """How many blocks stand within one another. `elif` is no deeper than its `if`; functions count apart."""
    deepest = 0
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            chained = name == "orelse" and isinstance(node, ast.If) and isinstance(child, ast.If)
            block = isinstance(child, ast.If | ast.For | ast.AsyncFor | ast.While | ast.Try | ast.Match)
            deepest = max(deepest, _depth(child) + (block and not chained))
    return deepest


def test_everything_public_says_what_it_is() -> None:
    """Modules, classes and functions that others use have a docstring."""
    silent = [where(path) for path in (*MODULES, *TESTS) if not _module_says(path)]
    silent += [str(each) for each in functions() if each.public and not ast.get_docstring(each.node)]
    silent += [
        f"{where(path)}:{node.lineno} {node.name}"
        for path in MODULES
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and not ast.get_docstring(node)
    ]

    assert silent == []


def _module_says(path: Path) -> bool:
    """An empty `__init__` of the tests is only there to be a package."""
    text = path.read_text()
    return not text or ast.get_docstring(ast.parse(text)) is not None


def test_every_test_says_what_it_promises() -> None:
    """The promises of the project can be read off its tests."""
    silent = [
        f"{where(path)}:{node.lineno} {node.name}"
        for path in TESTS
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_") and not ast.get_docstring(node)
    ]

    assert silent == []


def test_nothing_prints() -> None:
    """The package speaks through logs, and commands through their console."""
    printing = [
        f"{where(path)}:{node.lineno}"
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("print", "input")
    ]

    assert printing == []


@pytest.mark.parametrize("banned", [UNFINISHED, ELSEWHERE], ids=["unfinished", "elsewhere"])
def test_banned_words(banned: re.Pattern[str]) -> None:
    """Nothing is left for later, and nothing names a machine or a registry."""
    found = [
        f"{where(path)}:{number}: {line.strip()[:80]}"
        for path in TEXTS
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if banned.search(line)
    ]

    assert found == []
