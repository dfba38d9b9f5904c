"""What changes the answer? The same question with one thing different, again and again."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from tidegate.core.errors import ConfigurationError
from tidegate.core.units import format_ratio
from tidegate.perf.deployment import Deployment
from tidegate.plan.answer import Change, Impossible
from tidegate.plan.answering import cost_per_hour
from tidegate.plan.ask import Ask, HandFigures, Load, Replica
from tidegate.plan.room import AZURE_CHAT_PEAK_RATIO
from tidegate.plan.sizing import size_of

MORE = 1.5
"""What is bought is varied by so much, what is asked for by twice as much."""
HALF = 0.5
FEWER_RIGHT = 0.1
"""Of guesses: how often they are right is known the least."""


def changes_of(ask: Ask) -> tuple[Change, ...]:
    """One for each thing that could be different, in the order of load, replica, terms."""
    return tuple(_change(name, changed) for name, changed in _variants(ask))


def _change(name: str, ask: Ask | Impossible) -> Change:
    size = size_of(ask) if isinstance(ask, Ask) else ask
    if isinstance(size, Impossible):
        return Change(what=name, impossible=str(size))
    assert isinstance(ask, Ask)
    station = size.station
    return Change(
        what=name,
        replicas=size.replicas,
        requests_per_s=size.requests_per_s,
        concurrency_per_replica=station.gates.least,
        requests_per_s_per_replica=size.sustained_per_s,
        binding=station.bound.binding,
        cost_per_hour=cost_per_hour(ask, size),
    )


def _variants(ask: Ask) -> Iterator[tuple[str, Ask | Impossible]]:
    load = ask.load
    for name, changed in loads_of(load, batch_work=ask.terms.within_s is not None):
        yield name, msgspec.structs.replace(ask, load=changed)
    if isinstance(ask.replica, HandFigures):
        faster = msgspec.structs.replace(ask.replica, tokens_per_s=ask.replica.tokens_per_s * MORE)
        yield "1.5 x the throughput", msgspec.structs.replace(ask, replica=faster)
        return
    if ask.replica.deployment is None:
        engine = ask.replica.engine
        larger = msgspec.structs.replace(engine, kv_tokens=2 * engine.kv_tokens)
        yield "2 x the KV cache", _with(ask, msgspec.structs.replace(ask.replica, engine=larger))
        return
    yield from _deployments(ask, ask.replica)


def loads_of(load: Load, *, batch_work: bool = False) -> Iterator[tuple[str, Load]]:
    """What else could come, by name."""
    if load.prompt_tokens:
        yield "prompts 2 x as long", _longer(load, prompt=2.0)
    yield "outputs 2 x as long", _longer(load, output=2.0)
    if load.users is not None:
        yield "2 x the users", msgspec.structs.replace(load, users=2 * load.users)
        if load.think_s:
            yield "half the time to think", msgspec.structs.replace(load, think_s=HALF * load.think_s)
    if load.requests_per_s is not None:
        yield "2 x the rate", msgspec.structs.replace(load, requests_per_s=2 * load.requests_per_s)
    if load.peak_ratio == 1 and load.requests_per_s is not None and not batch_work:
        burst = AZURE_CHAT_PEAK_RATIO
        name = f"bursts of {burst:g} x, as Azure chat"
        rate = load.requests_per_s * burst
        yield name, msgspec.structs.replace(load, requests_per_s=rate, peak_ratio=burst)
    if load.prompt_tokens and load.prefix_hit_ratio < HALF:
        yield "half of the prompts cached", msgspec.structs.replace(load, prefix_hit_ratio=HALF)


def _longer(load: Load, *, prompt: float = 1.0, output: float = 1.0) -> Load:
    kinds = tuple(
        msgspec.structs.replace(
            kind, prompt_tokens=kind.prompt_tokens * prompt, output_tokens=kind.output_tokens * output
        )
        for kind in load.kinds
    )
    return msgspec.structs.replace(load, kinds=kinds)


def _deployments(ask: Ask, replica: Replica) -> Iterator[tuple[str, Ask | Impossible]]:
    deployment = replica.deployment
    assert deployment is not None
    values = device_changes(deployment)
    values[f"tp {2 * deployment.tp}"] = {"tp": 2 * deployment.tp}
    for name, changed in values.items():
        found = redeployed(replica, changed)
        yield name, found if isinstance(found, Impossible) else _with(ask, found)


def device_changes(deployment: Deployment) -> dict[str, dict[str, object]]:
    """Other values of a deployment whose shape stays, by name: fewer bits, a better accelerator."""
    device = deployment.accelerator
    wider = msgspec.structs.replace(device, bandwidth_bytes_per_s=device.bandwidth_bytes_per_s * MORE)
    flops = {precision: MORE * flops for precision, flops in device.flops_per_s.items()}
    stronger = msgspec.structs.replace(device, flops_per_s=flops)
    changes: dict[str, dict[str, object]] = {}
    if deployment.precision in ("bf16", "fp16", "fp32") and "fp8" in device.flops_per_s:
        changes["weights in fp8"] = {"weights": "fp8"}
    if deployment.kv not in ("fp8", "int8", "fp4"):
        changes["KV cache in fp8"] = {"kv": "fp8"}
    changes["1.5 x the bandwidth"] = {"accelerator": wider}
    changes["1.5 x the FLOPS"] = {"accelerator": stronger}
    if (guessing := deployment.speculation) is not None:
        fewer = max(0.0, guessing.acceptance_ratio - FEWER_RIGHT)
        worse = msgspec.structs.replace(guessing, acceptance_ratio=fewer)
        changes |= {"no drafting": {"speculation": None}}
        changes[f"an acceptance of {format_ratio(fewer)}"] = {"speculation": worse}
    return changes


def redeployed(replica: Replica, values: dict[str, object]) -> Replica | Impossible:
    """With other values of its deployment, and the limits that the replica has."""
    from tidegate.plan.deployed import deployed

    assert replica.deployment is not None
    try:
        found = deployed(msgspec.structs.replace(replica.deployment, **values))
    except ConfigurationError as error:
        return Impossible(problem=error.problems[0], remedy="leave it as it is", binding="kv_memory")
    engine = msgspec.structs.replace(
        found.engine,
        max_num_seqs=min(found.engine.max_num_seqs, replica.engine.max_num_seqs),
        max_batched_tokens=replica.engine.max_batched_tokens,
        context_tokens=min(found.engine.context_tokens, replica.engine.context_tokens),
    )
    return msgspec.structs.replace(found, engine=engine)


def _with(ask: Ask, replica: Replica) -> Ask:
    return msgspec.structs.replace(ask, replica=replica)
