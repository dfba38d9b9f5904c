"""How is the package built? As pure Python; with TIDEGATE_COMPILE=1 mypyc makes its hot modules C extensions.

The modules are listed in pyproject.toml. Extensions stand beside their sources, which tracebacks and readers
want. What is installed behaves the same either way (docs/decisions/0007).
"""

from __future__ import annotations

import os
import shlex
import shutil
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

BUILD = Path("build")
NO_COMPILER = """TIDEGATE_COMPILE=1 needs a C compiler and Python's headers (on Debian: gcc and python3-dev).
Install them, or leave it unset: the package is then pure Python, and behaves the same."""


def wanted() -> bool:
    """Whether whoever builds asks for compiled modules."""
    return os.environ.get("TIDEGATE_COMPILE", "") not in ("", "0")


class CompileHook(BuildHookInterface[Any]):
    """Adds the extensions to a wheel."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """What compiling needs beside a C compiler: mypyc reads the types of all that is imported."""
        return [*self.config["requires"], *self.metadata.core.dependencies] if wanted() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and put what came of it into the wheel. An editable install stays pure."""
        if not wanted() or version == "editable":
            return
        built = compile_modules(self.config["modules"], Path(self.root))
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        for path in built.rglob("*.so"):
            build_data["force_include"][str(path)] = str(path.relative_to(built))


def compile_modules(modules: list[str], root: Path) -> Path:
    """Compile `modules`, written as paths below src; gives the folder that holds the extensions."""
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")[0]
    if shutil.which(compiler) is None or not Path(sysconfig.get_path("include"), "Python.h").exists():
        raise SystemExit(NO_COMPILER)
    from mypyc.build import mypycify
    from setuptools import Distribution

    os.chdir(root)
    target = root / BUILD / "extensions"
    shutil.rmtree(target, ignore_errors=True)
    paths = [f"src/{module}" for module in modules]
    extensions = mypycify(
        ["--config-file=pyproject.toml", *paths],
        opt_level="3",
        debug_level="0",
        group_name="tidegate",
        target_dir=str(root / BUILD / "c"),
    )
    distribution = Distribution({"name": "tidegate", "ext_modules": extensions})
    command = distribution.get_command_obj("build_ext")
    command.build_lib = str(target)
    command.build_temp = str(root / BUILD / "objects")
    command.ensure_finalized()
    command.run()
    return target
