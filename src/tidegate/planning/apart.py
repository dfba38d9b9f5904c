"""Which replicas compute prompts, over which link, where they are apart from those that decode?"""

from __future__ import annotations

import msgspec

from tidegate.core.errors import ConfigurationError
from tidegate.plan.ask import Replica, Terms
from tidegate.plan.disaggregated.front import Front, link_of
from tidegate.plan.disaggregated.link import Link
from tidegate.planning.numbers import count_of, rate_of
from tidegate.planning.options import Options


def front_of(options: Options, decode: Replica) -> Front:
    """Those before `decode`, which differ from them where that is said. Raises ConfigurationError."""
    own = options.said(["prefill_gpu", "prefill_tp"])
    prefill = _prefill(options, decode) if own else decode
    assert prefill.deployment is not None
    assert decode.deployment is not None
    other_kind = prefill.deployment.accelerator.name != decode.deployment.accelerator.name
    for option in options.said(["price", "gpus"] if other_kind else []):
        remedy = "give prices in a catalogue file and write --catalog FILE"
        remedy = remedy if option == "--price" else "write --replicas, of both kinds together"
        raise ConfigurationError([f"{option}: of which accelerator; {remedy}"])
    price = prefill.deployment.accelerator.price if other_kind else None
    return Front(
        prefill=prefill,
        link=_link(options, prefill, decode),
        per_hour_usd=None if price is None else price.per_hour_usd,
        replicas=None if options.replicas is None else count_of("--replicas", options.replicas, "replicas"),
        accelerators=None if options.gpus is None else count_of("--gpus", options.gpus, "accelerators"),
    )


def terms_apart(options: Options, terms: Terms, front: Front, decode: Replica) -> Terms:
    """Of what there is none is spare where there are not two of each kind, unless that is said too."""
    terms = msgspec.structs.replace(terms, replicas=None)  # of both kinds, which `front` has
    if options.spare is None and front.given and not any(front.splits(decode, terms.spare_replicas)):
        return msgspec.structs.replace(terms, spare_replicas=0)
    return terms


def _prefill(options: Options, decode: Replica) -> Replica:
    """By its own options, the others as for those that decode."""
    from tidegate.planning.replicas import replica_by_model

    known = decode.deployment
    assert known is not None
    written = msgspec.structs.replace(
        options,
        gpu=options.prefill_gpu or known.accelerator.name,
        tp=options.prefill_tp or f"{known.tp}",
        dp=f"{known.attention_dp}",
        ep=f"{known.ep}",
        quant=known.weights,
        kv_quant=known.kv,
    )
    try:
        return replica_by_model(written)
    except ConfigurationError as error:
        raise ConfigurationError([_as_prefill(problem) for problem in error.problems]) from None


def _as_prefill(problem: str) -> str:
    return problem.replace("--gpu", "--prefill-gpu").replace("--tp", "--prefill-tp")


def _link(options: Options, prefill: Replica, decode: Replica) -> Link:
    """Between replicas for prompts and those that decode."""
    if options.link is not None:
        return Link(bytes_per_s=rate_of("--link", options.link))
    assert prefill.deployment is not None
    assert decode.deployment is not None
    return link_of(prefill.deployment, decode.deployment)
