"""Which models and accelerators are known, and what of them? `tidegate catalog`, from the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console

from tidegate.catalog.accelerators import Accelerator
from tidegate.catalog.catalog import Catalog
from tidegate.catalog.models import Model
from tidegate.core.errors import ConfigurationError
from tidegate.core.text import as_json
from tidegate.planning.catalog.lookup import catalog_with, model_named
from tidegate.planning.catalog.report import (
    ModelReport,
    accelerator_page,
    accelerators_table,
    model_page,
    model_report,
    models_table,
    sourced,
)
from tidegate.planning.telling import told

KINDS = ("accelerators", "models")

catalog_app = typer.Typer(help="Models and accelerators: what is known, from where.", no_args_is_help=True)

Files = Annotated[
    list[Path] | None,
    typer.Option("--catalog", metavar="FILE", help="Adds to it, or replaces; may be given several times."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


class Listing(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All of one kind, or of both."""

    accelerators: tuple[Accelerator, ...] = ()
    models: tuple[ModelReport, ...] = ()


@catalog_app.command("list")
def list_(
    kind: Annotated[
        str | None, typer.Argument(metavar="[accelerators|models]", help="One kind only; else both.")
    ] = None,
    files: Files = None,
    json: Json = False,
) -> None:
    """What is known, a line each."""
    with told(json=json):
        if kind not in (None, *KINDS):
            raise ConfigurationError([f"{kind!r} is no kind of entry; write accelerators or models"])
        catalog = catalog_with(files or ())
        kinds = KINDS if kind is None else (kind,)
        if json:
            typer.echo(as_json(_listing(catalog, kinds)))
            return
        console = Console()
        if "accelerators" in kinds:
            console.print(accelerators_table(catalog.accelerators.values()))
        if "models" in kinds:
            console.print(models_table(catalog.models.values()))


@catalog_app.command()
def show(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="Of a model or accelerator, or the path of a config.json."),
    ],
    files: Files = None,
    json: Json = False,
) -> None:
    """All that is known of one, every figure with its source and date."""
    with told(json=json):
        found = entry_named(name, catalog_with(files or ()))
        if json:
            typer.echo(as_json(model_report(found) if isinstance(found, Model) else sourced(found)))
        else:
            Console().print(model_page(found) if isinstance(found, Model) else accelerator_page(found))


def entry_named(name: str, catalog: Catalog) -> Model | Accelerator:
    """An accelerator, else a model. Raises ConfigurationError that names the nearest of either."""
    try:
        return catalog.accelerator(name)
    except ConfigurationError as error:
        no_accelerator = error
    try:
        return model_named(name, catalog)
    except ConfigurationError as error:
        if name.endswith(".json"):
            raise
        problems = [*no_accelerator.problems, *error.problems]
        near = [problem for problem in problems if "did you mean" in problem]
        raise ConfigurationError(near or problems) from None


def _listing(catalog: Catalog, kinds: tuple[str, ...]) -> Listing:
    accelerators = tuple(map(sourced, catalog.accelerators.values())) if "accelerators" in kinds else ()
    models = tuple(map(model_report, catalog.models.values())) if "models" in kinds else ()
    return Listing(accelerators=accelerators, models=models)
