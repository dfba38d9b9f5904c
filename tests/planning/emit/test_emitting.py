"""Is what is written a configuration that every command takes, and is nothing lost by writing it?"""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.plan.advice.test_advising import ENGINE, LOAD, answered, asked
from tidegate.cli import command_line
from tidegate.config import load
from tidegate.config.profiles import profile_of
from tidegate.config.traffic_loading import load_traffic
from tidegate.core.curve import Grid, Line, Table
from tidegate.core.errors import ConfigurationError
from tidegate.core.records import Budgets
from tidegate.plan.advice.advising import advise
from tidegate.plan.answer import Answer
from tidegate.plan.answering import answer_to
from tidegate.plan.ask import Ask, HandFigures, Kind, Load, Terms
from tidegate.plan.laws.engine import Engine
from tidegate.plan.tenants import tenants_of
from tidegate.planning.emit.emitting import Emitted, emitted, traffic_path, write
from tidegate.planning.emit.yaml_lines import inline

TABLE = Table(
    tokens=Line(points=(1.0, 256.0, 8192.0), seconds=(0.0064, 0.0066, 0.17)),
    sequences=Line(points=(1.0, 256.0), seconds=(1e-4, 2.7e-3)),
    decode=Grid(rows=(1.0, 256.0), columns=(0.0, 8192.0), seconds=((0.0, 3e-4), (0.0, 0.082))),
)
BY_TABLE = Engine(
    curve=TABLE, max_num_seqs=256, max_batched_tokens=8192, kv_tokens=400_000, context_tokens=8192
)
MANY = Load(
    kinds=(
        Kind(prompt_tokens=500, output_tokens=100, share=3, tenant="chat", class_="interactive"),
        Kind(prompt_tokens=50, output_tokens=300, share=2, tenant="chat", class_="batch"),
        Kind(prompt_tokens=4_000, output_tokens=10, share=1, tenant="no", class_="batch"),
    ),
    requests_per_s=2.0,
    gap_cv=2.0,
)
BY_HAND = Ask(
    load=Load(kinds=(Kind(prompt_tokens=0, output_tokens=500),), requests_per_s=10),
    replica=HandFigures(tokens_per_s=2000, tpot_s=0.02),
    terms=Terms(budgets=Budgets(tpot_s=0.02)),
)


def hit(load: Load) -> Load:
    return Load(kinds=load.kinds, requests_per_s=2.0, prefix_hit_ratio=0.4)


ASKS: dict[str, tuple[Ask, Answer, dict[str, float]]] = {
    "two tenants": (asked(1.0), answered(), {"a": 3.0, "b": 1.0}),
    "no budgets": (asked(), answered(1), {}),
    "tables": (asked(1.0, engine=BY_TABLE), answered(3, sequences=200), {}),
    "tenants and classes of the load": (asked(1.0, MANY), answered(), {"no": 2.0}),
    "prefixes": (asked(1.0, hit(LOAD)), answered(), {}),
    "lengths that vary": (
        asked(1.0, Load(kinds=(Kind(prompt_tokens=500, output_tokens=100, prompt_cv=1.0, output_cv=0.5),))),
        answered(),
        {},
    ),
    "users": (asked(1.0, Load(kinds=LOAD.kinds, users=20, think_s=5.0)), answered(), {}),
}


def written(path: Path, ask: Ask, answer: Answer, weights: dict[str, float] | None = None) -> Emitted:
    tenants = tenants_of(ask.load, weights or {})
    texts = emitted((ask, answer, advise(ask, answer, tenants)), tenants, path)
    write(texts, path)
    return texts


def run(*arguments: str) -> Any:
    return CliRunner().invoke(command_line(), arguments)


@pytest.mark.parametrize("name", ASKS)
def test_commands_take_it(name: str, tmp_path: Path) -> None:
    """`config check` has nothing against it, and `simulate` runs it with the traffic beside it."""
    path = tmp_path / "tidegate.yaml"
    written(path, *ASKS[name])

    checked = run("config", "check", str(path))
    assert checked.exit_code == 0, checked.output
    assert "warning" not in checked.output

    traffic = str(traffic_path(path))
    simulated = run("simulate", str(path), "--traffic", traffic, "--for", "20s", "--json")
    assert simulated.exit_code == 0, simulated.output


def test_way_one_answered(tmp_path: Path) -> None:
    """Two figures are enough for a configuration, and for a simulation that repeats them."""
    answer = answer_to(BY_HAND)
    assert isinstance(answer, Answer)
    path = tmp_path / "tidegate.yaml"
    written(path, BY_HAND, answer)

    config = load(path, environ={})
    (pool,) = config.pools.values()
    assert len(pool.replicas) == answer.replicas
    assert pool.gate.max_concurrency == answer.concurrency_per_replica
    profile = profile_of(config.simulation.pools["model"])
    assert profile.curve.step_s(40, 1e5, ((10_000, 0),)) == 0.02


