"""Do the schema, the examples, the guide and the loader say the same?"""

import re
from datetime import date
from enum import Enum
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
import yaml
from msgspec import inspect

from tidegate.config import load, schema
from tidegate.config.addresses import Address, Origin
from tidegate.config.json_schema import structs
from tidegate.config.ranges import RANGES, range_of

DOCS = Path(__file__).parents[2] / "docs"
EXAMPLES = sorted((DOCS / "examples").glob("*.yaml"))
GUIDE = (DOCS / "guides" / "configuration.md").read_text()
SETTINGS = [kind for kind in structs() if kind not in (Address, Origin)]
STEPS = ("ClampStep", "FallbackStep", "ShedStep")
FAULTS = ("Crash", "Flap", "Slow", "Errors", "Drain", "Leave")
SECTIONS = {
    "Config": "The file",
    "TlsConfig": "tls",
    "AdminConfig": "admin",
    "ServerLimits": "http",
    "UpstreamConfig": "upstream",
    "PoolConfig": "pools",
    "ReplicaConfig": "pools.*.replicas",
    "ProbeConfig": "pools.*.probe",
    "QueueSettings": "pools.*.queue",
    "RoutingSettings": "pools.*.routing",
    "GateSettings": "pools.*.gate",
    "HealthSettings": "pools.*.health",
    "BreakerSettings": "pools.*.breaker",
    "RetrySettings": "pools.*.retry",
    "PredictionSettings": "pools.*.prediction",
    "Deadlines": "pools.*.deadlines",
    "ClassConfig": "classes",
    "Budgets": "classes.*.budgets",
    "TenantConfig": "tenants",
    "KeyConfig": "tenants.*.keys",
    "LimitSettings": "limits",
    "TokenWeights": "weights",
    "MediaConfig": "media",
    "SimulationConfig": "simulation",
    "SimulatedPool": "simulation.pools",
    "SimulatedReplica": "simulation.pools.*.replicas",
    "CurveConfig": "simulation.pools.*.curve",
    "TableConfig": "simulation.pools.*.table",
    "Line": "simulation.pools.*.table.line",
    "Grid": "simulation.pools.*.table.grid",
    "Stack": "simulation.pools.*.table.stack",
    "EngineConfig": "simulation.pools.*.engine",
    "Speculation": "simulation.pools.*.engine.speculation",
    "DisaggregationConfig": "simulation.pools.*.disaggregation",
    "PrefillConfig": "simulation.pools.*.disaggregation.prefill",
    "Link": "simulation.pools.*.disaggregation.link",
    "SimulatedTenant": "simulation.tenants",
    "Network": "simulation.network",
    "ClientSettings": "simulation.clients",
} | {
    **dict.fromkeys(STEPS, "pools.*.degradation"),
    **dict.fromkeys(FAULTS, "simulation.faults"),
}


def plain(path: Path) -> Any:
    """A file as plain data, with a date as its text, which is what JSON has."""
    return _dates_as_text(yaml.safe_load(path.read_text()))


def _dates_as_text(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _dates_as_text(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_dates_as_text(each) for each in value]
    return value.isoformat() if isinstance(value, date) else value


assert EXAMPLES, "the examples are not where these tests look"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_examples_load_and_hold_the_schema(path: Path) -> None:
    """Every example is a configuration, for the loader and for an editor."""
    load(path, environ={})
    jsonschema.validate(plain(path), schema())


def test_the_schema_is_one() -> None:
    """It holds the rules of its own dialect."""
    jsonschema.Draft202012Validator.check_schema(schema())


@pytest.mark.parametrize(
    "change",
    [
        {"nonsense": 1},
        {"http": {"nonsense": 1}},
        {"listen": 8080},
        {"shutdown_delay_s": -1},
        {"shutdown_grace_s": -1},
        {"limits": {"tokens_per_minute": 0}},
        {"pools": {"m": {"replicas": [{"url": "ftp://e"}]}}},
        {"pools": {"m": {"replicas": [{"url": "http://e", "nonsense": 1}]}}},
        {"pools": {"m": {"replicas": [{"url": "http://e"}], "degradation": [{"step": "shed"}]}}},
        {"tenants": {"t": {"keys": {"k": {"sha256": "tg-key"}}}}},
    ],
)
def test_the_schema_refuses(change: dict[str, Any]) -> None:
    """Unknown fields, wrong types and numbers out of range are marked while they are typed."""
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(plain(DOCS / "examples" / "minimal.yaml") | change, schema())


def numbers_of(kind: type[msgspec.Struct]) -> list[str]:
    def is_number(each: inspect.Type) -> bool:
        if isinstance(each, inspect.UnionType):
            return any(is_number(option) for option in each.types)
        return isinstance(each, inspect.IntType | inspect.FloatType)

    described = inspect.type_info(kind)
    assert isinstance(described, inspect.StructType)
    return [each.name for each in described.fields if is_number(each.type)]


def test_every_number_has_a_range_that_its_default_holds() -> None:
    """A setting that a mechanism gains is not forgotten here."""
    for kind in SETTINGS:
        defaults = {each.name: each.default for each in msgspec.structs.fields(kind) if not each.required}
        for name in numbers_of(kind):
            bounds = range_of(kind, name)
            assert bounds is not None, f"{kind.__name__}.{name}"
            default = defaults.get(name)
            assert default is None or bounds.holds(default), f"{kind.__name__}.{name}"


def test_every_range_is_of_a_number() -> None:
    """A setting that was renamed leaves no range behind."""
    for kind, bounds in RANGES.items():
        names = {each.name for each in msgspec.structs.fields(kind)}
        assert bounds.keys() <= names, kind.__name__


def section(title: str) -> str:
    found = re.search(rf"^##+ {re.escape(title)}\n(.*?)(?=^##+ |\Z)", GUIDE, re.MULTILINE | re.DOTALL)
    assert found, title
    return found[1]


def shown(default: Any) -> set[str]:
    """How the guide may show a default."""
    if isinstance(default, Enum):
        return {f"`{default.value}`"}
    if default is None or isinstance(default, bool):
        return {"`null`" if default is None else f"`{default}`".lower()}
    if isinstance(default, int | float):
        return {f"`{default:_.12g}`" if isinstance(default, float) else f"`{default:_}`"}
    if isinstance(default, Address) or (isinstance(default, str) and default):
        return {f"`{default}`"}
    if default == "":
        return {"-"}
    return {"`[]`"} if default == () else {"below"}


@pytest.mark.parametrize("kind", SETTINGS, ids=lambda kind: kind.__name__)
def test_the_guide_shows_every_setting_with_its_default(kind: type[msgspec.Struct]) -> None:
    """The reference cannot fall behind the settings."""
    rows = dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \| .", section(SECTIONS[kind.__name__]), re.MULTILINE))
    for each in msgspec.structs.fields(kind):
        want = {"required"} if each.required else shown(each.default)
        assert rows.pop(each.encode_name) in want, each.encode_name
    if kind.__name__ not in (*STEPS, *FAULTS):
        assert not rows, "the guide has settings that do not exist"


def test_the_full_example_shows_every_setting() -> None:
    """What can be set stands in `full.yaml`, if only in a comment."""
    text = (DOCS / "examples" / "full.yaml").read_text()
    for kind in SETTINGS:
        for each in msgspec.structs.fields(kind):
            assert re.search(rf"\b{each.encode_name}: ?", text), f"{kind.__name__}.{each.name}"
