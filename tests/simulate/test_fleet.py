"""Is what the file says what is simulated?"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tidegate.config import Config, parse
from tidegate.core.curve import Line, Linear, Table
from tidegate.core.errors import ConfigurationError
from tidegate.core.records import Budgets
from tidegate.sim.profiles import Profile, named
from tidegate.simulate.fleet import askers_of, assumed_of, scenario_of, terms_of, uncounted_keys
from tidegate.simulate.load import Asker

FILE = """
pools:
  large:
    replicas:
      - {url: "http://a:1", name: a, weight: 2, gate: {max_concurrency: 9}}
      - {url: "http://b:1", name: b}
  small: {replicas: [{url: "http://c:1", name: a}], aliases: [tiny]}
classes: {chat: {budgets: {ttft_s: 1, tpot_s: 0.1}}, batch: {}}
tenants:
  acme: {class: chat, weight: 3}
  lab: {pools: [small], classes: [chat]}
simulation:
  pools:
    large:
      profile: demo
      engine: {max_num_seqs: 8, prefix_cache: true}
      replicas: {b: {profile: demo-128k, engine: {max_num_seqs: 4}, provision_s: 60}}
  clients: {max_retries: 0}
  faults: [{fault: crash, replica: b, at_s: 5}]
"""


def config(more: str = "") -> Config:
    """The file, with further text of `simulation`."""
    return parse(FILE + more, "f.yaml", environ=None)


def test_the_fleet() -> None:
    """Every replica by the gateway's own id, as its pool and itself say; the rest as on the command line."""
    scenario = scenario_of(config(), "vllm-cpu-tiny")
    a, b = scenario.pools["large"]
    (c,) = scenario.pools["small"]

    assert (a.name, b.name, c.name) == ("large/a", "b", "small/a")
    assert (a.weight, a.gate and a.gate.max_concurrency) == (2.0, 9)
    assert a.profile.curve == named("demo").curve
    assert (a.profile.replica.max_num_seqs, a.profile.replica.prefix_cache) == (8, True)
    assert b.profile.replica.context_tokens == named("demo-128k").replica.context_tokens
    assert (b.profile.replica.max_num_seqs, b.profile.replica.prefix_cache, b.joins_at_s) == (4, True, 60.0)
    assert c.profile == named("vllm-cpu-tiny")
    assert scenario.models == {"large": "large", "small": "small", "tiny": "small"}
    assert scenario.clients.max_retries == 0
    assert len(scenario.faults) == 1


def test_a_curve_of_its_own() -> None:
    """Step times may be written out; the bounds stay those of the profile."""
    own = FILE.replace("  clients:", "    small: {curve: {a_s: 0.5}}\n  clients:")
    (replica,) = scenario_of(parse(own, "f.yaml", environ=None)).pools["small"]

    assert replica.profile.curve == Linear(a_s=0.5)
    assert replica.profile.replica == named("h100-8b").replica


def test_engines_that_share_the_work() -> None:
    """A pool says that each of its replicas is several engines; a replica may say otherwise."""
    link = "link: {bandwidth_bytes_per_s: 1_000_000, kv_bytes_per_token: 100}"
    pair = f"disaggregation: {{decode_replicas: 3, {link}}}"
    own = FILE.replace("  clients:", f"    small: {{{pair}}}\n  clients:")
    (replica,) = scenario_of(parse(own, "f.yaml", environ=None)).pools["small"]

    parts = replica.profile.disaggregation
    assert parts is not None
    assert (parts.prefill_replicas, parts.decode_replicas, parts.link.latency_s) == (1, 3, 0.0)


def test_a_profile_of_a_file(tmp_path: Path) -> None:
    """Measured step times come from a file beside the configuration, or from one that the command names."""
    mine = Profile(
        curve=Table(tokens=Line(points=(1.0, 2048.0), seconds=(0.01, 0.2))), replica=named("demo").replica
    )
    (tmp_path / "mine.json").write_bytes(msgspec.json.encode(mine))
    text = FILE.replace("  clients:", "    small: {profile_file: mine.json}\n  clients:")
    beside = parse(text, "f.yaml", base=tmp_path, environ=None)
    (tmp_path / "broken.json").write_text('{"curve": {"type": "linear", "a_s": 0}}')

    assert scenario_of(beside).pools["small"][0].profile == mine
    assert scenario_of(config(), str(tmp_path / "mine.json")).pools["small"][0].profile == mine
    for name, problem in (("none.json", "No such file"), ("broken.json", "a_s must be above 0")):
        with pytest.raises(ConfigurationError, match=rf"^profile .*{name}: .*{problem}"):
            scenario_of(config(), str(tmp_path / name))


