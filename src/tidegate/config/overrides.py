"""How is a setting of a file replaced, so that the same file can be judged with other values?

    {"pools.*.queue.max_requests": "100", 'pools."llama-3.1-8b".replicas': "4"}

A path is the dotted one that problems name; `*` stands for every name at its place. The value is YAML. What
is not there yet is made. The document is changed before it is decoded, so that every check applies.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping

import yaml

from tidegate.config.problems import quoted
from tidegate.core.errors import ConfigurationError

MOST_REPLICAS = 10_000
_PART = re.compile(
    r'(?:^|(?<=.)\.)(?:(?P<name>[A-Za-z0-9_-]+|\*)|(?P<quoted>"(?:[^"\\]|\\.)*"))|(?<=.)\[(?P<index>[0-9]{1,6})\]'
)
_WHOLE = re.compile(r"[0-9]{1,9}")


def replace(node: yaml.Node, values: Mapping[str, str]) -> None:
    """Put `values` into a document. Raises ConfigurationError for a path that leads nowhere."""
    for path, text in values.items():
        try:
            value = yaml.compose(text, Loader=yaml.SafeLoader)
        except yaml.YAMLError:
            value = None
        if value is None:
            raise ConfigurationError([f"{path}: {quoted(text)} is no value; write it as in the file"])
        for parent, key in _places(node, parts_of(path), path):
            _put(parent, key, value, path)


def parts_of(path: str) -> list[str | int]:
    """Names and indices of a dotted path. Raises ConfigurationError if it is none."""
    parts: list[str | int] = []
    at = 0
    while found := _PART.match(path, at):
        at = found.end()
        if found["index"]:
            parts.append(int(found["index"]))
        else:
            parts.append(found["name"] or json.loads(found["quoted"]))
    if at < len(path) or not path:
        raise ConfigurationError(
            [f'{quoted(path)} is no path of a setting, such as pools."llama-3.1-8b".queue.max_requests']
        )
    return parts


def _places(node: yaml.Node, parts: list[str | int], path: str) -> Iterator[tuple[yaml.Node, str | int]]:
    """Where the path leads: parent and key, several if there is a `*`."""
    part, rest = parts[0], parts[1:]
    if part == "*":
        if not isinstance(node, yaml.MappingNode) or not node.value:
            raise ConfigurationError(
                [f"{path}: nothing has a name where * stands; the file says nothing there"]
            )
        for each in [key.value for key, _ in node.value]:
            yield from _places(node, [each, *rest], path)
    elif not rest:
        yield node, part
    else:
        yield from _places(_child(node, part, path), rest, path)


def _child(node: yaml.Node, part: str | int, path: str) -> yaml.Node:
    """What stands below, as a copy of its own: through aliases it may stand elsewhere as well."""
    if isinstance(part, int):
        _check_index(node, part, path)
        node.value[part] = child = _copy(node.value[part])
        return child
    items = _items(node, path)
    for place, (key, value) in enumerate(items):
        if key.value == part:
            child = _mapping([], value) if _is_null(value) else _copy(value)
            items[place] = (key, child)
            return child
    made = _mapping([], node)
    items.append((_text(part, node), made))
    return made


def _check_index(node: yaml.Node, index: int, path: str) -> None:
    if not isinstance(node, yaml.SequenceNode) or index >= len(node.value):
        raise ConfigurationError([f"{path}: there is no [{index}]; counting begins at 0"])


def _items(node: yaml.Node, path: str) -> list[tuple[yaml.ScalarNode, yaml.Node]]:
    if not isinstance(node, yaml.MappingNode):
        raise ConfigurationError([f"{path}: leads below a value that has no names in it"])
    items: list[tuple[yaml.ScalarNode, yaml.Node]] = node.value
    return items


def _put(parent: yaml.Node, key: str | int, value: yaml.Node, path: str) -> None:
    """The new value stands where the old one stood, and problems with it are found there."""
    if isinstance(key, int):
        _check_index(parent, key, path)
        parent.value[key] = _at(value, parent)
        return
    items = _items(parent, path)
    for place, (name, old) in enumerate(items):
        if name.value == key:
            if key == "replicas" and isinstance(value, yaml.ScalarNode) and _WHOLE.fullmatch(value.value):
                value = _so_many(old, int(value.value), path)
            items[place] = (name, _at(value, old))
            return
    items.append((_text(key, parent), _at(value, parent)))


def _so_many(replicas: yaml.Node, count: int, path: str) -> yaml.Node:
    """The first `count` of a list of replicas; if there are fewer, with further ones like the last."""
    if not isinstance(replicas, yaml.SequenceNode) or not replicas.value:
        raise ConfigurationError([f"{path}: there is no replica yet that others could be like"])
    if not 1 <= count <= MOST_REPLICAS:
        raise ConfigurationError([f"{path}: is {count}; it must be from 1 to {MOST_REPLICAS:,}"])
    last = replicas.value[-1]
    more = [_like(last, number) for number in range(len(replicas.value) + 1, count + 1)]
    values = [*replicas.value[:count], *more]
    return yaml.SequenceNode(replicas.tag, values, replicas.start_mark, replicas.end_mark)


def _like(replica: yaml.Node, number: int) -> yaml.Node:
    own = {"url": f"http://replica-{number}.simulated:80", "name": f"replica-{number}"}
    items = [(key, value) for key, value in replica.value if key.value not in own]
    items += [(_text(key, replica), _text(value, replica)) for key, value in own.items()]
    return _mapping(items, replica)


def _is_null(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:null"


def _text(text: str, near: yaml.Node) -> yaml.ScalarNode:
    return yaml.ScalarNode("tag:yaml.org,2002:str", text, near.start_mark, near.end_mark)


def _mapping(items: list[tuple[yaml.ScalarNode, yaml.Node]], near: yaml.Node) -> yaml.MappingNode:
    return yaml.MappingNode("tag:yaml.org,2002:map", items, near.start_mark, near.end_mark)


def _copy(node: yaml.Node) -> yaml.Node:
    """Of its outermost level."""
    if isinstance(node, yaml.ScalarNode):
        return node
    kind = yaml.MappingNode if isinstance(node, yaml.MappingNode) else yaml.SequenceNode
    return kind(node.tag, [*node.value], node.start_mark, node.end_mark)


def _at(value: yaml.Node, place: yaml.Node) -> yaml.Node:
    """A copy of `value` whose marks are those of `place`."""
    if isinstance(value, yaml.ScalarNode):
        return yaml.ScalarNode(value.tag, value.value, place.start_mark, place.end_mark, style=value.style)
    if isinstance(value, yaml.SequenceNode):
        items = [_at(each, place) for each in value.value]
        return yaml.SequenceNode(value.tag, items, place.start_mark, place.end_mark)
    pairs = [(_at(key, place), _at(each, place)) for key, each in value.value]
    return yaml.MappingNode(value.tag, pairs, place.start_mark, place.end_mark)
