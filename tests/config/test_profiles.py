"""Profile files: what is read, what is refused and where, and what is said beyond what was measured."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tidegate.config.profiles import (
    Measured,
    ProfileFile,
    Span,
    as_yaml,
    beyond_of,
    parse_profile,
    profile_by,
    profile_of,
    read_profile,
)
from tidegate.config.simulation import (
    CurveConfig,
    DisaggregationConfig,
    EngineConfig,
    PrefillConfig,
    SimulatedEngine,
    SimulatedPool,
)
from tidegate.core.curve import Grid, Line, Linear, Table
from tidegate.core.errors import ConfigurationError
from tidegate.sim.profiles import TABLE, named
from tidegate.sim.settings import Link, ReplicaSettings, Speculation

CURVE = "curve: {type: linear, a_s: 0.01}\n"
REPLICA = "replica: {max_num_seqs: 8, max_batched_tokens: 512, kv_tokens: 4096, context_tokens: 1024}\n"
APART = "{link: {bandwidth_bytes_per_s: 1.0e+9, kv_bytes_per_token: 131072}}"
PREFILL = f"prefill:\n  {CURVE}  {REPLICA}"
APART_OF_IT = f"disaggregation: {APART}\n"
MEASURED = Measured(
    source="http://127.0.0.1:8000, model m",
    date="2026-11-30",
    points=24,
    held_out_points=6,
    held_out_error_ratio=0.02,
    held_out_worst_ratio=0.05,
    sequences=Span(least=1, most=8),
    context_tokens=Span(least=64, most=4096),
    prompt_tokens=Span(least=64, most=1024),
    standard_errors={"a_s": 1e-5},
    assumed=("max_num_seqs",),
    warnings=("a word: with a colon",),
)
REPLICAS = ReplicaSettings(max_num_seqs=8, max_batched_tokens=512, kv_tokens=4096, context_tokens=1024)
TABLES = Table(
    tokens=Line(points=(1.0, 2048.0), seconds=(0.01, 0.2)),
    decode=Grid(rows=(1.0, 8.0), columns=(0.0, 100.0), seconds=((0.0, 1e-7), (1e-3, 2e-3))),
)


@pytest.mark.parametrize(
    "profile",
    [
        ProfileFile(
            curve=Linear(a_s=0.01, c_s_per_context_token=1.6e-7), replica=REPLICAS, measured=MEASURED
        ),
        ProfileFile(curve=TABLES, replica=REPLICAS),
        ProfileFile(
            curve=Linear(a_s=0.01),
            replica=msgspec.structs.replace(
                REPLICAS, speculation=Speculation(draft_tokens=3, acceptance_ratio=0.5)
            ),
        ),
    ],
)
def test_what_is_written_is_read(tmp_path: Path, profile: ProfileFile) -> None:
    """A profile comes back from its file as it was, from YAML and from JSON."""
    (tmp_path / "p.yaml").write_text(as_yaml(profile))
    (tmp_path / "p.json").write_bytes(msgspec.json.encode(profile))

    assert profile_by(str(tmp_path / "p.yaml")) == profile
    assert read_profile(tmp_path / "p.json") == profile


def test_every_known_profile_can_be_a_file() -> None:
    """Whatever has a name may be written out and changed by hand."""
    for name in TABLE:
        assert parse_profile(as_yaml(profile_by(name)), name).replica == named(name).replica


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "p.yaml: is empty; it needs a curve and a replica"),
        (CURVE, "p.yaml:1:1: lacks replica"),
        ("[1]", "p.yaml:1:1: needs a mapping of keys to values, not a list"),
        (REPLICA + "curve: {a_s: 1}\n", "p.yaml:2:8: curve: lacks type; it is one of linear, table"),
        (
            REPLICA + "curve: {type: lin, a_s: 1}\n",
            'p.yaml:2:15: curve.type: is not known; did you mean "linear"?',
        ),
        (REPLICA + "curve: {type: linear, a_s: 0}\n", "p.yaml:2:8: curve: curve: a_s must be above 0"),
        (
            REPLICA + "curve: {type: linear, a_s: 15ms}\n",
            "curve.a_s: needs a number, not text; write a bare number",
        ),
        (CURVE + REPLICA.replace("8,", "900,"), "replica: max_batched_tokens must hold one decode step"),
        (
            CURVE + REPLICA.replace("kv_", "kvs_"),
            'replica.kvs_tokens: is not a setting; did you mean "kv_tokens"?',
        ),
        (CURVE + REPLICA + "measured: {source: me}\n", "measured: lacks points"),
        (
            CURVE + REPLICA + PREFILL,
            "p.yaml:1:1: prefill is of engines that compute prompts apart, and nothing says that any do; "
            "write disaggregation beside it",
        ),
        (
            CURVE + REPLICA + APART_OF_IT + PREFILL + f"  {APART_OF_IT}",
            "p.yaml:1:1: prefill has a disaggregation of its own: engines are apart once; leave that out",
        ),
    ],
)
def test_what_is_no_profile(text: str, said: str) -> None:
    """Every mistake is a line that says where and what to do."""
    with pytest.raises(ConfigurationError) as caught:
        parse_profile(text, "p.yaml")

    assert any(said in problem for problem in caught.value.problems), caught.value.problems


def test_engines_for_prompts_of_a_file(tmp_path: Path) -> None:
    """What computes prompts apart is read where something says that prompts are; else it is named."""
    apart = parse_profile(CURVE + REPLICA + APART_OF_IT + PREFILL, "p.yaml")

    assert apart.prefill is not None
    assert apart.prefill.replica == REPLICAS
    (tmp_path / "p.json").write_bytes(msgspec.json.encode(apart))
    assert read_profile(tmp_path / "p.json") == apart
    without = msgspec.to_builtins(apart) | {"disaggregation": None}
    (tmp_path / "without.json").write_bytes(msgspec.json.encode(without))
    with pytest.raises(ConfigurationError, match=r"without\.json: .*write disaggregation beside it"):
        profile_by(str(tmp_path / "without.json"))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    """It is named; a name that is neither a profile nor a file gets the list of those there are."""
    with pytest.raises(ConfigurationError, match=r"^profile .*none\.yaml: cannot be read: No such file"):
        profile_by(str(tmp_path / "none.yaml"))
    with pytest.raises(ConfigurationError, match="'h200' is not known; there are: demo"):
        profile_by("h200")


def test_beyond_what_was_measured() -> None:
    """Figures outside of the measured ranges are named, those within or a fifth above are not."""
    for asked, said in [
        ({"sequences": 8.0, "context_tokens": 64.0, "prompt_tokens": 1100.0}, []),
        ({"sequences": 10.0}, ["10 sequences (measured: 1 to 8)"]),
        ({"context_tokens": 5000.0}, ["5,000 tokens of context (measured: 64 to 4,096)"]),
        ({"prompt_tokens": 16.0}, ["16 tokens of a prompt (measured: 64 to 1,024)"]),
    ]:
        assert MEASURED.beyond(**asked) == said

    lone = msgspec.structs.replace(MEASURED, prompt_tokens=None)
    assert lone.beyond(prompt_tokens=10) == ["10 tokens of a prompt (measured: none)"]
    alike = msgspec.structs.replace(MEASURED, sequence_tokens=Span(least=500, most=520))
    assert alike.beyond(sequence_tokens=1024) == [
        "1,024 tokens of context in one sequence (measured: 500 to 520)"
    ]
    assert MEASURED.beyond(sequence_tokens=1024) == []  # files of older versions do not say


def test_a_replica_that_may_do_more(tmp_path: Path) -> None:
    """What bounds allow beyond the measured ranges is said, of the file's bounds and of those set instead."""
    path = tmp_path / "p.yaml"
    path.write_text(as_yaml(ProfileFile(curve=Linear(a_s=0.01), replica=REPLICAS, measured=MEASURED)))
    more = SimulatedPool(profile_file=path, engine=EngineConfig(max_num_seqs=64))

    assert read_profile(path).beyond() == []
    assert beyond_of(more) == ["64 sequences (measured: 1 to 8)"]
    assert beyond_of(SimulatedPool(), default=str(path)) == []
    # Step times of its own are nobody's measurement.
    assert beyond_of(msgspec.structs.replace(more, curve=CurveConfig(a_s=1.0))) == []
    assert profile_of(more).replica.max_num_seqs == 64


def test_engines_for_prompts_are_as_the_others_but_for_what_is_said() -> None:
    """What is said of them stands instead of what the engines that decode have, or a profile."""
    link = Link(bandwidth_bytes_per_s=1e9, kv_bytes_per_token=1e3, shared=False)
    own = PrefillConfig(curve=CurveConfig(a_s=0.5), engine=EngineConfig(max_num_seqs=7))
    for named_profile, batch in [("", 32), ("constant", 1)]:
        parts = DisaggregationConfig(link=link, prefill_profile=named_profile, prefill=own)
        found = profile_of(SimulatedEngine(profile="demo", disaggregation=parts))

        assert found.disaggregation is not None
        assert found.disaggregation.link == link
        assert found.replica.max_num_seqs == 32
        assert found.prefill is not None
        assert found.prefill.curve == Linear(a_s=0.5)
        assert found.prefill.replica.max_num_seqs == 7
        alike = profile_of(SimulatedEngine(profile=named_profile or "demo"))
        assert alike.replica.max_num_seqs == batch
        assert found.prefill.replica == msgspec.structs.replace(alike.replica, max_num_seqs=7)
    without = DisaggregationConfig(link=link)
    assert profile_of(SimulatedEngine(profile="demo", disaggregation=without)).prefill is None
