"""The modules that may be compiled: they are what the list says, and lose nothing by it.

`make test-compiled` runs this file and the tests of those modules on the compiled package. It says so in
TIDEGATE_COMPILE, and nothing here is skipped: where that is set every module of the list must come from an
extension, and where it is not none may.
"""

from __future__ import annotations

import ast
import importlib
import os
import tomllib

import pytest

from tests.server_process import REPOSITORY

PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
MODULES: list[str] = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]["modules"]
WANTED = os.environ.get("TIDEGATE_COMPILE", "") not in ("", "0")


@pytest.mark.parametrize("module", MODULES)
def test_modules_run_as_they_were_built(module: str) -> None:
    """In the compiled run each listed module is an extension; in every other run each is Python."""
    name = module.removesuffix("/__init__.py").removesuffix(".py").replace("/", ".")
    origin = importlib.import_module(name).__file__

    assert origin is not None
    assert origin.endswith(".so" if WANTED else ".py")


@pytest.mark.parametrize("module", MODULES)
def test_no_compiled_class_says_what_would_be_dropped(module: str) -> None:
    """mypyc drops what a class statement says beside its bases, such as msgspec's frozen, without a word."""
    tree = ast.parse((REPOSITORY / "src" / module).read_text())
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]

    assert [node.name for node in classes if node.keywords] == []
    assert [node.name for node in classes if any("Struct" in ast.unparse(base) for base in node.bases)] == []