def test_every_figure_is_in_the_file(tmp_path: Path) -> None:
    """What is advised is what the gateway is told, and its reason stands above it."""
    ask, answer, weights = ASKS["two tenants"]
    tenants = tenants_of(ask.load, weights)
    advice = advise(ask, answer, tenants)
    path = tmp_path / "tidegate.yaml"
    text = written(path, ask, answer, weights).configuration
    settings = load(path, environ={}).governor_settings()
    pool, own = settings.pools["model"], settings.tenants["a"]
    assert own.limits is not None

    figures = [
        (advice.gate.max_concurrency, pool.gate.max_concurrency),
        (advice.gate.kv_tokens, pool.gate.kv_tokens),
        (advice.gate.max_prefill_tokens, pool.gate.max_prefill_tokens),
        (advice.queue.max_requests, pool.queue.max_requests),
        (advice.queue.max_tokens, pool.queue.max_tokens),
        (advice.queue.max_wait_s["default"], settings.classes["default"].max_wait_s),
        (advice.deadlines.ttft_s, pool.deadlines.ttft_s),
        (advice.deadlines.total_s, pool.deadlines.total_s),
        (advice.tenants["a"].tokens_per_minute, own.limits.tokens_per_minute),
        (advice.tenants["a"].burst_s, own.limits.burst_s),
        (advice.weights.output, settings.weights.output),
        (advice.prediction.output_tokens, pool.prediction.output_tokens),
    ]
    plain = " ".join(text.replace("#", " ").split())
    for figure, told in figures:
        assert told == figure.value
        assert figure.reason in plain
    assert own.weight == 3.0
    assert pool.routing.policy == advice.routing.value
    assert [(each.above, each.below) for each in pool.degradation] == [
        (each.above, each.below) for each in advice.degradation if each.active
    ]


def test_step_times_survive(tmp_path: Path) -> None:
    """A curve read back is the same one, line or tables."""
    for number, engine in enumerate((ENGINE, BY_TABLE)):
        path = tmp_path / f"{number}.yaml"
        written(path, asked(1.0, engine=engine), answered())
        profile = profile_of(load(path, environ={}).simulation.pools["model"])
        assert profile.curve == engine.curve
        assert profile.replica.kv_tokens == engine.kv_tokens


def test_the_traffic_is_the_load(tmp_path: Path) -> None:
    """Kinds come at their shares of the rate, from their tenants and classes; heads of prompts are shared."""
    path = tmp_path / "tidegate.yaml"
    written(path, *ASKS["tenants and classes of the load"])
    planned = list(islice(load_traffic(traffic_path(path)).workload(1).starts(), 6_000))

    assert len(planned) / planned[-1].at_s == pytest.approx(2.0, rel=0.1)
    for tenant, class_, prompt_tokens, share in [
        ("chat", "interactive", 500, 1 / 2),
        ("chat", "batch", 50, 1 / 3),
        ("no", "batch", 4_000, 1 / 6),
    ]:
        own = [each for each in planned if (each.tenant, each.priority) == (tenant, class_)]
        own = [each for each in own if each.prompt_tokens == prompt_tokens]
        assert len(own) / len(planned) == pytest.approx(share, rel=0.2)

    path = tmp_path / "shared.yaml"
    written(path, *ASKS["prefixes"])
    one, other = islice(load_traffic(traffic_path(path)).workload(1).starts(), 2)
    assert one.prompt_tokens == other.prompt_tokens == 1_000
    assert len(set(one.prefix) & set(other.prefix)) * 16 == 400


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    """What is there stays unless --force says otherwise; a folder that is not there is said."""
    path = tmp_path / "tidegate.yaml"
    texts = written(path, *ASKS["no budgets"])
    path.write_text("mine")
    with pytest.raises(ConfigurationError) as caught:
        write(texts, path)
    assert caught.value.problems == [
        f"--emit {path}: is there already; write --force to replace it",
        f"--emit {traffic_path(path)}: is there already; write --force to replace it",
    ]
    assert path.read_text() == "mine"

    write(texts, path, force=True)
    assert path.read_text() == texts.configuration
    assert sorted(each.name for each in tmp_path.iterdir()) == ["tidegate.traffic.yaml", "tidegate.yaml"]

    with pytest.raises(ConfigurationError, match="there is no folder"):
        write(texts, tmp_path / "none" / "tidegate.yaml")


def test_what_cannot_be_written_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk is said, and no half of a file is left behind."""
    texts = Emitted(configuration="c", traffic="t")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(ConfigurationError, match="No space left on device"):
        write(texts, tmp_path / "tidegate.yaml")
    assert list(tmp_path.iterdir()) == []


def test_words_that_yaml_would_read_otherwise() -> None:
    """A tenant may be called no."""
    for value, text in [
        ("no", '"no"'),
        ("a b", '"a b"'),
        ("acme", "acme"),
        ("1", '"1"'),
        (12_000, "12_000"),
        (2.0, "2"),
        (1e-5, "1e-05"),
        (True, "true"),
        (None, "null"),
    ]:
        assert inline(value) == text
    assert inline({"a": [1, "x"], "b": None}) == "{a: [1, x]}"
