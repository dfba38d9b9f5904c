"""Can one setting of a file be replaced, and is the result judged as any file is?"""

from __future__ import annotations

import pytest

from tidegate.config import parse
from tidegate.config.model import Config
from tidegate.config.overrides import parts_of
from tidegate.core.errors import ConfigurationError

FILE = """
pools:
  llama-3.1-8b:
    replicas:
      - {url: "http://a:8000", name: a, weight: 2}
      - {url: "http://b:8000", name: b}
    queue: &queue {max_requests: 10}
  qwen:
    replicas: [{url: "http://c:8000", credential_env: NOT_HERE}]
    queue: *queue
classes: {chat: {}, batch: {}}
admin: null
"""


def parsed(values: dict[str, str]) -> Config:
    """The file with those values."""
    return parse(FILE, "f.yaml", environ=None, values=values)


def problems(values: dict[str, str]) -> list[str]:
    """What is wrong with the file once those values are in it."""
    with pytest.raises(ConfigurationError) as caught:
        parse(FILE, "f.yaml", environ=None, values=values)
    return caught.value.problems


@pytest.mark.parametrize(
    "path, parts",
    [
        ("limits", ["limits"]),
        ("pools.*.queue", ["pools", "*", "queue"]),
        ('pools."llama-3.1-8b".replicas[0].url', ["pools", "llama-3.1-8b", "replicas", 0, "url"]),
        (r'pools."a\"b"', ["pools", 'a"b']),
    ],
)
def test_paths(path: str, parts: list[str | int]) -> None:
    """A path is the one that problems print."""
    assert parts_of(path) == parts


@pytest.mark.parametrize("path", ["", ".a", "a.", "a..b", "[0]", "a b", 'a."b', "a[x]", "ä"])
def test_what_is_no_path(path: str) -> None:
    """Anything else is refused with an example."""
    with pytest.raises(ConfigurationError, match="is no path of a setting, such as pools"):
        parts_of(path)


def test_a_value_is_replaced_in_one_place() -> None:
    """An alias of the same text elsewhere keeps its value."""
    config = parsed({'pools."llama-3.1-8b".queue.max_requests': "70"})

    assert [pool.queue.max_requests for pool in config.pools.values()] == [70, 10]


def test_every_name() -> None:
    """`*` reaches all pools, and makes what is not there yet."""
    config = parsed({"pools.*.routing.policy": "round_robin"})

    assert {pool.routing.policy for pool in config.pools.values()} == {"round_robin"}


def test_what_is_not_there_is_made() -> None:
    """Whole sections too, and what stands below a null."""
    config = parsed(
        {"limits.max_in_flight": "9", "admin.listen": "127.0.0.1:7", "classes.batch.max_wait_s": "7"}
    )

    assert config.limits is not None
    assert config.limits.max_in_flight == 9
    assert config.admin is not None
    assert config.admin.listen.port == 7
    assert config.classes["batch"].max_wait_s == 7


def test_an_item_of_a_list() -> None:
    """Lists are counted from 0."""
    config = parsed({'pools."llama-3.1-8b".replicas[1].weight': "3.5"})

    assert [replica.weight for replica in config.pools["llama-3.1-8b"].replicas] == [2, 3.5]


@pytest.mark.parametrize(
    "count, names", [(1, ["a"]), (2, ["a", "b"]), (4, ["a", "b", "replica-3", "replica-4"])]
)
def test_a_number_of_replicas(count: int, names: list[str]) -> None:
    """The first of them, or all and more that are like the last."""
    config = parsed({'pools."llama-3.1-8b".replicas': str(count)})

    assert [replica.name for replica in config.pools["llama-3.1-8b"].replicas] == names


@pytest.mark.parametrize(
    "path, value, problem",
    [
        (
            "pools.qwen.queue.max_requests",
            "1.5",
            "f.yaml:7:34: pools.qwen.queue.max_requests: needs a whole number, not a number",
        ),
        (
            "pools.qwen.queue.max_request",
            "1",
            'f.yaml:7:12: pools.qwen.queue.max_request: is not a setting; did you mean "max_requests"?',
        ),
        ("pools.qwen.replicas", "0", "pools.qwen.replicas: is 0; it must be from 1 to 10,000"),
        (
            "tenants.*.weight",
            "2",
            "tenants.*.weight: nothing has a name where * stands; the file says nothing there",
        ),
        (
            "pools.qwen.replicas[1].weight",
            "2",
            "pools.qwen.replicas[1].weight: there is no [1]; counting begins at 0",
        ),
        (
            "pools.qwen.replicas.weight",
            "2",
            "pools.qwen.replicas.weight: leads below a value that has no names in it",
        ),
        ("listen", "{", 'listen: "{" is no value; write it as in the file'),
        ("listen", "", 'listen: "" is no value; write it as in the file'),
    ],
)
def test_what_cannot_be(path: str, value: str, problem: str) -> None:
    """It is named as in a file, at the place of what was replaced."""
    found = problems({path: value})
    assert found == [problem]


def test_what_only_the_serving_machine_has() -> None:
    """A credential is not looked for unless the file is to be served here."""
    assert parsed({}).pools
    with pytest.raises(ConfigurationError, match="NOT_HERE"):
        parse(FILE, "f", environ={})
