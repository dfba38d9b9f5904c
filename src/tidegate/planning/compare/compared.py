"""What does a configuration carry, of its own load and at most?

It is answered for its own load, with as many replicas as it names, and for the highest rate within its
budgets.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from tidegate.config.documents import read
from tidegate.config.loading import parse
from tidegate.config.model import Config
from tidegate.config.profiles import DEFAULT_PROFILE, profile_of
from tidegate.config.simulation import SimulatedPool, SimulatedReplica
from tidegate.core.errors import ConfigurationError
from tidegate.core.records import Budgets
from tidegate.core.units import format_duration
from tidegate.plan.answer import Answer, Impossible
from tidegate.plan.answering import answer_of
from tidegate.plan.ask import Ask, Load, Replica, Terms
from tidegate.plan.laws.engine import Engine
from tidegate.plan.sizing import highest_rate, size_of
from tidegate.planning.asking import load_of
from tidegate.planning.compare.apart import (
    answered_apart,
    check_apart,
    counts_of,
    notes_apart,
    settings_apart,
)
from tidegate.planning.compare.deciding import gate_of, of_configuration
from tidegate.planning.compare.side import KIND, Side, of_text
from tidegate.planning.emit.emitting import traffic_path
from tidegate.planning.options import LOADS, Options
from tidegate.planning.replicas import curve_of
from tidegate.sim.profiles import Profile

NOT_COUNTED = {"kv": "paged", "long_prefill_tokens": 0}
"""Settings of an engine that the planner does not know, with their values that do nothing."""


class Common(msgspec.Struct, frozen=True, kw_only=True):
    """What both are asked."""

    options: Options
    """The load, if it is not their own, and what is counted of prefixes."""
    terms: Terms
    """Budgets stand instead of a file's."""
    spare_replicas: int | None = None
    """None: one, of two or more."""
    pool: str | None = None


def side_of(path: Path, common: Common) -> Side:
    """What a file says and does. Raises ConfigurationError for one that is neither."""
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "no such file"
        raise ConfigurationError([f"{path}: {what}; {KIND}"])
    text = read(path)
    if path.suffix == ".json" or (text.startswith("{") and '"pools"' not in text):
        return of_text(text, path)
    if "pools" not in text:
        raise ConfigurationError([f"{path}: names no pools, so that it is no configuration; {KIND}"])
    config = parse(text, str(path), base=path.parent, environ=None)
    return _of_configuration(path, config, common)


def _of_configuration(path: Path, config: Config, common: Common) -> Side:
    pool = _pool(path, config, common.pool)
    profile, notes = _profile(path, config, pool)
    own = config.pools[pool]
    gate = gate_of(own)
    bounds = profile.replica
    if profile.disaggregation is not None:
        return _apart(path, config, common, (pool, profile, tuple(notes)))
    engine = Engine(
        curve=curve_of(profile),
        max_num_seqs=min(bounds.max_num_seqs, gate.max_concurrency or bounds.max_num_seqs),
        max_batched_tokens=bounds.max_batched_tokens,
        kv_tokens=min(bounds.kv_tokens, gate.kv_tokens or bounds.kv_tokens),
        context_tokens=min(bounds.sequence_tokens, own.context_tokens or bounds.sequence_tokens),
        block_tokens=bounds.block_tokens,
    )
    terms = _terms(config, len(own.replicas), common)
    load_ = _load(path, common.options, terms.budgets)
    if bounds.prefix_cache and not load_.prefix_hit_ratio:
        notes.append("its engines keep prefixes, of which none are counted as hit; write --prefix-hit RATIO")
    ask = Ask(load=load_, replica=Replica(name=f"pool {pool}", engine=engine), terms=terms)
    side = Side(
        file=str(path),
        kind="configuration",
        replicas=len(own.replicas),
        settings=of_configuration(config, pool, profile),
        budgets=terms.budgets,
        notes=tuple(notes),
    )
    size = size_of(ask)
    if isinstance(size, Impossible):
        return msgspec.structs.replace(side, impossible=str(size))
    answer = answer_of(ask, size)
    if answer.binding == "batch" and engine.max_num_seqs < bounds.max_num_seqs:
        because = (
            f"The gate binds: it lets in {engine.max_num_seqs:,} (max_concurrency), and the engine would "
            f"take {bounds.max_num_seqs:,}; TPOT is {format_duration(size.station.full_tpot_s, 3)} there."
        )
        answer = msgspec.structs.replace(answer, because=because)
    return _answered(
        side,
        answer,
        highest_rate(size.station, terms, terms.replicas or 1, terms.spare_replicas),
    )


