"""What changes the answer where prompts are apart from decoding?

The same question with one thing different: what comes, the link, both kinds of replicas alike, and the shape
of one kind.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from tidegate.core.errors import ConfigurationError
from tidegate.plan.answer import Change, Impossible
from tidegate.plan.ask import Ask, Replica
from tidegate.plan.disaggregated.answering import bound_apart
from tidegate.plan.disaggregated.front import Front
from tidegate.plan.disaggregated.sizing import size_apart
from tidegate.plan.sensitivity import HALF, device_changes, loads_of, redeployed

Asked = tuple[Ask, Front]


def changes_apart(ask: Ask, front: Front) -> tuple[Change, ...]:
    """One for each thing that could be different, in the order of load, link, replicas."""
    return tuple(_change(name, changed) for name, changed in _variants(ask, front))


def _change(name: str, asked: Asked | Impossible) -> Change:
    if isinstance(asked, Impossible):
        return Change(what=name, impossible=str(asked))
    ask, front = asked
    try:
        size = size_apart(ask, front)
    except ConfigurationError as error:  # such as answers of one token
        return Change(what=name, impossible=error.problems[0])
    if isinstance(size, Impossible):
        return Change(what=name, impossible=str(size))
    replicas = sum(size.counts)
    return Change(
        what=name,
        replicas=replicas,
        prefill_replicas=size.prefill_replicas,
        requests_per_s=size.requests_per_s,
        concurrency_per_replica=size.sides.decode.gates.least,
        requests_per_s_per_replica=size.requests_per_s / size.utilisation / replicas,
        binding=bound_apart(ask, size).binding,
        cost_per_hour=front.cost(ask, *size.counts),
    )


def _variants(ask: Ask, front: Front) -> Iterator[tuple[str, Asked | Impossible]]:
    for name, load in loads_of(ask.load):
        yield name, (msgspec.structs.replace(ask, load=load), front)
    for factor in (HALF, 2.0):
        link = msgspec.structs.replace(front.link, bytes_per_s=factor * front.link.bytes_per_s)
        yield f"{factor:g} x the link", (ask, msgspec.structs.replace(front, link=link))
    prefill, decode = front.prefill, ask.replica
    assert isinstance(decode, Replica)
    assert prefill.deployment is not None
    assert decode.deployment is not None
    of_prompts, of_decoding = device_changes(prefill.deployment), device_changes(decode.deployment)
    for name in [name for name in of_decoding if name in of_prompts]:
        changed = redeployed(prefill, of_prompts[name]), redeployed(decode, of_decoding[name])
        yield name, _with(ask, front, *changed)
    prompts_tp, decodes_tp = 2 * prefill.deployment.tp, 2 * decode.deployment.tp
    wider = redeployed(prefill, {"tp": prompts_tp})
    yield f"tp {prompts_tp} for prompts", _with(ask, front, wider, decode)
    wider = redeployed(decode, {"tp": decodes_tp})
    yield f"tp {decodes_tp} to decode", _with(ask, front, prefill, wider)


def _with(
    ask: Ask, front: Front, prefill: Replica | Impossible, decode: Replica | Impossible
) -> Asked | Impossible:
    if isinstance(prefill, Impossible):
        return prefill
    if isinstance(decode, Impossible):
        return decode
    return msgspec.structs.replace(ask, replica=decode), msgspec.structs.replace(front, prefill=prefill)
