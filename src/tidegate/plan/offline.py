"""How is batch work planned: so many requests, nobody waiting for any one of them, all done by a deadline?

Every replica is kept at its gate the whole time, so that latency is what it comes to, and utilisation may be
high: what is left of it is for a replica that is lost for a while.
"""

from __future__ import annotations

from math import nan

import msgspec

from tidegate.core.records import Budgets
from tidegate.core.units import format_latency, format_number, format_ratio, format_span
from tidegate.plan.answer import Answer, Impossible, Offline, Percentiles
from tidegate.plan.answering import answer_of, cost_per_hour, format_usd
from tidegate.plan.ask import Ask
from tidegate.plan.sizing import Size, size_of

TARGET_UTILISATION = 0.95
"""Of batch work, unless another is asked for."""
MAX_NUM_SEQS, MAX_BATCHED_TOKENS = 1024, 16_384
"""What engines are started with for it: vLLM's own defaults where it is used as a library on large GPUs
(vllm/engine/arg_utils.py, 0.8 and later, 2025); a server's are 256 and 8,192."""
INTERACTIVE = Budgets(ttft_s=1.0, tpot_s=0.05)
"""What the same rate would be served within to people, where no budgets are given to compare with."""


def offline_answer(ask: Ask, interactive: Ask) -> Answer | Impossible:
    """A plan for `ask`, whose terms say within how long; `interactive` is the same rate for people."""
    size = size_of(ask)
    if isinstance(size, Impossible):
        return size
    too_short = _too_short(ask, size)
    if too_short is not None:
        return too_short
    offline = _offline(ask, size, interactive)
    answer = msgspec.structs.replace(
        answer_of(ask, size),
        offline=offline,
        wait_s=Percentiles.of(nan),
        ttft_s=Percentiles.of(nan),
        e2e_s=Percentiles.of(nan),
        tpot_s=Percentiles.of(size.station.full_tpot_s),
    )
    return msgspec.structs.replace(answer, summary=_summary(answer, offline))


def _too_short(ask: Ask, size: Size) -> Impossible | None:
    """However many replicas there are, none does one request in less than its steps take."""
    within_s, station = ask.terms.within_s or 0.0, size.station
    alone_s = station.decode_steps * station.tpot_s(1)
    if alone_s <= within_s:
        return None
    least = format_latency(alone_s)
    return Impossible(
        problem=f"one request alone takes {least}, more than {format_latency(within_s)} for all of them",
        remedy=f"a deadline well above {least}, shorter outputs, or faster replicas would do",
        binding="latency_budget",
        needed=alone_s,
        available=within_s,
        unit="s",
    )


def _offline(ask: Ask, size: Size, interactive: Ask) -> Offline:
    load, within_s = ask.load, ask.terms.within_s
    assert within_s is not None
    rate = size.requests_per_s
    requests = rate * within_s
    done_s = requests / (size.replicas * size.station.sustained_per_s)
    per_hour = cost_per_hour(ask, size)
    people = size_of(interactive)
    return Offline(
        requests=round(requests),
        within_s=within_s,
        done_s=done_s,
        prompt_tokens_per_s=rate * load.prompt_tokens,
        output_tokens_per_s=rate * load.output_tokens,
        cost=per_hour * done_s / 3600 if per_hour is not None else None,
        interactive_ttft_s=interactive.terms.budgets.ttft_s,
        interactive_tpot_s=interactive.terms.budgets.tpot_s,
        interactive_replicas=people.replicas if isinstance(people, Size) else None,
        interactive_cost_per_hour=cost_per_hour(interactive, people) if isinstance(people, Size) else None,
        interactive_impossible="" if isinstance(people, Size) else str(people),
    )


def _summary(answer: Answer, offline: Offline) -> str:
    replicas = f"{answer.replicas:,} replica{'s' * (answer.replicas != 1)}"
    if answer.replica is not None:
        replicas += f" of {answer.replica}"
    verb = "do" if answer.replicas != 1 else "does"
    cost = f"; {format_usd(offline.cost)} in all" if offline.cost is not None else ""
    return (
        f"{replicas} {verb} {offline.requests:,} requests in {format_span(offline.done_s)} of "
        f"{format_span(offline.within_s)}, at {format_ratio(answer.utilisation)} utilisation{cost}."
    )


def comparison(answer: Answer, offline: Offline) -> str:
    """Against people who wait, in a sentence."""
    rate = (
        f"{format_number(answer.requests_per_s)} requests/s are {format_number(offline.prompt_tokens_per_s)} "
        f"prompt and {format_number(offline.output_tokens_per_s)} output tokens/s."
    )
    budgets = [
        f"{name} {format_latency(budget)}"
        for name, budget in (("TTFT", offline.interactive_ttft_s), ("TPOT", offline.interactive_tpot_s))
        if budget is not None
    ]
    within = " and ".join(budgets)
    if offline.interactive_replicas is None:
        return f"{rate} Within {within} it is impossible: {offline.interactive_impossible}."
    more = offline.interactive_replicas / answer.replicas
    return (
        f"{rate} Within {within} the same rate takes {offline.interactive_replicas:,} replicas, "
        f"{format_number(more)} x as many."
    )
