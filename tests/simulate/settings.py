"""A small fleet under a small load, to be run in tests."""

from __future__ import annotations

from typing import Any

from tidegate.config import Config, parse
from tidegate.core.records import Budgets
from tidegate.simulate.fleet import askers_of, scenario_of, terms_of
from tidegate.simulate.load import Load
from tidegate.simulate.run import RunResult, RunSettings, run

FILE = """
pools:
  llama:
    replicas: [{url: "http://a:1", name: a}, {url: "http://b:1", name: b}]
    queue: {max_requests: 20}
classes: {chat: {max_wait_s: 2, budgets: {ttft_s: 1, tpot_s: 0.05}}, batch: {max_wait_s: 2}}
tenants: {acme: {class: chat}, lab: {class: batch}}
simulation:
  pools: {llama: {profile: demo}}
"""


def config(text: str = FILE) -> Config:
    """The file, parsed."""
    return parse(text, "f.yaml", environ=None)


def settings(text: str = FILE, *, load: dict[str, Any] | None = None, **changes: Any) -> RunSettings:
    """A run of some seconds at a rate that the fleet can serve."""
    file = config(text)
    options: dict[str, Any] = {"rate_per_s": 4.0, "for_s": 30.0, "askers": askers_of(file), **(load or {})}
    values: dict[str, Any] = {
        "scenario": scenario_of(file),
        "load": Load(**options),
        "terms": terms_of(file, Budgets()),
        "seed": 1,
        "warm_up": 0.0,
    }
    return RunSettings(**(values | changes))


def ran(text: str = FILE, **changes: Any) -> RunResult:
    """What such a run gives."""
    return run(settings(text, **changes))
