"""Which configuration serves a plan, with the reason of every figure above it?

URLs are placeholders, and so is the key of each tenant: nobody has it, until it is replaced.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tidegate.plan.advised import Advice, Figure, StepAdvice, TenantAdvice
from tidegate.plan.answer import Answer
from tidegate.plan.ask import Ask, HandFigures
from tidegate.plan.disaggregated.front import Front
from tidegate.plan.tenants import DEFAULT, Tenant, classes_of
from tidegate.planning.emit.apart import ROUTER, disaggregation, router_words
from tidegate.planning.emit.engines import curve_lines, engine_started
from tidegate.planning.emit.yaml_lines import Lines, inline

PLENTY_TOKENS = 2**24
"""KV cache, context and step of a replica of which two figures are known: they bound nothing."""
RETRIES = 100
"""Of users: more than anybody makes, as the gateway says when to come back."""
HEADER = (
    "Replace the URLs, and the keys: nobody has these (`tidegate key new` makes some). Then: tidegate config "
    "check {file}; tidegate serve {file}",
    "Would it hold? tidegate simulate {file} --traffic {traffic} --for {span} --repeat 5",
)


def configuration_text(
    plan: tuple[Ask, Answer, Advice],
    tenants: Sequence[Tenant],
    *,
    model: str,
    header: Sequence[str],
    front: Front | None = None,
) -> str:
    """The file, with one pool named `model`. `front`: replicas for prompts; None: each does both."""
    ask, answer, advice = plan
    lines = Lines()
    lines.comment(f"Written by `tidegate plan --emit`. {answer.summary}")
    lines.comment(answer.because)
    for text in header:
        lines.blank()
        lines.comment(text)
    for warning in advice.warnings:
        lines.blank()
        lines.comment(f"Note: {warning}")
    lines.blank()
    _pool(lines, ask, answer, advice, model)
    lines.blank()
    _classes(lines, ask, advice)
    lines.blank()
    _tenants(lines, advice, tenants)
    lines.blank()
    lines.comment("Credits per token, as the seconds that one more of it takes.")
    lines.key(0, "weights")
    _figures(lines, 1, advice.weights)
    lines.blank()
    lines.comment("What `tidegate simulate` takes the fleet to be; `serve` ignores it.")
    lines.key(0, "simulation")
    lines.key(1, "pools")
    lines.key(2, model)
    _engine(lines, ask, answer)
    if front is not None:
        disaggregation(lines, ask, answer, front)
    _clients(lines, ask)
    return str(lines)


def _figures(lines: Lines, depth: int, advice: msgspec.Struct) -> None:
    """Every figure of a struct that has a value, under its own name."""
    for name in advice.__struct_fields__:
        figure = getattr(advice, name)
        if isinstance(figure, Figure):
            _figure(lines, depth, name, figure)


def _figure(lines: Lines, depth: int, key: str, figure: Figure) -> None:
    if figure.value is None:
        lines.comment(f"{key}: {figure.reason}", depth)
    else:
        lines.key(depth, key, figure.value, figure.reason)


def _pool(lines: Lines, ask: Ask, answer: Answer, advice: Advice, model: str) -> None:
    lines.key(0, "pools")
    lines.key(1, model, reason="The model name that clients send.")
    _replicas(lines, answer)
    if not isinstance(ask.replica, HandFigures):
        lines.key(2, "context_tokens", ask.replica.engine.context_tokens, "What the engine takes.")
    together = "Of all of them together." if answer.disaggregated is not None else "Of each replica."
    lines.key(2, "gate", reason=together)
    _figures(lines, 3, advice.gate)
    lines.key(2, "queue")
    _figures(lines, 3, advice.queue)
    lines.key(2, "routing")
    lines.key(3, "policy", advice.routing.value, advice.routing.reason)
    lines.key(2, "prediction")
    _figures(lines, 3, advice.prediction)
    lines.key(2, "deadlines")
    _figures(lines, 3, advice.deadlines)
    value = "" if any(step.active for step in advice.degradation) else []
    reason = "Under pressure, in this order; protected classes are left alone."
    reason = reason if advice.degradation else "None: what is cut or refused comes again."
    lines.key(2, "degradation", value, reason)
    for step in advice.degradation:
        _step(lines, step)


def _replicas(lines: Lines, answer: Answer) -> None:
    if answer.disaggregated is not None:
        lines.key(2, "replicas", reason=router_words(answer.disaggregated))
        lines.item(3, {"name": ROUTER, "url": f"http://{ROUTER}.example:8000"})
        return
    lines.key(2, "replicas", reason=f"{answer.replicas}, {answer.spare_replicas} of them spare.")
    for number in range(1, answer.replicas + 1):
        name = f"replica-{number}"
        lines.item(3, {"name": name, "url": f"http://{name}.example:8000"})


def _step(lines: Lines, step: StepAdvice) -> None:
    figures: dict[str, object] = {
        "step": step.step,
        "above": step.above,
        "below": step.below,
        "max_tokens": step.max_tokens,
        "dwell_s": step.dwell_s,
        "classes": step.classes,
    }
    if step.step == "fallback":
        figures["pool"] = "another-pool"
    if step.active:
        lines.item(3, figures, step.reason)
    else:
        lines.comment(step.reason, 3)
        lines.comment(f"- {inline(figures)}", 3)


def _classes(lines: Lines, ask: Ask, advice: Advice) -> None:
    classes = classes_of(ask.load)
    if len(classes) > 1:
        lines.comment("Highest priority first: put them in your order.")
    lines.key(0, "classes")
    for name in classes:
        own = msgspec.structs.asdict(ask.terms.budgets_of(name))
        budgets = {figure: value for figure, value in own.items() if value}
        lines.key(1, name)
        _figure(lines, 2, "max_wait_s", advice.queue.max_wait_s[name])
        if budgets:
            share = f"P{100 * ask.terms.percentile:g}"
            lines.key(2, "budgets", budgets, f"Measured against, at {share}; what is enforced are deadlines.")


def _tenants(lines: Lines, advice: Advice, tenants: Sequence[Tenant]) -> None:
    lines.key(0, "tenants")
    for number, tenant in enumerate(tenants, 1):
        own = advice.tenants[tenant.name]
        lines.key(1, tenant.name)
        lines.key(2, "weight", own.weight)
        classes = list(dict.fromkeys(kind.class_ or DEFAULT for kind in tenant.kinds))
        lines.key(2, "class", classes[0])
        if len(classes) > 1:
            lines.key(2, "classes", classes)
        _limits(lines, own)
        lines.key(2, "keys", {"replace-me": {"sha256": f"{number:064x}"}})


def _limits(lines: Lines, own: TenantAdvice) -> None:
    if own.tokens_per_minute.value is None:
        lines.comment(f"limits: {own.tokens_per_minute.reason}", 2)
        return
    lines.key(2, "limits", reason=f"TTFT within these limits, whatever others do: {own.ttft_bound_s.reason}")
    _figure(lines, 3, "tokens_per_minute", own.tokens_per_minute)
    _figure(lines, 3, "burst_s", own.burst_s)


def _engine(lines: Lines, ask: Ask, answer: Answer) -> None:
    if isinstance(ask.replica, HandFigures):
        reason = "Two figures: a step takes as long however many are in it, and prompts take none."
        lines.key(3, "curve", {"a_s": ask.replica.tpot_s}, reason)
        tokens = dict.fromkeys(("max_batched_tokens", "kv_tokens", "context_tokens"), PLENTY_TOKENS)
        lines.key(3, "engine", {"max_num_seqs": answer.concurrency_per_replica, **tokens})
    else:
        curve_lines(lines, 3, ask.replica.engine.profile_curve, ask.replica.name)
        started = engine_started(ask.replica, ask.load)
        if answer.disaggregated is not None:  # the gateway cannot see how many decode
            started["max_num_seqs"] = answer.concurrency_per_replica
        lines.key(3, "engine", started)


def _clients(lines: Lines, ask: Ask) -> None:
    retries, reason = 0, "A refused request stays refused, and is counted as that."
    if ask.load.users is not None:
        retries, reason = (
            RETRIES,
            "Users who are refused come back when they are told to; each time is counted.",
        )
    lines.key(1, "clients", {"max_retries": retries}, reason)
