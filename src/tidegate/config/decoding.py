"""How does YAML become typed settings, with every mistake placed?

The YAML is only ever *composed* into nodes, which know their lines; no tag constructs anything. The nodes
are walked along the types of the settings, so that a value is read as what is expected at its place:
`name: no` is the text "no" and `1e6` a number. A wrong value is a problem and the walk goes on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any, Final

import yaml
from msgspec import inspect

from tidegate.config.addresses import Address, Origin
from tidegate.config.problems import Mark, Problem, Where, did_you_mean, quoted
from tidegate.config.ranges import range_of
from tidegate.core.errors import ConfigurationError

MAX_REPEATED = 10_000
"""Values reached once more through aliases; bounds what a few lines of YAML can unfold to."""

INVALID: Final = object()
"""In place of a value that could not be read; its problem has been noted."""

_INTEGER = re.compile(r"[-+]?[0-9](?:_?[0-9])*")
_NUMBER = re.compile(r"[-+]?(?:[0-9](?:_?[0-9])*\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
_SPECIAL = re.compile(r"[-+]?\.(?:inf|Inf|INF|nan|NaN|NAN)")
_CORE = ("null", "bool", "int", "float", "str", "timestamp", "seq", "map", "value", "merge")
_TAGS = {f"tag:yaml.org,2002:{name}" for name in _CORE}
_NULL, _BOOL = "tag:yaml.org,2002:null", "tag:yaml.org,2002:bool"
_TRUE = {"true", "yes", "on"}
_UNITS = {
    "_s": "; write a bare number of seconds",
    "_bytes": "; write a bare number of bytes",
    "_tokens": "; write a bare number of tokens",
    "_per_minute": "; write a bare number per minute",
}


def of_type(kind: object) -> inspect.Type:
    """The description of a type along which a node is decoded."""
    return inspect.type_info(kind)


@dataclass(slots=True)
class Decoder:
    """Decodes one document. Paths in it are relative to `base`."""

    base: Path
    problems: list[Problem] = field(default_factory=list)
    unread: list[Where] = field(default_factory=list)
    """Places whose value could not be read; a default stands in, or the whole is left out."""
    marks: dict[Where, Mark] = field(default_factory=dict)
    _kept: dict[Where, list[int]] = field(default_factory=dict)  # of lists that lost unreadable items
    _met: set[int] = field(default_factory=set)
    _repeated: int = 0

    def decode(self, node: yaml.Node, kind: inspect.Type, where: Where) -> Any:
        """The value of `node` read as `kind`, or INVALID."""
        self.marks.setdefault(where, mark_of(node))
        if not self._bounded(node, where):
            return INVALID
        if node.tag not in _TAGS:
            return self._wrong(where, node, f"has the YAML tag {quoted(node.tag)}; tags are not supported")
        return self._read(node, kind, where)

    def in_file(self, where: Where) -> Where:
        """The path that a value of the result has in the file, where unreadable items still count."""
        path: Where = ()
        for part in where:
            path = (*path, self._kept[path][part] if isinstance(part, int) else part)
        return path

    def _read(self, node: yaml.Node, kind: inspect.Type, where: Where) -> Any:
        if isinstance(kind, inspect.UnionType):
            return self._union(node, kind, where)
        if node.tag == _NULL and not isinstance(kind, inspect.StrType):
            return self._empty(where, node, expected(kind))
        if isinstance(kind, inspect.StructType) and kind.cls not in _LEAVES:
            return self._struct(node, kind, where)
        if isinstance(kind, inspect.DictType):
            return self._dict(node, kind, where)
        if isinstance(kind, inspect.VarTupleType):
            return self._list(node, kind, where)
        return self._scalar(node, kind, where)

    # -- containers -------------------------------------------------------------------------------

    def _union(self, node: yaml.Node, kind: inspect.UnionType, where: Where) -> Any:
        options = [each for each in kind.types if not isinstance(each, inspect.NoneType)]
        if kind.includes_none and node.tag == _NULL:
            if _text(node) == "":
                return self._wrong(
                    where, node, "has no value; write null if none is meant, else remove the key"
                )
            return None
        if len(options) == 1:
            return self._read(node, options[0], where)
        return self._tagged(node, [each for each in options if isinstance(each, inspect.StructType)], where)

    def _tagged(self, node: yaml.Node, options: list[inspect.StructType], where: Where) -> Any:
        tag_field = str(options[0].tag_field)
        by_tag = {str(each.tag): each for each in options}
        if not isinstance(node, yaml.MappingNode):
            return self._mismatch(where, node, "a mapping")
        for key, value in node.value:
            if _text(key) == tag_field:
                chosen = by_tag.get(_text(value))
                if chosen is None:
                    remedy = did_you_mean(_text(value), by_tag)
                    return self._wrong((*where, tag_field), value, f"is not known; {remedy}")
                return self._struct(node, chosen, where)
        return self._wrong(where, node, f"lacks {tag_field}; it is one of {', '.join(by_tag)}")

    def _struct(self, node: yaml.Node, kind: inspect.StructType, where: Where) -> Any:
        items = self._items(node, where)
        if items is None:
            return INVALID
        fields = {each.encode_name: each for each in kind.fields}
        values: dict[str, Any] = {}
        for name, (key, value_node) in items.items():
            if name in fields:
                each = fields[name]
                value = self.decode(value_node, each.type, (*where, name))
                self._check_range(kind.cls, each.name, value, (*where, name))
                if value is not INVALID:
                    values[each.name] = value
            elif name != kind.tag_field:
                self._wrong((*where, name), key, f"is not a setting; {did_you_mean(name, fields)}")
        missing = [each for each in kind.fields if each.required and each.name not in values]
        for each in missing:
            if each.encode_name not in items:
                self._wrong(where, node, f"lacks {each.encode_name}; it needs {expected(each.type)}")
        return INVALID if missing else self._made(kind.cls, values, node, where)

    def _made(self, kind: type, values: dict[str, Any], node: yaml.Node, where: Where) -> Any:
        """Some structs judge themselves; what a range has said of a value is not said again."""
        try:
            return kind(**values)
        except ConfigurationError as error:
            if not any(problem.where[: len(where)] == where for problem in self.problems):
                self.problems += [Problem(where, text, mark_of(node)) for text in error.problems]
            self.unread.append(where)
            return INVALID

    def _dict(self, node: yaml.Node, kind: inspect.DictType, where: Where) -> Any:
        items = self._items(node, where)
        if items is None:
            return INVALID
        values = {
            name: self.decode(each, kind.value_type, (*where, name)) for name, (_, each) in items.items()
        }
        return {name: value for name, value in values.items() if value is not INVALID}

    def _list(self, node: yaml.Node, kind: inspect.VarTupleType, where: Where) -> Any:
        if not isinstance(node, yaml.SequenceNode):
            return self._mismatch(where, node, "a list", "; put it into brackets: [ ... ]")
        values = [self.decode(each, kind.item_type, (*where, i)) for i, each in enumerate(node.value)]
        kept = [i for i, value in enumerate(values) if value is not INVALID]
        self._kept[where] = kept
        return tuple(values[i] for i in kept)

    def _items(self, node: yaml.Node, where: Where) -> dict[str, tuple[yaml.Node, yaml.Node]] | None:
        """Key and value by the key's text; of a key that stands twice the first counts."""
        if not isinstance(node, yaml.MappingNode):
            self._mismatch(where, node, "a mapping of keys to values")
            return None
        items: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self._wrong(where, key, "has a key that is not text; a key is a single word")
            elif key.value == "<<":
                self._wrong(where, key, "has a merge key (<<); write the keys out, or alias a whole value")
            elif key.value in items:
                line = self.marks[(*where, key.value)][0]
                self._wrong(
                    (*where, key.value), key, f"stands twice, first in line {line}; remove one of them"
                )
            else:
                items[key.value] = key, value
                # A container is best found by its key, a scalar by itself.
                self.marks[(*where, key.value)] = mark_of(
                    value if isinstance(value, yaml.ScalarNode) else key
                )
        return items

    # -- scalars ----------------------------------------------------------------------------------

    def _scalar(self, node: yaml.Node, kind: inspect.Type, where: Where) -> Any:
        if not isinstance(node, yaml.ScalarNode):
            return self._mismatch(where, node, expected(kind))
        match kind:
            case inspect.BoolType():
                if node.tag == _BOOL:
                    return node.value.lower() in _TRUE
                return self._mismatch(where, node, expected(kind))
            case inspect.IntType():
                return self._integer(node, where)
            case inspect.FloatType():
                return self._number(node, where)
            case inspect.StrType():
                return self._string(node, where)
            case inspect.EnumType(cls=cls):
                return self._word(node, {str(each.value): each for each in cls}, where)
            case inspect.LiteralType(values=words):
                return self._word(node, {str(each): str(each) for each in words}, where)
            case inspect.DateType():
                return self._leaf(node, _date, where)
            case inspect.StructType(cls=cls) | inspect.CustomType(cls=cls):
                return self._leaf(node, self._path if cls is Path else _LEAVES[cls], where)
        raise AssertionError(f"no setting may be a {kind}")

    def _word(self, node: yaml.ScalarNode, known: Mapping[str, Any], where: Where) -> Any:
        if node.value in known:
            return known[node.value]
        return self._wrong(where, node, f"is not known; {did_you_mean(node.value, known)}")

    def _integer(self, node: yaml.ScalarNode, where: Where) -> Any:
        if not _is_plain(node) or not _INTEGER.fullmatch(node.value):
            return self._mismatch(where, node, "a whole number", _unit_of(where))
        if len(node.value) > 30:
            return self._wrong(where, node, "has too many digits; write a smaller number")
        return int(node.value)

    def _number(self, node: yaml.ScalarNode, where: Where) -> Any:
        text = node.value
        if not _is_plain(node) or not (_NUMBER.fullmatch(text) or _SPECIAL.fullmatch(text)):
            return self._mismatch(where, node, "a number", _unit_of(where))
        # Python spells YAML's .inf and .nan without the dot; the range then refuses them.
        return float(text.replace(".", "") if _SPECIAL.fullmatch(text) else text)

    def _string(self, node: yaml.ScalarNode, where: Where) -> Any:
        if (_is_plain(node) and node.tag == _NULL) or not node.value:
            return self._empty(where, node, "text")
        return node.value

    def _leaf(self, node: yaml.ScalarNode, parse: Callable[[str], Any], where: Where) -> Any:
        text = self._string(node, where)
        if text is INVALID:
            return INVALID
        try:
            return parse(text)
        except ValueError as error:
            return self._wrong(where, node, str(error))

    def _path(self, text: str) -> Path:
        if not text.isprintable():  # such as a NUL, which no system call takes
            raise ValueError("is not a path; it has characters that cannot be printed")
        return self.base / text

    # -- problems ---------------------------------------------------------------------------------

    def _bounded(self, node: yaml.Node, where: Where) -> bool:
        if id(node) not in self._met:
            self._met.add(id(node))
            return True
        self._repeated += 1
        if self._repeated == MAX_REPEATED:
            self._wrong(
                where, node, f"is beyond the {MAX_REPEATED} values that aliases may stand for; use fewer"
            )
        return self._repeated < MAX_REPEATED

    def _check_range(self, owner: type, name: str, value: Any, where: Where) -> None:
        bounds = range_of(owner, name)
        if bounds is None or value is None or value is INVALID or bounds.holds(value):
            return
        self.problems.append(Problem(where, f"is {value:,.12g}; it must be {bounds}"))

    def _empty(self, where: Where, node: yaml.Node, wanted: str) -> Any:
        return self._wrong(where, node, f"has no value; it needs {wanted}, or remove the key")

    def _mismatch(self, where: Where, node: yaml.Node, wanted: str, remedy: str = "") -> Any:
        return self._wrong(where, node, f"needs {wanted}, not {_found(node)}{remedy}")

    def _wrong(self, where: Where, node: yaml.Node, text: str) -> Any:
        self.problems.append(Problem(where, text, mark_of(node)))
        self.unread.append(where)
        return INVALID