def test_what_was_assumed() -> None:
    """A pool of which the file says nothing is named, so that nobody takes it for measured."""
    assert assumed_of(config()) == ["small"]


def test_who_asks() -> None:
    """All tenants of the file alike, each for the first pool that it may use; or those who are listed."""
    listed = config("  tenants: {lab: {share: 2, class: chat}}\n")

    assert askers_of(config()) == (Asker(name="acme"), Asker(name="lab", model="small"))
    assert askers_of(listed) == (Asker(name="lab", share=2.0, model="small", priority="chat"),)
    assert scenario_of(config()).callers == {"acme": "chat", "lab": "batch"}
    # A traffic file may let those ask who are not listed.
    assert scenario_of(listed).callers == {"acme": "chat", "lab": "batch"}


def test_nobody_is_configured() -> None:
    """Then it is the anonymous tenant, as at the gateway."""
    bare = parse('pools: {m: {replicas: [{url: "http://a"}]}}', "f.yaml", environ=None)

    assert askers_of(bare) == (Asker(name="anonymous"),)
    assert scenario_of(bare).callers == {"anonymous": "default"}
    assert scenario_of(config()).default_class == "batch"  # of whom a traffic file makes up


def test_terms() -> None:
    """Budgets are those of the file, but for those of the traffic, and for what is given instead of both."""
    own = {"chat": Budgets(ttft_s=0.5, e2e_s=20.0)}
    found = [
        terms_of(config(), Budgets()),
        terms_of(config(), Budgets(), own),
        terms_of(config(), Budgets(ttft_s=9.0), own),
    ]

    assert [terms.budgets for terms in found] == [
        {"chat": Budgets(ttft_s=1.0, tpot_s=0.1), "batch": Budgets()},
        {"chat": Budgets(ttft_s=0.5, tpot_s=0.1, e2e_s=20.0), "batch": Budgets()},
        {"chat": Budgets(ttft_s=9.0, tpot_s=0.1, e2e_s=20.0), "batch": Budgets(ttft_s=9.0)},
    ]
    assert found[0].weights == {"acme": 3.0, "lab": 1.0}


def test_limits_of_keys() -> None:
    """A tenant's only key is the one that asks; of several nobody knows which: they are named."""
    limited = [f"{name}: {{sha256: {name * 64}, limits: {{max_in_flight: 1}}}}" for name in "abc"]
    text = FILE.replace("weight: 3", f"weight: 3, keys: {{{limited[0]}}}")
    several = ", ".join([*limited[1:], f"d: {{sha256: {'d' * 64}}}"])
    found = parse(text.replace("lab: {", f"lab: {{keys: {{{several}}}, "), "f.yaml", environ=None)

    assert scenario_of(found).keys == {"acme": "a"}
    assert uncounted_keys(found) == ["tenants.lab.keys.b", "tenants.lab.keys.c"]


def test_tables_in_the_file() -> None:
    """A pool's step times may be tables, and a replica's stand instead of them."""
    text = FILE.replace(
        "      profile: demo\n      engine: {max_num_seqs: 8, prefix_cache: true}",
        "      table: {tokens: {points: [1, 9], seconds: [0.5, 1]}, decode: "
        "{rows: [1], columns: [0, 10], seconds: [[0, 2]]}}",
    ).replace("b: {profile: demo-128k,", "b: {table: {tokens: {points: [1], seconds: [7]}},")
    a, b = scenario_of(parse(text, "f.yaml", environ=None)).pools["large"]

    assert a.profile.curve.step_s(1, 5) == 0.5 + 1.0
    assert b.profile.curve == Table(tokens=Line(points=(1.0,), seconds=(7.0,)))
    assert assumed_of(parse(text, "f.yaml", environ=None)) == ["small"]
