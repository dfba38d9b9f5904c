"""What holds for every text, and for every configuration?"""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.config import digest_of, new_key, parse
from tidegate.config.addresses import Address, Origin
from tidegate.core.errors import ConfigurationError

WORDS = [
    *["pools", "replicas", "url", "http://e:1", "classes", "tenants", "keys", "sha256", "limits", "gate"],
    *["degradation", "step", "clamp", "above", "below", "listen", "127.0.0.1:1", "name", "expires", "<<"],
    *["null", "~", "true", ".nan", "1e9", "-1", "0", "2030-01-01", "a" * 64, "&a", "*a", "!!int", "''", "\t"],
]


def read(text: str) -> None:
    """It becomes a configuration, or problems of one line each, whatever the text."""
    try:
        parse(text, "f.yaml", environ={})
    except ConfigurationError as error:
        problems = error.problems
    else:
        return
    assert problems
    assert all(each.startswith("f.yaml") and len(each.splitlines()) == 1 for each in problems)


@given(st.text())
def test_any_text_gives_a_configuration_or_problems(text: str) -> None:
    """Nothing but `ConfigurationError` escapes, and its problems are one line each."""
    read(text)


@given(st.lists(st.sampled_from([*WORDS, "{", "}", "[", "]", ": ", ", ", "- ", "\n", "\n  "]), max_size=40))
def test_any_yaml_like_text_gives_a_configuration_or_problems(parts: list[str]) -> None:
    """The same for text that comes much closer to YAML."""
    read("".join(parts))


def nested(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    keys = st.sampled_from(WORDS)
    return st.lists(leaves, max_size=4) | st.dictionaries(keys, leaves, max_size=4)


@settings(max_examples=50)
@given(st.recursive(st.sampled_from(WORDS) | st.none() | st.booleans() | st.floats() | st.integers(), nested))
def test_any_data_gives_a_configuration_or_problems(data: Any) -> None:
    """The same for well-formed data of any shape, as a whole and as a pool, a class or a tenant."""
    read(json.dumps(data))
    for section in ("pools", "classes", "tenants"):
        read(json.dumps({"pools": {"m": {"replicas": [{"url": "http://e"}]}}} | {section: {"x": data}}))


ADDRESSES = st.builds(Address, st.sampled_from(["127.0.0.1", "localhost", "::1"]), st.integers(0, 65_535))
ORIGINS = st.builds(
    Origin,
    st.sampled_from(["http", "https"]),
    st.ip_addresses().map(str) | st.from_regex(r"\A[a-z][a-z0-9]{0,8}(\.[a-z]{1,5})?\Z"),
    st.integers(1, 65_535),
    st.sampled_from(["", "/engine", "/a/b"]),
)
SECONDS = st.floats(0.01, 1e6)
NAMES = st.from_regex(r"\A[A-Za-z0-9._-]{1,12}\Z")


TOP = st.fixed_dictionaries(
    {"listen": ADDRESSES, "shutdown_delay_s": SECONDS, "shutdown_grace_s": SECONDS},
    optional={"default_class": st.just("default"), "weights": st.fixed_dictionaries({"output": SECONDS})},
)
REPLICAS = st.lists(
    st.fixed_dictionaries({"url": ORIGINS}),
    min_size=1,
    max_size=4,
    unique_by=lambda replica: (replica["url"].host, replica["url"].port, replica["url"].path),
)
POOLS = st.fixed_dictionaries(
    {"replicas": REPLICAS},
    optional={
        "queue": st.fixed_dictionaries({"max_requests": st.integers(0, 10**6)}),
        "context_tokens": st.none() | st.integers(1, 10**7),
        "inject_usage": st.booleans(),
        "limits": st.fixed_dictionaries({"burst_s": SECONDS, "tokens_per_minute": st.none() | SECONDS}),
    },
)


@settings(max_examples=50)
@given(TOP, st.dictionaries(NAMES, POOLS, min_size=1, max_size=4))
def test_what_is_written_is_what_is_read(top: dict[str, Any], pools: dict[str, Any]) -> None:
    """Every value of a file that is right comes back as it was written; JSON is YAML too."""
    written = top | {"pools": pools}

    config = parse(json.dumps(written, default=str), "f.yaml", environ={})

    assert config.listen == top["listen"]
    assert config.shutdown_delay_s == top["shutdown_delay_s"]
    assert config.shutdown_grace_s == top["shutdown_grace_s"]
    assert list(config.pools) == list(pools)
    for name, given_pool in pools.items():
        pool = config.pools[name]
        assert [replica.url for replica in pool.replicas] == [each["url"] for each in given_pool["replicas"]]
        for section in ("queue", "limits"):
            for key, value in given_pool.get(section, {}).items():
                assert getattr(getattr(pool, section), key) == value
        assert pool.context_tokens == given_pool.get("context_tokens")
        assert pool.inject_usage is given_pool.get("inject_usage", True)


@given(ADDRESSES | ORIGINS)
def test_addresses_and_origins_survive_their_text(value: Address | Origin) -> None:
    """What is shown can be pasted into a file again."""
    assert type(value).parse(str(value)) == value


def test_keys_are_new_each_time_and_known_by_their_digest() -> None:
    """A key carries 32 random bytes behind its prefix; the digest is that of the whole."""
    keys = {new_key() for _ in range(100)}

    assert len({plain for plain, _ in keys}) == len({digest for _, digest in keys}) == 100
    for plain, digest in keys:
        assert plain.startswith("tg-")
        assert len(plain) == len("tg-") + 43
        assert digest == digest_of(plain.encode())


def test_the_digest_of_a_known_text() -> None:
    """SHA-256 of "abc". Source: FIPS 180-2, appendix B.1."""
    assert digest_of(b"abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_a_key_pasted_for_a_digest_never_passes() -> None:
    """No key that we make can be mistaken for its digest."""
    plain, _ = new_key()
    text = "pools: {m: {replicas: [{url: http://e}]}}\n"
    text += f"tenants: {{t: {{keys: {{k: {{sha256: {plain}}}}}}}}}"
    with pytest.raises(ConfigurationError) as caught:
        parse(text, "f")
    assert plain not in str(caught.value)
