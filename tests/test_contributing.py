"""Is what CONTRIBUTING.md says of verbs and layers still what the Makefile and import-linter do?"""

from __future__ import annotations

import re
import tomllib
from itertools import takewhile

from tests.server_process import REPOSITORY

TEXT = (REPOSITORY / "CONTRIBUTING.md").read_text()


def test_the_table_lists_the_verbs_of_the_makefile() -> None:
    """Every documented verb exists, and every verb with a help text is documented."""
    makefile = (REPOSITORY / "Makefile").read_text()
    documented = set(re.findall(r"^\| `make ([a-z-]+)` \|", TEXT, re.MULTILINE))

    assert documented | {"help"} == set(re.findall(r"^([a-z-]+):.* ## ", makefile, re.MULTILINE))


def test_the_layers_are_those_that_import_linter_holds() -> None:
    """The picture of the layers is the contract, in its order."""
    pyproject = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    (contract,) = (
        found for found in pyproject["tool"]["importlinter"]["contracts"] if found["type"] == "layers"
    )
    picture = TEXT.split("```\n")[1].splitlines()

    assert ["".join(takewhile(lambda c: c != "(", line)).strip() for line in picture] == contract["layers"]
