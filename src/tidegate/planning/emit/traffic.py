"""Which traffic file sends the load that was planned for?

One source for each kind of request, so that prompts keep their outputs, at its share of the rate of the
busiest window. Prefixes that are planned to hit are the head of every prompt of a kind. Bursts of several
kinds together are as long as each kind's own, and less sharp.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil

from tidegate.plan.answer import Answer
from tidegate.plan.ask import Ask, Kind
from tidegate.plan.tenants import Tenant, longest
from tidegate.planning.emit.yaml_lines import Lines


def traffic_text(ask: Ask, answer: Answer, tenants: Sequence[Tenant], configuration: str) -> str:
    """The file. `configuration` is the name of the file that it goes with."""
    lines = Lines()
    lines.comment("Written by `tidegate plan --emit`: the load that was planned for, in its busiest window.")
    lines.comment(f"It belongs to {configuration}.")
    lines.key(0, "sources")
    for tenant in tenants:
        for number, kind in enumerate(tenant.kinds, 1):
            lines.key(1, f"{tenant.name}-{number}")
            _told(lines, _source(ask, answer, tenant, kind))
    return str(lines)


def _told(lines: Lines, source: Mapping[str, object]) -> None:
    for key, value in source.items():
        if value is not None:
            lines.key(2, key, value)


def _source(ask: Ask, answer: Answer, tenant: Tenant, kind: Kind) -> Mapping[str, object]:
    share = tenant.load_share * kind.share / sum(each.share for each in tenant.kinds)
    load, hits = ask.load, round(ask.load.prefix_hit_ratio * kind.prompt_tokens)
    prompt, output = max(1, round(kind.prompt_tokens)), max(1, round(kind.output_tokens))
    sender = {"tenant": tenant.name, "class": kind.class_ or None}
    lengths = {
        "prompt_tokens": _law(prompt, kind.prompt_cv),
        "output_tokens": _law(output, kind.output_cv),
    }
    if load.users is not None:
        think = {"type": "exponential", "mean": load.think_s} if load.think_s > 0 else None
        clients = max(1, round(load.users * share))
        return {"kind": "clients", **sender, "clients": clients, "think_s": think, "lengths": lengths}
    arrivals: dict[str, object] = {"rate_per_s": answer.requests_per_s * share}
    if load.gap_cv == 0:
        arrivals["gaps"] = "even"
    elif load.gap_cv != 1:
        arrivals |= {"gaps": "gamma", "cv": load.gap_cv}
    if not hits or hits >= prompt:
        return {"kind": "open", **sender, "arrivals": arrivals, "lengths": lengths}
    return {
        "kind": "sessions",
        **sender,
        "starts": arrivals,
        "turns": _fixed(1),
        "system_tokens": hits,
        "new_tokens": _law(prompt - hits, kind.prompt_cv),
        "output_tokens": _law(output, kind.output_cv),
    }


def _law(mean: int, cv: float) -> Mapping[str, object]:
    """Of lengths; none is longer than what limits let through."""
    if cv == 0:
        return _fixed(mean)
    return {"type": "lognormal", "mean": mean, "cv": cv, "least": 1, "most": ceil(longest(mean, cv))}


def _fixed(value: int) -> Mapping[str, object]:
    return {"type": "fixed", "value": value}