def _apart(path: Path, config: Config, common: Common, known: tuple[str, Profile, tuple[str, ...]]) -> Side:
    """Of engines that compute prompts apart from those that decode, behind one address."""
    (pool, profile, notes), own = known, config.pools[known[0]]
    check_apart(path, pool, profile, len(own.replicas))
    counts = counts_of(profile)
    terms = _terms(config, min(counts), common)
    settings = of_configuration(config, pool, profile) | settings_apart(profile)
    side = Side(
        file=str(path),
        kind="configuration",
        replicas=sum(counts),
        settings=settings,
        budgets=terms.budgets,
        notes=(*notes, *notes_apart(profile, gate_of(own))),
    )
    most_tokens = own.context_tokens or profile.replica.sequence_tokens
    return answered_apart(side, profile, _load(path, common.options, terms.budgets), terms, most_tokens)


def _answered(side: Side, answer: Answer, carried_per_s: float) -> Side:
    return msgspec.structs.replace(
        side,
        spare_replicas=answer.spare_replicas,
        requests_per_s=answer.requests_per_s,
        prompt_tokens=answer.prompt_tokens,
        output_tokens=answer.output_tokens,
        concurrency_per_replica=answer.concurrency_per_replica,
        sustained_per_s=answer.replicas * answer.requests_per_s_per_replica,
        carried_per_s=carried_per_s,
        utilisation=answer.utilisation,
        binding=answer.binding,
        because=answer.because,
        ttft_p95_s=answer.ttft_s.p95,
        tpot_p95_s=answer.tpot_s.p95,
        e2e_p95_s=answer.e2e_s.p95,
        cost_per_hour=answer.cost_per_hour,
        notes=(*side.notes, *answer.warnings),
    )


def _pool(path: Path, config: Config, asked: str | None) -> str:
    names = [*config.pools]
    if asked is not None and asked not in names:
        raise ConfigurationError([f"{path}: has no pool {asked}; its pools: {', '.join(names)}"])
    if asked is None and len(names) > 1:
        problem = f"{path}: has {len(names)} pools, {', '.join(names)}"
        raise ConfigurationError([f"{problem}; name the one to compare with --pool"])
    return asked or names[0]


def _profile(path: Path, config: Config, pool: str) -> tuple[Profile, list[str]]:
    """Of the pool's replicas, which must be alike; and what is to be said of it."""
    said = config.simulation.pools.get(pool, SimulatedPool())
    replicas = config.pools[pool].replicas
    profile, *others = (
        profile_of(said, said.replicas.get(each.name, SimulatedReplica()), default=DEFAULT_PROFILE)
        for each in replicas
    )
    if any(each != profile for each in others) or any(each.gate != replicas[0].gate for each in replicas):
        problem = f"{path}: the replicas of {pool} are not alike"
        raise ConfigurationError([f"{problem}; give each kind a file of its own"])
    notes = []
    if all(each is None for each in (said.profile, said.profile_file, said.curve, said.table)):
        notes.append(f"`simulation.pools` does not say what its engines are; taken to be {DEFAULT_PROFILE}")
    unknown = [name for name, value in NOT_COUNTED.items() if getattr(profile.replica, name) != value]
    if unknown:
        notes.append(f"what {', '.join(unknown)} of its engines does is not counted")
    return profile, notes


def _terms(config: Config, replicas: int, common: Common) -> Terms:
    """The tightest budgets of the file's classes, unless others are given."""
    found: dict[str, float | None] = {}
    for name in ("ttft_s", "tpot_s", "e2e_s"):
        told = [getattr(each.budgets, name) for each in config.classes.values()]
        tightest = min((value for value in told if value is not None), default=None)
        found[name] = getattr(common.terms.budgets, name) or tightest
    spare = min(1, replicas - 1) if common.spare_replicas is None else common.spare_replicas
    return msgspec.structs.replace(
        common.terms, budgets=Budgets(**found), classes=(), replicas=replicas, spare_replicas=spare
    )


def _load(path: Path, options: Options, budgets: Budgets) -> Load:
    """What is asked of both, else the traffic that lies beside the file."""
    if not options.said(LOADS):
        beside = traffic_path(path)
        if not beside.is_file():
            problem = f"{path}: what comes is not known: there is no {beside.name} beside it"
            raise ConfigurationError([f"{problem}; write --traffic FILE, or --qps, --input and --output"])
        options = msgspec.structs.replace(options, traffic=str(beside))
    found, _ = load_of(options, Terms(budgets=budgets))
    return found
