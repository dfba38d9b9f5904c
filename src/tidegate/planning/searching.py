"""Which configuration do the options mean, where they leave it open?

A search answers with a configuration, and the plan goes on as if its options had been written.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import typer

from tidegate.core.errors import ConfigurationError
from tidegate.planning.options import Options, check_together

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidegate.perf.deployment import Deployment
    from tidegate.plan.ask import Ask
    from tidegate.plan.search.candidates import Space
    from tidegate.plan.search.cheapest import Searched

ANY = "any"
OPEN = ("gpu", "tp", "quant", "kv_quant")
"""Options of which several may be written, with commas between them."""


def searched_for(options: Options, *, json: bool) -> tuple[Options, Searched | None]:
    """The options with what was left open; None: nothing was. Exit status 2 where nothing holds."""
    if not _open(options):
        return options, None
    check_together(options)
    from tidegate.plan.answer import Impossible
    from tidegate.planning.telling import refuse

    space = _space(options)
    if options.price is not None and len(space.accelerators) > 1:
        raise ConfigurationError(
            ["--price: of which accelerator; give prices in a catalogue file and write --catalog FILE"]
        )
    if options.gpus is not None and options.disaggregated and len(space.accelerators) > 1:
        raise ConfigurationError(["--gpus: of which accelerator; write one --gpu, or --replicas"])
    _check_shapes(space)
    if not json:
        typer.echo(_looking(space), err=True)
    from tidegate.plan.search.cheapest import search  # after what is said at once
    from tidegate.planning.apart import front_of

    found = search(space, _asker(options), kinds=_kinds(options), front_for=partial(front_of, options))
    if isinstance(found, Impossible):
        raise refuse(found, json=json)
    deployment, best = found.deployment, found.best
    other = best.prefill_tp is not None and not options.said(["prefill_gpu", "prefill_tp"])
    return (
        msgspec.structs.replace(
            options,
            gpu=deployment.accelerator.name,
            tp=f"{deployment.tp}",
            dp=f"{deployment.attention_dp}",
            ep=f"{deployment.ep}",
            quant=deployment.precision,
            kv_quant=deployment.kv,
            disaggregated=found.kind == "disaggregated",
            prefill_gpu=best.prefill_accelerator if other else options.prefill_gpu,
            prefill_tp=f"{best.prefill_tp}" if other else options.prefill_tp,
        ),
        found,
    )


def _open(options: Options) -> bool:
    if options.model is None:
        return False
    written = [getattr(options, name) for name in OPEN]
    return options.gpu is None or any(text and (text == ANY or "," in text) for text in written)


def _check_shapes(space: Space) -> None:
    """Where the model cannot be shared out in any way asked about: ConfigurationError, of the widest."""
    if next(space.deployments(), None) is not None:
        return
    from tidegate.planning.replicas import deployment_by

    accelerator = space.accelerators[0]
    weights, kv = space.fewest_bits(accelerator)
    shape = space.shapes(accelerator)[-1]
    deployment_by(space.model, accelerator, space.fixed | shape | {"weights": weights, "kv": kv})


def _looking(space: Space) -> str:
    """Said at once: a search takes a second."""
    count, accelerators = sum(1 for _ in space.deployments()), len(space.accelerators)
    return (
        f"comparing {count:,} deployments of {space.model.name} on "
        f"{accelerators:,} accelerator{'s' * (accelerators != 1)}"
    )


def _kinds(options: Options) -> tuple[str, ...]:
    """A configuration is of replicas that do both, unless others are asked for: it takes no other router.
    Of guesses nothing is known in others.
    """
    if options.disaggregated:
        return ("disaggregated",)
    return ("aggregated",) if options.emit or options.draft else ("aggregated", "disaggregated")


def _space(options: Options) -> Space:
    from tidegate.perf.precisions import BITS, KV_BITS
    from tidegate.plan.search.candidates import Space
    from tidegate.planning.catalog.lookup import catalog_with, model_named
    from tidegate.planning.drafts import speculation_of
    from tidegate.planning.numbers import count_of
    from tidegate.planning.replicas import deployment_values

    catalog = catalog_with(map(Path, options.catalog))
    names = _several(options.gpu)
    accelerators = [catalog.accelerator(name) for name in names] or list(catalog.accelerators.values())
    cleared = msgspec.structs.replace(options, tp=None, quant=None, kv_quant=None)
    tp = [count_of("--tp", text, "of them") for text in _several(options.tp)]
    weights, kv = _several(options.quant), _several(options.kv_quant)
    problems = [
        f"{option}: {text!r} is no precision of it; give one of {', '.join(known)}"
        for option, texts, known in (("--quant", weights, BITS), ("--kv-quant", kv, KV_BITS))
        for text in texts
        if text not in known
    ]
    if problems:
        raise ConfigurationError(problems)
    model = model_named(options.model or "", catalog)
    return Space(
        model=model,
        accelerators=tuple({each.name: each for each in accelerators}.values()),
        tp=tuple(tp) or None,
        weights=tuple(weights) or None,
        kv=tuple(kv) or None,
        fixed=deployment_values(cleared) | {"speculation": speculation_of(options, model, catalog)},
    )


def _several(text: str | None) -> list[str]:
    """Names between commas; none where any will do."""
    if text is None:
        return []
    names = [name.strip() for name in text.split(",") if name.strip()]
    return [] if ANY in names else names


def _asker(options: Options) -> Callable[[Deployment], Ask]:
    """The question about one deployment: only the replica, and what follows from it, differs."""
    from tidegate.plan.ask import Ask
    from tidegate.plan.deployed import deployed
    from tidegate.planning.apart import front_of, terms_apart
    from tidegate.planning.asking import batch_options, load_of, terms_for, terms_of
    from tidegate.planning.replicas import limited

    within_s = None
    if options.offline is not None:
        options, _, within_s = batch_options(options)
    terms = msgspec.structs.replace(terms_of(options), within_s=within_s)
    load, _ = load_of(options, terms)

    def ask_for(deployment: Deployment) -> Ask:
        replica = deployed(deployment)
        replica = msgspec.structs.replace(replica, engine=limited(replica.engine, options))
        own = terms_for(options, terms, replica)
        if options.disaggregated:
            own = terms_apart(options, own, front_of(options, replica), replica)
        return Ask(load=load, replica=replica, terms=own)

    return ask_for
