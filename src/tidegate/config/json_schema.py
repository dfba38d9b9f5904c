"""What does an editor need to help with the file? Its JSON Schema, with meanings and bounds.

Types and defaults come from the settings themselves, meanings from the texts below their fields, bounds
from the table of ranges: nothing is said twice.
"""

from __future__ import annotations

import ast
from inspect import getsource
from textwrap import dedent
from typing import Any

import msgspec
from msgspec import inspect

from tidegate.config.addresses import Address, Origin
from tidegate.config.model import Config
from tidegate.config.ranges import Range, range_of
from tidegate.config.schema import File

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_TEXTS: dict[type, dict[str, Any]] = {
    Address: {"type": "string", "pattern": ".:[0-9]{1,5}$", "description": "host:port"},
    Origin: {"type": "string", "pattern": "^https?://.", "description": "http or https URL"},
}
"""Structs that are one text in the file."""


def schema() -> dict[str, Any]:
    """The schema of the configuration file, JSON Schema draft 2020-12."""
    _, components = msgspec.json.schema_components(
        [Config], schema_hook=lambda _: {"type": "string"}, ref_template="#/$defs/{name}"
    )
    for kind in structs():
        component = components[kind.__name__]
        if kind in _TEXTS:
            components[kind.__name__] = _TEXTS[kind]
        else:
            _annotate(kind, component)
    root = components.pop(Config.__name__)
    whole = {
        "$schema": DIALECT,
        **root,
        "title": "tidegate",
        "description": File.__doc__,
        "$defs": components,
    }
    return msgspec.json.decode(
        msgspec.json.encode(whole), type=dict[str, Any]
    )  # defaults are tuples, JSON has lists


def structs() -> list[type[msgspec.Struct]]:
    """Every struct that the file is made of, the root first."""
    found: dict[type[msgspec.Struct], None] = {}
    _collect(inspect.type_info(Config), found)
    return list(found)


def meanings(kind: type) -> dict[str, str]:
    """What is written below the fields of a struct and of its bases, by the field's name."""
    texts: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if issubclass(base, msgspec.Struct) and base is not msgspec.Struct:
            texts |= _texts_below_fields(base)
    return texts


def _annotate(kind: type[msgspec.Struct], component: dict[str, Any]) -> None:
    texts = meanings(kind)
    for each in msgspec.structs.fields(kind):
        entry = component["properties"][each.encode_name]
        if each.name in texts:
            entry["description"] = texts[each.name]
        bounds = range_of(kind, each.name)
        if bounds is not None:
            _bound(entry, bounds)
        if isinstance(each.default, msgspec.Struct):
            # Its own fields say their defaults; only what is a text in the file is said here.
            entry.pop("default")
            if type(each.default) in _TEXTS:
                entry["default"] = str(each.default)


def _bound(entry: dict[str, Any], bounds: Range) -> None:
    """Put bounds on the number in `entry`, which may be one alternative of several."""
    for option in entry.get("anyOf", [entry]):
        if option["type"] != "null":
            option["exclusiveMinimum" if bounds.above else "minimum"] = bounds.low
            option["exclusiveMaximum" if bounds.under else "maximum"] = bounds.high


def _collect(kind: inspect.Type, found: dict[type[msgspec.Struct], None]) -> None:
    match kind:
        case inspect.StructType(cls=cls, fields=fields):
            if cls not in found:
                found[cls] = None
                for each in fields:
                    _collect(each.type, found)
        case inspect.UnionType(types=types):
            for option in types:
                _collect(option, found)
        case inspect.VarTupleType(item_type=item):
            _collect(item, found)
        case inspect.DictType(value_type=value):
            _collect(value, found)


def _texts_below_fields(kind: type) -> dict[str, str]:
    body = ast.parse(dedent(getsource(kind))).body[0]
    assert isinstance(body, ast.ClassDef)
    texts = {}
    for statement, below in zip(body.body, body.body[1:], strict=False):
        match statement, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                texts[name] = " ".join(text.split()).replace("None", "null")
    return texts