def mark_of(node: yaml.Node) -> Mark:
    """Where a node begins."""
    return node.start_mark.line + 1, node.start_mark.column + 1


def expected(kind: inspect.Type) -> str:
    """What a type asks for, in words."""
    match kind:
        case inspect.UnionType(types=types):
            return expected(next(each for each in types if not isinstance(each, inspect.NoneType)))
        case inspect.BoolType():
            return "true or false"
        case inspect.IntType():
            return "a whole number"
        case inspect.FloatType():
            return "a number"
        case inspect.VarTupleType():
            return "a list"
        case inspect.DictType():
            return "a mapping of keys to values"
        case inspect.EnumType(cls=cls):
            return "one of " + ", ".join(str(each.value) for each in cls)
        case inspect.LiteralType(values=words):
            return "one of " + ", ".join(str(each) for each in words)
        case inspect.StructType(cls=cls) if cls not in _LEAVES:
            return "a mapping of keys to values"
    return "text"


def _found(node: yaml.Node) -> str:
    # The value itself is not repeated: a secret may have slipped into any place.
    if isinstance(node, yaml.SequenceNode):
        return "a list"
    if isinstance(node, yaml.MappingNode):
        return "a mapping"
    if node.tag == _NULL:
        return "nothing"
    if not _is_plain(node):
        return "text in quotes"
    if node.tag == _BOOL:
        return "true or false"
    return "a number" if _NUMBER.fullmatch(_text(node)) else "text"


def _is_plain(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.style is None


def _text(node: yaml.Node) -> str:
    return node.value if isinstance(node, yaml.ScalarNode) else ""


def _unit_of(where: Where) -> str:
    name = str(where[-1]) if where else ""
    return next((remedy for ending, remedy in _UNITS.items() if name.endswith(ending)), "")


def _date(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise ValueError("is not a date; write such as 2030-12-31") from None


_LEAVES: dict[type, Callable[[str], Any]] = {Address: Address.parse, Origin: Origin.parse, Path: Path}
"""Types that are one text in the file."""
