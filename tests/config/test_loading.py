"""What does a file that is right mean?"""

from datetime import date
from pathlib import Path

import pytest

from tidegate.config import Address, Caller, Config, Origin, credential_of, for_url, load, parse
from tidegate.core.errors import ConfigurationError
from tidegate.policy.settings import (
    ClampStep,
    ClassSettings,
    FallbackStep,
    GateSettings,
    GovernorSettings,
    LimitSettings,
    Metering,
    PoolSettings,
    RoutingPolicy,
    TenantSettings,
)

A, B, C = "a" * 64, "b" * 64, "c" * 64
TWO_POOLS = f"""
pools:
  large:
    aliases: [big, huge]
    replicas:
      - {{url: "http://10.0.0.1:8000/engine/", weight: 2, model: org/Large, gate: {{kv_tokens: 9}}}}
      - {{url: "https://e", name: b}}
    gate: {{max_concurrency: 8}}
    routing: {{policy: round_robin}}
    degradation:
      - {{step: clamp, above: .7, below: 0.5, max_tokens: 1_000}}
      - {{step: fallback, above: 9e-1, below: 0.5, pool: small, classes: [low]}}
  small: {{replicas: [{{url: "http://[::1]:80"}}]}}
classes: {{high: {{budgets: {{ttft_s: 2}}}}, middle: {{max_wait_s: 1}}, low: {{}}}}
tenants:
  acme:
    class: middle
    pools: [large, small]
    weight: 2
    limits: {{tokens_per_minute: 1e6, metering: hard}}
    pool_limits: {{small: {{max_in_flight: 3}}}}
    keys:
      ci: {{sha256: {A.upper()}, pools: [small], expires: 2030-12-31, limits: {{requests_per_minute: 6}}}}
      web: {{sha256: {B}}}
  other: {{classes: [high], keys: {{k: {{sha256: {C}}}}}}}
limits: {{max_in_flight: 100}}
"""


def test_a_minimal_file_has_defaults_for_all_else() -> None:
    """One pool with one replica is a whole configuration."""
    config = parse("pools: {m: {replicas: [{url: http://e:8000}]}}", "f")

    assert config.listen == Address("127.0.0.1", 8080)
    assert config.admin is not None
    assert config.admin.listen == Address("127.0.0.1", 9090)
    assert config.open
    assert config.callers() == {}
    assert config.anonymous() == Caller(
        tenant="anonymous", key="", default_class="default", classes=("default",)
    )
    assert config.governor_settings() == GovernorSettings(pools={"m": PoolSettings()})
    (replica,) = config.pools["m"].replicas
    assert (replica.name, replica.url) == ("e:8000", Origin("http", "e", 8000))


def test_what_the_governor_is_told() -> None:
    """The governor gets its own types and nothing else, in the order of the file."""
    settings = parse(TWO_POOLS, "f").governor_settings()

    assert list(settings.pools) == ["large", "small"]
    large = settings.pools["large"]
    assert type(large) is PoolSettings
    assert large.gate == GateSettings(max_concurrency=8)
    assert large.routing.policy is RoutingPolicy.ROUND_ROBIN
    assert large.degradation == (
        ClampStep(above=0.7, below=0.5, max_tokens=1000),
        FallbackStep(above=0.9, below=0.5, pool="small", classes=("low",)),
    )
    assert list(settings.classes) == ["high", "middle", "low"]
    assert settings.classes["middle"] == ClassSettings(max_wait_s=1)
    assert type(settings.classes["high"]) is ClassSettings
    assert settings.tenants["acme"] == TenantSettings(
        weight=2,
        limits=LimitSettings(tokens_per_minute=1e6, metering=Metering.HARD),
        pools={"small": LimitSettings(max_in_flight=3)},
        keys={"ci": LimitSettings(requests_per_minute=6)},
    )
    assert settings.limits == LimitSettings(max_in_flight=100)


def test_whom_keys_stand_for() -> None:
    """A key opens the pools that both it and its tenant name, in the tenant's classes."""
    config = parse(TWO_POOLS, "f")

    assert not config.open
    assert config.callers() == {
        A: Caller(
            tenant="acme",
            key="ci",
            default_class="middle",
            classes=("middle", "low"),
            pools=frozenset({"small"}),
            expires=date(2030, 12, 31),
        ),
        B: Caller(
            tenant="acme",
            key="web",
            default_class="middle",
            classes=("middle", "low"),
            pools=frozenset({"large", "small"}),
        ),
        # No class named: the lowest, beside what it may ask for.
        C: Caller(tenant="other", key="k", default_class="low", classes=("high", "low")),
    }


def test_a_key_is_taken_to_the_end_of_its_last_day() -> None:
    """Expiry is a day in UTC and includes it."""
    caller = Caller(tenant="t", key="k", default_class="c", classes=("c",), expires=date(1970, 1, 2))

    for unix_s, valid in [(0.0, True), (2 * 86_400 - 0.001, True), (2 * 86_400.0, False)]:
        assert caller.valid_at(unix_s) is valid, unix_s


