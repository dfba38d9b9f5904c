"""When would the tokens of a recorded run have come, if the simulator had served it?"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from accuracy.engines import Engine
from accuracy.ranks import Batch, Ranks
from accuracy.runs import Request
from tidegate.core.curve import Curve, Linear
from tidegate.sim.happening import FINISHED, FIRST_TOKEN
from tidegate.sim.profiles import Profile
from tidegate.sim.replica import Replica
from tidegate.sim.sequence import Sequence as Prompt

Times = dict[int, tuple[float, float]]
"""By request, the instants of its first and last token."""


def on_a_replica(engine: Engine, curve: Curve, requests: Sequence[Request]) -> Times:
    """Each request is submitted when the engine queued it."""
    replica = Replica(Profile(curve=curve, replica=engine.settings))
    first_s: dict[int, float] = {}
    last_s: dict[int, float] = {}

    def advance(now: float) -> None:
        for happening in replica.advance(now):
            if happening.kind == FIRST_TOKEN:
                first_s[happening.sequence.id] = happening.at
            elif happening.kind == FINISHED:
                last_s[happening.sequence.id] = happening.at

    for request in requests:
        advance(request.queued_s)
        refusal = replica.submit(request.queued_s, prompt_of(request))
        if refusal is not None:
            raise ValueError(f"request {request.id}: {refusal}")
    advance(1e9)
    return {request.id: (first_s[request.id], last_s[request.id]) for request in requests}


def prompt_of(request: Request) -> Prompt:
    """As the simulator knows it."""
    return Prompt(
        id=request.id,
        prompt_tokens=request.prompt_tokens,
        output_tokens=request.output_tokens,
        max_tokens=request.output_tokens,
        prefix=request.blocks,
    )


def on_ranks(
    engine: Engine, step_s: Callable[[Sequence[Batch]], float], requests: Sequence[Request]
) -> Times:
    """The same on data-parallel ranks."""
    speed = engine.settings.speed
    return Ranks(engine.settings, engine.data_ranks, lambda batches: step_s(batches) / speed).replay(requests)


def by_line(engine: Engine, curve: Linear, requests: Sequence[Request]) -> Times:
    """With one calibrated line for all; of ranks, the slowest decides."""
    if engine.data_ranks == 1:
        return on_a_replica(engine, curve, requests)
    return on_ranks(engine, lambda batches: max(curve.step_s(*batch) for batch in batches), requests)
