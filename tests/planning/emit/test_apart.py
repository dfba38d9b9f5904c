"""Is a disaggregated plan written as what the simulator takes for the same replicas?"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.plan.disaggregated.cases import ask_of, front, replica
from tests.planning.emit.test_emitting import run
from tidegate.config import load
from tidegate.config.profiles import profile_of
from tidegate.plan.answer import Answer
from tidegate.plan.ask import Ask, Replica
from tidegate.plan.disaggregated.advising import advise_apart
from tidegate.plan.disaggregated.answering import disaggregated_answer
from tidegate.plan.disaggregated.front import Front
from tidegate.plan.disaggregated.link import Link
from tidegate.plan.tenants import tenants_of
from tidegate.planning.emit.emitting import emitted, write
from tidegate.sim.settings import Link as SimulatedLink

DECODE = replica()


def written(path: Path, ask: Ask, there: Front) -> Answer:
    """The files of a plan."""
    answer = disaggregated_answer(ask, there)
    assert isinstance(answer, Answer), answer
    tenants = tenants_of(ask.load, {"acme": 2.0, "lab": 1.0})
    advice = advise_apart(ask, there, answer, tenants)
    write(emitted((ask, answer, advice), tenants, path, front=there), path)
    return answer


@pytest.mark.parametrize("prefill", [DECODE, replica(tp=8)], ids=["alike", "wider"])
@pytest.mark.parametrize("shared", [True, False])
def test_both_kinds_and_the_link_are_written(tmp_path: Path, prefill: Replica, shared: bool) -> None:
    """What is read is what was planned, to the last figure; the gateway sees one address."""
    path, there = (
        tmp_path / "t.yaml",
        Front(prefill=prefill, link=Link(bytes_per_s=50e9, latency_s=1e-4, shared=shared)),
    )
    answer = written(path, ask_of(2.0, DECODE), there)
    apart, config = answer.disaggregated, load(path)
    assert apart is not None
    (pool,) = config.pools.values()
    (simulated,) = config.simulation.pools.values()
    profile = profile_of(simulated)

    assert [each.url.host for each in pool.replicas] == ["router.example"]
    parts = profile.disaggregation
    assert parts is not None
    assert (parts.prefill_replicas, parts.decode_replicas) == (apart.prefill_replicas, apart.decode_replicas)
    assert parts.link == SimulatedLink(
        bandwidth_bytes_per_s=50e9, kv_bytes_per_token=327_680, latency_s=1e-4, shared=shared
    )
    assert profile.curve == DECODE.engine.curve
    assert profile.replica.max_num_seqs == answer.concurrency_per_replica
    assert profile.prefill is not None
    assert profile.prefill.curve == prefill.engine.curve
    for name in ("max_num_seqs", "max_batched_tokens", "kv_tokens", "context_tokens", "block_tokens"):
        assert getattr(profile.prefill.replica, name) == getattr(prefill.engine, name), name
    text = path.read_text()
    assert text.count("table:") == (1 if prefill is DECODE else 2)  # the same is not written twice
    assert "hands caches on" in text.replace("\n    # ", " ")


def test_commands_take_it(tmp_path: Path) -> None:
    """It is checked, and simulated on its traffic, as it stands there."""
    path = tmp_path / "t.yaml"
    written(path, ask_of(2.0, DECODE), front(DECODE))

    assert run("config", "check", str(path)).exit_code == 0
    traffic = str(tmp_path / "t.traffic.yaml")
    told = run("simulate", str(path), "--traffic", traffic, "--for", "20s", "--json")
    assert told.exit_code == 0, told.output