def test_models_and_replicas() -> None:
    """A model name leads to its pool; a replica is called by its URL unless it has a name."""
    config = parse(TWO_POOLS, "f")

    assert config.models() == {"large": "large", "big": "large", "huge": "large", "small": "small"}
    assert [(pool, replica.name, str(replica.url)) for pool, replica in config.replicas()] == [
        ("large", "10.0.0.1:8000/engine", "http://10.0.0.1:8000/engine"),
        ("large", "b", "https://e"),
        ("small", "[::1]:80", "http://[::1]"),
    ]
    assert [replica.gate for _, replica in config.replicas()] == [GateSettings(kv_tokens=9), None, None]


@pytest.mark.parametrize(
    ("text", "origin", "authority", "loopback"),
    [
        ("http://e", Origin("http", "e", 80), "e", False),
        ("https://e/", Origin("https", "e", 443), "e", False),
        ("HTTP://e:443", Origin("http", "e", 443), "e:443", False),
        ("http://127.0.0.1:8000/a/b/", Origin("http", "127.0.0.1", 8000, "/a/b"), "127.0.0.1:8000", True),
        ("https://[::1]", Origin("https", "::1", 443), "[::1]", True),
        ("https://[fe80::1]:1", Origin("https", "fe80::1", 1), "[fe80::1]:1", False),
        ("http://localhost", Origin("http", "localhost", 80), "localhost", True),
    ],
)
def test_origins(text: str, origin: Origin, authority: str, loopback: bool) -> None:
    """An origin knows what to connect to, and what belongs into the Host header."""
    parsed = Origin.parse(text)
    assert (parsed, parsed.authority, parsed.loopback) == (origin, authority, loopback)
    assert Origin.parse(str(parsed)) == parsed


def test_text_is_read_as_what_is_expected() -> None:
    """What YAML 1.1 takes for a truth value, a number or a date is text where text is expected."""
    config = parse(
        "pools: {no: {aliases: [1.0, on, 2024-01-01, 0x1F], replicas: [{url: http://e, name: 010}]}}", "f"
    )
    assert config.models() == dict.fromkeys(["no", "1.0", "on", "2024-01-01", "0x1F"], "no")
    assert config.pools["no"].replicas[0].name == "010"


def test_aliases_share_what_they_name() -> None:
    """An anchor may be used for the same settings elsewhere."""
    config = parse(
        "pools:\n  a: {replicas: [{url: http://e}], gate: &g {max_concurrency: 5}}\n"
        "  b: {replicas: [{url: http://f}], gate: *g}",
        "f",
    )
    assert config.pools["b"].gate == config.pools["a"].gate == GateSettings(max_concurrency=5)


def test_without_a_file() -> None:
    """URLs alone make one pool that serves whatever models its replicas list."""
    config = for_url(["http://127.0.0.1:8000", "http://127.0.0.1:8001"], listen="localhost:0")

    assert list(config.pools) == ["default"]
    assert config.pools["default"].discover
    assert [replica.name for _, replica in config.replicas()] == ["127.0.0.1:8000", "127.0.0.1:8001"]
    assert config.listen == Address("localhost", 0)


@pytest.mark.parametrize(
    ("urls", "listen", "words"),
    [
        ([], None, "is empty; a pool needs one replica"),
        (["http://e", "e:8000"], None, "urls[1]: needs a URL that begins with http://"),
        (["http://e", "http://e:80"], None, "is that of an earlier replica"),
        (["http://e"], "0.0.0.0:80", "no keys are configured"),
        (["http://e"], "80", "needs a host and a port"),
    ],
)
def test_mistakes_on_the_command_line(urls: list[str], listen: str | None, words: str) -> None:
    """What is wrong with URLs is said in the same words as in a file."""
    with pytest.raises(ConfigurationError) as caught:
        for_url(urls, listen)
    assert len(caught.value.problems) == 1
    assert caught.value.problems[0].startswith("command line: ")
    assert words in caught.value.problems[0]


def credentials_in(config: Config, **environ: str) -> list[str | None]:
    return [credential_of(replica, environ) for _, replica in config.replicas()]


def test_credentials(tmp_path: Path) -> None:
    """A credential comes from the environment or from a file beside the configuration."""
    path = tmp_path / "f.yaml"
    path.write_text(
        "pools: {m: {replicas: [{url: http://a, credential_env: KEY}, "
        "{url: http://b, credential_file: key.txt}, {url: http://c}]}}"
    )
    (tmp_path / "key.txt").write_text("from-file\n")

    config = load(path, environ={"KEY": "from-env"})

    assert credentials_in(config, KEY="from-env") == ["from-env", "from-file", None]
    with pytest.raises(ConfigurationError, match="KEY, which is not set"):
        credentials_in(config)
    (tmp_path / "key.txt").write_bytes(b"\xff")
    with pytest.raises(ConfigurationError, match="which is not text"):
        credentials_in(config, KEY="x")
