"""What does a configuration carry whose engines compute prompts apart from those that decode?

As many of each kind as it names, and its link; the gateway's gate is of all of them together.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from tidegate.core.errors import ConfigurationError
from tidegate.core.units import format_latency
from tidegate.plan.answer import Impossible
from tidegate.plan.ask import Ask, Load, Replica, Terms
from tidegate.plan.disaggregated.answering import bound_apart
from tidegate.plan.disaggregated.apart import Sides
from tidegate.plan.disaggregated.front import Front
from tidegate.plan.disaggregated.link import Link
from tidegate.plan.disaggregated.shortfalls import impossible
from tidegate.plan.disaggregated.sizing import Counts, fleet_of, needed_for
from tidegate.plan.disaggregated.splitting import carried_by
from tidegate.plan.laws.engine import Engine
from tidegate.planning.compare.deciding import STEPS, settings_of
from tidegate.planning.compare.side import Side
from tidegate.planning.replicas import curve_of
from tidegate.policy.settings import GateSettings
from tidegate.sim.profiles import Profile, named


def check_apart(path: Path, pool: str, profile: Profile, addresses: int) -> None:
    """Raise ConfigurationError for what is not planned of such engines."""
    of = f"{path}: the engines of {pool} compute prompts apart from those that decode"
    if addresses > 1:
        problem = f"{of}, behind {addresses} addresses"
        raise ConfigurationError([f"{problem}; give the pool one, which stands for all of them"])
    if any(each.replica.speculation is not None for each in (profile, prefill_of(profile))):
        raise ConfigurationError([f"{of}, and guess ahead, which is not planned; leave speculation out"])


def prefill_of(profile: Profile) -> Profile:
    """The engines that compute prompts, as they are simulated."""
    parts = profile.disaggregation
    assert parts is not None
    return profile.prefill or (named(parts.prefill_profile) if parts.prefill_profile else profile)


def counts_of(profile: Profile) -> Counts:
    """Engines of both kinds."""
    parts = profile.disaggregation
    assert parts is not None
    return parts.prefill_replicas, parts.decode_replicas


def settings_apart(profile: Profile) -> dict[str, str]:
    """What decides, beside the settings of those that decode: of the others what is not the same."""
    parts, prefill = profile.disaggregation, prefill_of(profile)
    assert parts is not None
    found = {"replicas": "{}+{}".format(*counts_of(profile))}
    found |= settings_of("link", parts.link)
    own, decodes = (settings_of("", each.replica) for each in (prefill, profile))
    found |= {f"engine for prompts{name}": value for name, value in own.items() if value != decodes[name]}
    if prefill.curve != profile.curve:
        for sequences, tokens in STEPS:
            name = f"step of {sequences} x {tokens // sequences:,} tokens, for prompts"
            found[name] = format_latency(prefill.curve.step_s(sequences, tokens))
    return found


def notes_apart(profile: Profile, gate: GateSettings) -> Iterator[str]:
    """What of the gate the figures leave out."""
    places = counts_of(profile)[1] * profile.replica.max_num_seqs
    if gate.max_concurrency is not None and gate.max_concurrency < places:
        yield (
            f"its gate lets in {gate.max_concurrency:,} (max_concurrency), which is not counted; the engines "
            f"that decode take {places:,}"
        )


def answered_apart(side: Side, profile: Profile, load: Load, terms: Terms, most_tokens: int) -> Side:
    """With what such engines do, and what they carry. `most_tokens`: of the longest request."""
    counts, parts = counts_of(profile), profile.disaggregation
    assert parts is not None
    decode, prefill = (_replica(each, most_tokens) for each in (profile, prefill_of(profile)))
    link = Link(
        bytes_per_s=parts.link.bandwidth_bytes_per_s,
        latency_s=parts.link.latency_s,
        shared=parts.link.shared,
        kv_bytes_per_token=parts.link.kv_bytes_per_token,
    )
    ask, front = Ask(load=load, replica=decode, terms=terms), Front(prefill=prefill, link=link)
    sides = Sides(ask, front)
    problem = impossible(ask, sides)
    if isinstance(problem, Impossible):
        return msgspec.structs.replace(side, impossible=str(problem))
    rate = load.requests_per_s
    assert rate is not None  # clients of a traffic file are taken for one, too
    size = fleet_of(ask, front, sides, (counts, needed_for(ask, sides, rate) or counts), rate)
    bound, found = bound_apart(ask, size), size.latencies
    spare = min(size.prefill_spare, size.decode_spare, terms.spare_replicas)
    price = terms.per_hour_usd
    return msgspec.structs.replace(
        side,
        spare_replicas=2 * max(0, spare),
        requests_per_s=rate,
        prompt_tokens=load.prompt_tokens,
        output_tokens=load.output_tokens,
        concurrency_per_replica=sides.decode.gates.least,
        sustained_per_s=rate / size.utilisation,
        carried_per_s=carried_by(ask, sides, counts),
        utilisation=size.utilisation,
        binding=bound.binding,
        because=bound.because,
        ttft_p95_s=found.ttft_s.p95,
        tpot_p95_s=found.tpot_s.p95,
        e2e_p95_s=found.e2e_s.p95,
        cost_per_hour=None if price is None else price * sum(counts),
    )


def _replica(profile: Profile, most_tokens: int) -> Replica:
    bounds = profile.replica
    engine = Engine(
        curve=curve_of(profile),
        max_num_seqs=bounds.max_num_seqs,
        max_batched_tokens=bounds.max_batched_tokens,
        kv_tokens=bounds.kv_tokens,
        context_tokens=min(bounds.sequence_tokens, most_tokens),
        block_tokens=bounds.block_tokens,
    )
    return Replica(name="engines", engine=engine)
