"""Which model and which accelerator does the command line mean?

Reading the file of a user takes longer to import than what ships takes to read: it waits until there is one.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tidegate.catalog.catalog import Catalog
from tidegate.catalog.models import Model


def catalog_with(paths: Iterable[Path] = ()) -> Catalog:
    """What ships, with each of these files upon it. Raises ConfigurationError."""
    catalog = Catalog.shipped()
    for path in paths:
        from tidegate.planning.catalog.files import load_catalog

        catalog = load_catalog(path, catalog)
    return catalog


def model_named(name: str, catalog: Catalog) -> Model:
    """By a name of the catalogue, or by the path of a config.json. Raises ConfigurationError."""
    if not name.endswith(".json"):
        return catalog.model(name)
    from tidegate.planning.catalog.files import model_from

    path = Path(name)
    return model_from(path, path.resolve().parent.name or path.stem)
