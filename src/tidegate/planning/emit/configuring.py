"""How does an answer become a configuration, and how is that told?

`configured` advises, for the tenants that were named; `carry_out` writes the files and simulates.
"""

from __future__ import annotations

import os

import msgspec
import typer

from tidegate.plan.advice.advising import advise
from tidegate.plan.answer import Answer
from tidegate.plan.ask import Ask
from tidegate.plan.disaggregated.front import Front
from tidegate.plan.tenants import Tenant, tenants_of
from tidegate.planning.wanted import Wanted


def configured(ask: Ask, answer: Answer, wanted: Wanted, front: Front | None = None) -> Answer:
    """The answer with its advice. Raises ConfigurationError for tenants whom the load does not know.

    `front`: replicas for prompts; None: each does both.
    """
    tenants = _tenants(ask, wanted)
    if ask.terms.within_s is not None:
        from tidegate.plan.advice.batch_work import advise_batch_work

        advice = advise_batch_work(ask, answer, tenants)
    elif front is None:
        advice = advise(ask, answer, tenants)
    else:
        from tidegate.plan.disaggregated.advising import advise_apart

        advice = advise_apart(ask, front, answer, tenants)
    return msgspec.structs.replace(answer, advice=advice)


def _tenants(ask: Ask, wanted: Wanted) -> tuple[Tenant, ...]:
    if ask.terms.within_s is not None:
        from tidegate.plan.advice.batch_work import batch_ask

        ask = batch_ask(ask)
    return tenants_of(ask.load, wanted.weights)


def carry_out(ask: Ask, answer: Answer, wanted: Wanted, front: Front | None = None) -> Answer:
    """Write and simulate what is wanted; what was simulated is in the answer. Raises ConfigurationError."""
    assert answer.advice is not None
    tenants = _tenants(ask, wanted)
    served = ask
    if ask.terms.within_s is not None:
        from tidegate.plan.advice.batch_work import with_workers

        served = with_workers(ask, answer)
    planned = served, answer, answer.advice
    if wanted.emit is not None:
        from tidegate.planning.emit.emitting import emitted, traffic_path, write

        texts = emitted(planned, tenants, wanted.emit, wanted.model, front=front)
        write(texts, wanted.emit, force=wanted.force)
        typer.echo(f"wrote {wanted.emit} and {traffic_path(wanted.emit)}", err=True)
    if not wanted.verify:
        return answer
    # It needs numpy and the simulator, which nobody else here does.
    from tidegate.planning.verify.simulating import Effort, verify
    from tidegate.planning.verify.verdict import Verified

    effort = Effort(jobs=os.cpu_count() or 1)
    if ask.terms.within_s is not None:
        from tidegate.planning.verify.batch_work import verify_batch_work

        found = verify_batch_work(ask, answer, tenants, effort)
    else:
        found = verify(planned, tenants, effort, front=front)
    told = {name: getattr(answer, name) for name in answer.__struct_fields__}
    return Verified(**told, verify=found)
