"""Does what the documents point at exist, and is what they print as a configuration one?"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.server_process import REPOSITORY
from tidegate.config import parse

DOCUMENTS = sorted(
    path for pattern in ("*.md", "docs/**/*.md", "src/**/*.md") for path in REPOSITORY.glob(pattern)
)


def anchors(document: Path) -> set[str]:
    """Its headings as GitHub names them."""
    headings = re.findall(r"^#+ (.*)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_links(document: Path) -> None:
    """Each link within the repository leads to a file that is there, and to a heading of it."""
    for file, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)#?([^)\s]*)\)", document.read_text()):
        target = document.parent / file if file else document
        assert target.exists(), file
        assert not anchor or anchor in anchors(target), f"{file}#{anchor}"


def test_every_guide_is_found_from_the_readme() -> None:
    """None is known only to whoever lists the folder."""
    linked = re.findall(r"\]\((docs/guides/[^)#]+)\)", (REPOSITORY / "README.md").read_text())

    assert set(linked) == {f"docs/guides/{path.name}" for path in (REPOSITORY / "docs/guides").iterdir()}


def test_the_configuration_in_the_readme() -> None:
    """It loads, with the tenant and the classes that the text speaks of."""
    (text,) = re.findall(r"```yaml\n(.*?)```", (REPOSITORY / "README.md").read_text(), re.DOTALL)
    config = parse(text, "README.md")

    assert list(config.classes) == ["interactive", "batch"]
    assert list(config.tenants["acme"].keys) == ["web"]
