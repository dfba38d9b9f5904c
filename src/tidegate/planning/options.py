"""What was written on the command line, and do its options go together?"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tidegate.core.errors import ConfigurationError


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Each as it was written; None: it was not."""

    qps: str | None = None
    users: str | None = None
    think: str | None = None
    trace: str | None = None
    traffic: str | None = None
    peak_ratio: str | None = None
    input: str | None = None
    output: str | None = None
    prefix_hit: str | None = None
    schedule: bool = False
    offline: str | None = None
    within: str | None = None
    throughput: str | None = None
    profile: str | None = None
    model: str | None = None
    gpu: str | None = None
    tp: str | None = None
    pp: str | None = None
    ep: str | None = None
    dp: str | None = None
    quant: str | None = None
    kv_quant: str | None = None
    engine: str | None = None
    draft: str | None = None
    draft_tokens: str | None = None
    acceptance: str | None = None
    max_num_seqs: str | None = None
    max_batched_tokens: str | None = None
    max_model_len: str | None = None
    disaggregated: bool = False
    prefill_gpu: str | None = None
    prefill_tp: str | None = None
    link: str | None = None
    offload: str | None = None
    offload_link: str | None = None
    memory: str | None = None
    reserve: str | None = None
    catalog: tuple[str, ...] = ()
    ttft: str | None = None
    tpot: str | None = None
    e2e: str | None = None
    percentile: str = "95"
    utilisation: str | None = None
    spare: str | None = None
    replicas: str | None = None
    gpus: str | None = None
    price: str | None = None
    tenants: str | None = None
    emit: str | None = None
    force: bool = False
    verify: bool = False
    curve: bool = False
    html: str | None = None

    def said(self, names: Iterable[str]) -> list[str]:
        """Those of the options that were written, as they are written."""
        return [
            f"--{name.replace('_', '-')}" for name in names if getattr(self, name) not in (None, False, ())
        ]


LOADS = ("qps", "users", "trace", "traffic", "offline")
WAYS = ("throughput", "profile", "model")
DEPLOYED = ("gpu", "tp", "pp", "ep", "dp", "quant", "kv_quant", "engine", "memory", "reserve", "catalog")
BELONG = {
    "think": ("users",),
    "schedule": ("trace", "traffic"),
    **dict.fromkeys(DEPLOYED, ("model",)),
    **dict.fromkeys(("max_num_seqs", "max_batched_tokens", "max_model_len"), ("model", "profile")),
    **dict.fromkeys(("draft_tokens", "acceptance"), ("draft",)),
    "disaggregated": ("model",),
    **dict.fromkeys(("prefill_gpu", "prefill_tp"), ("disaggregated",)),
    "link": ("model",),
    "offload": ("model",),
    "offload_link": ("offload",),
    "force": ("emit", "html"),
    "offline": ("within",),
    "within": ("offline",),
}
"""Options that say nothing without one of others."""


def check_together(options: Options) -> None:
    """Raise ConfigurationError for options of which one contradicts another, or says nothing."""
    problems = [
        f"{' and '.join(said)}: each says {what}; write one of them"
        for names, what in (
            (LOADS, "what comes"),
            (WAYS, "what a replica does"),
            (("replicas", "gpus"), "what there is"),
        )
        if len(said := options.said(names)) > 1
    ]
    for name, needed in BELONG.items():
        if options.said([name]) and not options.said(needed):
            others = " or ".join(f"--{each}" for each in needed)
            (written,) = options.said([name])
            problems.append(f"{written} belongs to {others}; write that too, or leave it out")
    if not options.said(WAYS):
        problems.append(
            "what does a replica do; write --throughput and --tpot, --model and --gpu, or --profile"
        )
    problems += _of_drafts(options)
    problems += [
        f"{also} and --offline: they are for a load with a rate; leave one out"
        for also in options.said(["disaggregated", "curve", "offload"] if options.offline else [])
    ]
    problems += [
        f"{also} and --offline: batch work has no busiest minute; leave one out"
        for also in options.said(["peak_ratio"] if options.offline else [])
    ]
    problems += [
        f"{also} and --disaggregated: not known of replicas that are apart; leave one out"
        for also in options.said(["offload"] if options.disaggregated else [])
    ]
    problems += [
        f"{also}: the --{name} says that; leave it out"
        for name in ("trace", "traffic")
        for also in options.said(["input", "output", "peak_ratio"] if options.said([name]) else [])
    ]
    if problems:
        raise ConfigurationError(problems)


def _of_drafts(options: Options) -> list[str]:
    """Ways to say what a replica does that do not go with --draft."""
    reasons = {
        "throughput": "two figures do not tell what a step would take",
        "profile": "a profile says itself how its engine guesses (speculation)",
        "disaggregated": "not known of replicas that are apart",
        "pp": "not known of a model in stages",
    }
    return [
        f"--draft and --{name}: {reason}; leave one out"
        for name, reason in reasons.items()
        if options.draft is not None and options.said([name])
    ]
