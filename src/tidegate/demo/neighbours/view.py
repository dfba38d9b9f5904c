"""How are the three runs drawn, while they run and at the end?"""

from __future__ import annotations

from math import isnan

import msgspec
from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tidegate.demo.neighbours.comparison import QUOTA_RATIO_MIN, SLOWDOWN_MAX, Comparison, slowdown
from tidegate.demo.neighbours.figures import RunFigures
from tidegate.demo.neighbours.scenario import (
    NOISY_PER_MINUTE,
    NOISY_PROMPT_TOKENS,
    OTHERS,
    OTHERS_PER_MINUTE,
    REQUESTS_PER_MINUTE,
)
from tidegate.demo.view import duration

LONG_PROMPT_TOKENS = NOISY_PROMPT_TOKENS / 2
"""More than all others together ever have waiting on one replica."""


class FleetLook(msgspec.Struct, frozen=True, kw_only=True):
    """One fleet at this moment: by replica the requests that run, and the prompt tokens still to compute."""

    rule: str
    replicas: dict[str, tuple[int, float]]
    queued: int


def story(*, simulated: bool = False) -> str:
    """What is played."""
    gateways = "simulated gateways" if simulated else "gateways"
    return (
        f"Every tenant may send {REQUESTS_PER_MINUTE:.0f} requests a minute. {len(OTHERS)} send "
        f"{OTHERS_PER_MINUTE:.0f} of a real chat trace. A noisy one sends only {NOISY_PER_MINUTE:.0f}, with "
        f"prompts of {NOISY_PROMPT_TOKENS:,} tokens. Three {gateways}, each with a fleet of its own, get the "
        "same traffic at the same time; only the rule differs."
    )


def progress(elapsed_s: float, for_s: float, speed: float) -> str:
    """Where it stands."""
    pace = "" if speed == 1 else f", {speed:g} times as fast"
    if elapsed_s <= for_s:
        return f"{elapsed_s:.0f} s of {for_s:.0f} s of traffic{pace}"
    return f"all {for_s:.0f} s of traffic are sent{pace}; waiting for the last answers"


def screen(title: str, runs: list[RunFigures], fleets: list[FleetLook]) -> RenderableType:
    """While it runs."""
    heading = Text.assemble(("tidegate demo noisy-neighbour", "bold"), f"  {title}")
    return Group(heading, Text(), Text(story()), Text(), _runs(runs), Text(), _fleets(fleets))


def verdict(found: Comparison) -> RenderableType:
    """At the end."""
    runs = [found.baseline, found.by_requests, found.by_tokens]
    parts: list[RenderableType] = [
        Text(story(simulated=found.simulated)),
        _runs(runs),
        Text(_arithmetic(found)),
        _conclusion(found),
    ]
    if found.log:
        parts.append(Text("\n".join(["The gateways had this to say:", *found.log]), style="yellow"))
    return Group(*(each for part in parts for each in (part, Text())))


def line(title: str, runs: list[RunFigures]) -> str:
    """While it runs, where there is no terminal."""
    parts = [f"{run.rule}: TTFT P95 {duration(run.others.ttft_s.p95)}" for run in runs]
    return f"{title}; {'; '.join(parts)}"


def _runs(runs: list[RunFigures]) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    table.add_column("others under", no_wrap=True)
    for name in ("TTFT P50", "P95", "ratio", "TPOT P95", "noisy ok", "refused", "tok/min"):
        table.add_column(name, justify="right", no_wrap=True)
    for run in runs:
        others, noisy = run.others, run.noisy
        table.add_row(
            run.rule,
            duration(others.ttft_s.p50),
            duration(others.ttft_s.p95),
            ratio_text(slowdown(others.ttft_s, runs[0].others.ttft_s)),
            duration(others.tpot_s.p95),
            f"{noisy.served}" if noisy.requests else "-",
            f"{noisy.refused}" if noisy.requests else "-",
            millions(run.noisy_tokens_per_minute) if noisy.requests else "-",
        )
    return table


def ratio_text(ratio: float) -> Text:
    """How many times as long; red above what was promised."""
    if isnan(ratio):
        return Text("-")
    return Text(f"{ratio:.2f}", style="bold red" if ratio > SLOWDOWN_MAX else "bold green")


def _fleets(fleets: list[FleetLook]) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    table.add_column("running now", no_wrap=True, min_width=16)
    for name in fleets[0].replicas:
        table.add_column(name, no_wrap=True, min_width=9)
    table.add_column("queued", justify="right", no_wrap=True)
    for fleet in fleets:
        cells = [_replica(running, prefill) for running, prefill in fleet.replicas.values()]
        table.add_row(fleet.rule, *cells, Text(f"{fleet.queued}", style="yellow" if fleet.queued else ""))
    return table


def _replica(running: int, prefill_tokens: float) -> Text:
    text = Text(f"{running}")
    if prefill_tokens > LONG_PROMPT_TOKENS:
        text.append(f" +{prefill_tokens / 1000:.0f}K", style="red")
    return text


def _arithmetic(found: Comparison) -> str:
    quota = found.quota
    return (
        f"The fleet computes at most {millions(quota.capacity_tokens_per_minute)} tokens a minute, so that "
        f"an equal share for {quota.tenants} is {millions(quota.equal_share_tokens_per_minute)}. Each "
        f"tenant's quota is {millions(quota.tokens_per_minute)}, with a bucket of "
        f"{quota.burst_tokens / 1000:.0f}K that was full at the start. In {found.by_tokens.sent_s:.0f} s the "
        f"noisy one got {found.quota_ratio:.0%} of rate x time, which is "
        f"{found.quota_ratio_with_burst:.0%} of that and the bucket."
    )


def _conclusion(found: Comparison) -> Text:
    if not found.complete:
        return Text("Stopped early: this proves nothing.", style="yellow")
    harm = (
        f"Under request limits the others wait {found.slowdown_by_requests:.1f} times as long for a first "
        "token (P95) as without the noisy tenant, which keeps to its limit: a request limit does not see "
        f"what is in a request. Under token limits they wait {found.slowdown_by_tokens:.2f} times as long"
    )
    if found.held:
        kept = "and the noisy tenant still gets all that its quota is worth. Limit tokens, not requests."
        return Text(f"{harm}, {kept}", style="green")
    broken = (
        f"{harm} (promised: {SLOWDOWN_MAX}), and the noisy tenant got {found.quota_ratio:.0%} of its quota "
        f"(promised: {QUOTA_RATIO_MIN:.0%}). This run did NOT keep the promise"
    )
    late = duration(found.by_tokens.lag_s.p99)
    doubt = "" if found.simulated else f"; was the machine busy? Its load generator was {late} late at P99"
    return Text(f"{broken}{doubt}.", style="bold red")


def millions(tokens: float) -> str:
    """In millions, three digits."""
    return f"{tokens / 1e6:.2f}M"
