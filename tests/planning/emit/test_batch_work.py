"""Is batch work written as a configuration that every command takes?"""

from __future__ import annotations

from pathlib import Path

import yaml

from tests.plan.advice.test_batch_work import HOURS, answered, documents
from tests.planning.emit.test_emitting import run
from tidegate.config import load
from tidegate.plan.advice.batch_work import advise_batch_work, batch_ask, with_workers, workers_of
from tidegate.plan.tenants import tenants_of
from tidegate.planning.emit.emitting import emitted, write


def test_it_is_what_was_advised(tmp_path: Path) -> None:
    """Long deadlines, no limits, a class of its own, and a load that keeps requests open."""
    path, ask = tmp_path / "batch.yaml", documents()
    answer, tenants = answered(ask), tenants_of(batch_ask(ask).load, {"a": 2.0, "b": 1.0})
    planned = with_workers(ask, answer), answer, advise_batch_work(ask, answer, tenants)
    write(emitted(planned, tenants, path), path)
    config = load(path)
    (pool,) = config.pools.values()

    assert len(pool.replicas) == answer.replicas
    assert pool.gate.max_concurrency == answer.concurrency_per_replica
    assert pool.queue.max_requests == workers_of(answer)
    assert (pool.deadlines.ttft_s, pool.deadlines.total_s) == (HOURS, HOURS)
    assert pool.degradation == ()
    assert {name: each.max_wait_s for name, each in config.classes.items()} == {"batch": HOURS}
    assert {name: each.class_ for name, each in config.tenants.items()} == {"a": "batch", "b": "batch"}
    assert all(each.limits is None for each in config.tenants.values())
    assert {name: each.weight for name, each in config.tenants.items()} == {"a": 2, "b": 1}

    beside = tmp_path / "batch.traffic.yaml"
    sources = yaml.safe_load(beside.read_text())["sources"].values()
    assert {each["kind"] for each in sources} == {"clients"}
    assert abs(sum(each["clients"] for each in sources) - workers_of(answer)) <= 1
    assert run("config", "check", str(path)).exit_code == 0
    told = run("simulate", str(path), "--traffic", str(beside), "--for", "5s", "--json")
    assert told.exit_code == 0, told.output
