"""What does a user's file add to the catalogue, or put in the place of what ships?

YAML, or TOML by its ending. An entry of a name that is known, or that is `like` one, says only what differs.
What a file says is its own source unless it names one.
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml
from yaml.representer import SafeRepresenter

from tidegate.catalog.accelerators import Accelerator, Price
from tidegate.catalog.catalog import Catalog
from tidegate.catalog.huggingface import model_of
from tidegate.catalog.models import Layers, Model
from tidegate.config.decoding import INVALID, Decoder, of_type
from tidegate.config.documents import compose, read
from tidegate.config.problems import Problem, report
from tidegate.core.errors import ConfigurationError
from tidegate.planning.catalog.checks import problems_of

MAX_CONFIG_BYTES = 2**23
"""Of a config.json: those of mixed precision list every expert of every layer, in 2.4 MB."""

T = TypeVar("T", bound=msgspec.Struct)

_NEEDS = "it needs accelerators, models or prices"


class PriceEntry(msgspec.Struct, frozen=True, kw_only=True):
    """What one accelerator costs for one hour."""

    per_hour_usd: float
    low_usd: float | None = None
    high_usd: float | None = None
    source: str | None = None
    dated: str | None = None


class AcceleratorEntry(msgspec.Struct, frozen=True, kw_only=True):
    """As `Accelerator`; None: as in `like`."""

    like: str | None = None
    title: str | None = None
    memory_bytes: int | None = None
    usable_bytes: int | None = None
    bandwidth_bytes_per_s: float | None = None
    flops_per_s: dict[str, float] | None = None
    link_bytes_per_s: float | None = None
    link_latency_s: float | None = None
    node_link_bytes_per_s: float | None = None
    host_link_bytes_per_s: float | None = None
    per_node: int | None = None
    power_w: float | None = None
    price: PriceEntry | None = None
    aliases: tuple[str, ...] | None = None
    source: str | None = None
    dated: str | None = None
    notes: tuple[str, ...] | None = None


class ModelEntry(msgspec.Struct, frozen=True, kw_only=True):
    """As `Model`; None: as in `like`, or in the config.json at `config`."""

    like: str | None = None
    config: Path | None = None
    hidden: int | None = None
    vocabulary: int | None = None
    layers: tuple[Layers, ...] | None = None
    tied_embeddings: bool | None = None
    context_tokens: int | None = None
    precision: str | None = None
    attention_precision: str | None = None
    dense_precision: str | None = None
    source: str | None = None
    dated: str | None = None


class CatalogFile(msgspec.Struct, frozen=True, kw_only=True):
    """The whole of a file."""

    accelerators: dict[str, AcceleratorEntry] = {}
    models: dict[str, ModelEntry] = {}
    prices: dict[str, PriceEntry] = {}


def model_from(path: Path, name: str) -> Model:
    """The model of a config.json. Raises ConfigurationError.

    Quantisers of NVIDIA's (modelopt) used to say what they did in a file beside it, not in it.
    """
    config, beside = _json(path), path.with_name("hf_quant_config.json")
    if isinstance(config, dict) and "quantization_config" not in config and beside.exists():
        told = _json(beside)
        quantization = told.get("quantization") if isinstance(told, dict) else None
        if not isinstance(quantization, dict):
            problem = "quantization: must be an object, as modelopt writes it"
            raise ConfigurationError([f"{beside}: {problem}; without this file, its name says the bits"])
        config = {**config, "quantization_config": {"quant_method": "modelopt", **quantization}}
    try:
        return model_of(config, name, source=str(path))
    except ConfigurationError as error:
        raise ConfigurationError([f"{path}: {problem}" for problem in error.problems]) from None


def _json(path: Path) -> Any:
    text = read(path, MAX_CONFIG_BYTES)
    if len(text) > MAX_CONFIG_BYTES:
        raise ConfigurationError([f"{path}: is larger than {MAX_CONFIG_BYTES:,} bytes; no {path.name} is"])
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigurationError([f"{path}: is not JSON: {str(error).splitlines()[0]}"]) from None


def load_catalog(path: Path, catalog: Catalog) -> Catalog:
    """`catalog` with what a file adds to it. Raises ConfigurationError."""
    return parse_catalog(read(path), str(path), catalog, base=path.parent)


def parse_catalog(text: str, source: str, catalog: Catalog, *, base: Path = Path()) -> Catalog:
    """`catalog` with what the text adds to it. Raises ConfigurationError with every problem, placed."""
    toml = source.endswith(".toml")
    node = _toml(text, source) if toml else compose(text, source, _NEEDS)
    decoder = Decoder(base=base)
    file = decoder.decode(node, of_type(CatalogFile), ())
    problems, marks = decoder.problems, {} if toml else decoder.marks
    if file is not INVALID:
        problems += problems_of(file)
    if not problems:
        catalog, problems = _merged(file, source, catalog)
    if toml:
        problems = [Problem(problem.where, problem.text) for problem in problems]
    if problems:
        raise ConfigurationError(report(source, problems, marks))
    return catalog


def _merged(file: CatalogFile, source: str, catalog: Catalog) -> tuple[Catalog, list[Problem]]:
    """Entry by entry, so that one may be like an earlier one."""
    problems: list[Problem] = []
    for name, entry in file.accelerators.items():
        try:
            accelerator = _accelerator(name, entry, source, catalog)
            problems += problems_of(accelerator, ("accelerators", name))
            catalog = catalog.extended(accelerators=(accelerator,))
        except ConfigurationError as error:
            problems += [Problem(("accelerators", name), text) for text in error.problems]
    for name, model in file.models.items():
        try:
            made = _model(name, model, source, catalog)
            problems += problems_of(made, ("models", name))
            catalog = catalog.extended(models=(made,))
        except ConfigurationError as error:
            problems += [Problem(("models", name), text) for text in error.problems]
    for name, price in file.prices.items():
        try:
            catalog = catalog.extended(prices={name: _price(price, source)})
        except ConfigurationError as error:
            problems += [Problem(("prices", name), text) for text in error.problems]
    return catalog, problems


def _accelerator(name: str, entry: AcceleratorEntry, source: str, catalog: Catalog) -> Accelerator:
    said = _said(entry, "like", "price", "source", "dated")
    origin = {"source": entry.source or source, "dated": entry.dated or ""}
    price = {} if entry.price is None else {"price": _price(entry.price, source)}
    if entry.like is None and name not in catalog.accelerators:
        found: dict[str, object] = {"name": name, "title": name, **said, **price, **origin}
        return _complete(found, Accelerator, "like: the name of one that is known")
    base = catalog.accelerator(entry.like or name)
    sources = base.sources | dict.fromkeys(said, origin["source"])
    dates = base.dates | dict.fromkeys(said, origin["dated"])
    if name != base.name:
        said = {"aliases": (), **said}  # they go on meaning the one that it is like
    return msgspec.structs.replace(base, name=name, sources=sources, dates=dates, **said, **price)


def _model(name: str, entry: ModelEntry, source: str, catalog: Catalog) -> Model:
    said = _said(entry, "like", "config", "source", "dated")
    origin = {"source": entry.source or source, "dated": entry.dated or ""}
    if entry.config is not None and entry.like is not None:
        raise ConfigurationError(["has config and like; it can be one of them"])
    if entry.config is not None:
        base = model_from(entry.config, name)
    elif entry.like is not None or name in catalog.models:
        base = catalog.model(entry.like or name)
    else:
        found: dict[str, object] = {"name": name, **said, **origin}
        return _complete(found, Model, "config: the path of a config.json, or like: a name that is known")
    return msgspec.structs.replace(base, name=name, **said, **origin)


def _price(entry: PriceEntry, source: str) -> Price:
    return Price(
        per_hour_usd=entry.per_hour_usd,
        low_usd=entry.low_usd,
        high_usd=entry.high_usd,
        source=entry.source or source,
        dated=entry.dated or "",
    )


def _said(entry: msgspec.Struct, *without: str) -> dict[str, object]:
    """What an entry says: everything that is not None."""
    fields = {field: getattr(entry, field) for field in entry.__struct_fields__ if field not in without}
    return {field: value for field, value in fields.items() if value is not None}


def _complete(found: dict[str, object], kind: type[T], otherwise: str) -> T:
    """One that is like no other must say all that has no default."""
    fields = msgspec.structs.fields(kind)
    lacking = [field.name for field in fields if field.required and field.name not in found]
    if lacking:
        raise ConfigurationError([f"lacks {', '.join(lacking)}; write them, or {otherwise}"])
    return kind(**found)


def _toml(text: str, source: str) -> yaml.Node:
    """TOML as the nodes that YAML would have, without places."""
    try:
        table = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        raise ConfigurationError([f"{source}: is not TOML: {str(error).splitlines()[0]}"]) from None
    node = SafeRepresenter().represent_data(table)
    _place(node)
    return node


def _place(node: yaml.Node) -> None:
    nowhere = yaml.Mark("", 0, 0, 0, None, 0)
    node.start_mark = node.end_mark = nowhere
    if isinstance(node, yaml.ScalarNode) and node.tag.endswith(":str"):
        node.style = '"'  # a text is never a number
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _place(item)
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            _place(key)
            _place(value)
