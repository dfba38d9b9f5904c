"""Which question do the options of the command line ask?"""

from __future__ import annotations

from pathlib import Path

import msgspec

from tidegate.core.errors import ConfigurationError
from tidegate.core.records import Budgets
from tidegate.core.units import format_duration
from tidegate.plan.arrivals import Hour, Stream, hours_of, load_of_streams
from tidegate.plan.ask import USERS_CV, Ask, ClassBudgets, HandFigures, Kind, Load, Replica, Terms
from tidegate.plan.disaggregated.front import Front
from tidegate.plan.offline import INTERACTIVE, MAX_BATCHED_TOKENS, MAX_NUM_SEQS, TARGET_UTILISATION
from tidegate.planning.numbers import count_of, duration_of, number_of, pause_of, percentile_of, ratio_of
from tidegate.planning.options import Options, check_together

MOST_AT_ONCE = 10_000
"""In a replica by hand figures: ten times what engines are started with."""


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked, and what is to be said beside the answer."""

    ask: Ask
    front: Front | None = None
    """Of disaggregated replicas, those for prompts; None: each does both."""
    interactive: Ask | None = None
    """Of batch work: the same rate for people, to compare with."""
    hours: tuple[Hour, ...] = ()
    """For which a schedule is asked for; empty: none is."""
    notes: tuple[str, ...] = ()
    """How the options were understood, where that is not plain."""


def question_of(options: Options) -> Question:
    """The question. Raises ConfigurationError for options that do not make one."""
    check_together(options)
    if options.offline is not None:
        return _batch_work(options)
    terms = terms_of(options)
    if options.disaggregated:
        return _apart(options, terms)
    replica = replica_of(options, terms)
    terms = terms_for(options, terms, replica)
    load, hours = load_of(options, terms)
    ask = Ask(load=load, replica=replica, terms=terms)
    return Question(ask=ask, hours=hours, notes=_extrapolated(options))


def load_of(options: Options, terms: Terms) -> tuple[Load, tuple[Hour, ...]]:
    """What comes, and its hours, if a schedule is asked for."""
    streams = _streams(options, terms)
    hits = ratio_of("--prefix-hit", options.prefix_hit) if options.prefix_hit is not None else 0.0
    load = load_of_streams(streams, hits) if streams else _load_by_hand(options, hits)
    return load, tuple(hours_of(streams)) if options.schedule else ()


def terms_for(options: Options, terms: Terms, replica: HandFigures | Replica) -> Terms:
    """With as many replicas as there are, at its accelerator's price. ConfigurationError for none."""
    return _priced(_what_there_is(options, terms, replica), replica)


def _apart(options: Options, terms: Terms) -> Question:
    """The question about disaggregated replicas."""
    from tidegate.planning.apart import front_of, terms_apart

    replica = replica_of(options, terms)
    assert isinstance(replica, Replica)
    front = front_of(options, replica)
    load, hours = load_of(options, terms)
    ask = Ask(load=load, replica=replica, terms=_priced(terms_apart(options, terms, front, replica), replica))
    told = (
        "prompts apart from decoding: classes are not told apart, the tightest of their budgets hold for all"
    )
    return Question(ask=ask, front=front, hours=hours, notes=(told,) if terms.classes else ())


def _batch_work(options: Options) -> Question:
    """The question, and the same for people."""
    batches, people, within_s = batch_options(options)
    question = question_of(batches)
    terms = msgspec.structs.replace(question.ask.terms, within_s=within_s)
    ask = msgspec.structs.replace(question.ask, terms=terms)
    return Question(ask=ask, interactive=question_of(people).ask, notes=question.notes)


def batch_options(options: Options) -> tuple[Options, Options, float]:
    """Without budgets, in large batches; those that are given are for people, to compare with; by when."""
    within_s = duration_of("--within", options.within or "")
    requests = count_of("--offline", options.offline or "", "requests")
    rate = f"{requests / within_s!r}"
    people = msgspec.structs.replace(
        options,
        qps=rate,
        offline=None,
        within=None,
        ttft=options.ttft or format_duration(INTERACTIVE.ttft_s or 0.0),
        tpot=options.tpot or format_duration(INTERACTIVE.tpot_s or 0.0),
    )
    large = options.model is not None
    batches = msgspec.structs.replace(
        people,
        ttft=None,
        tpot=options.tpot if options.throughput else None,
        e2e=None,
        utilisation=options.utilisation or f"{TARGET_UTILISATION}",
        spare=options.spare or "0",
        max_num_seqs=options.max_num_seqs or (f"{MAX_NUM_SEQS}" if large else None),
        max_batched_tokens=options.max_batched_tokens or (f"{MAX_BATCHED_TOKENS}" if large else None),
    )
    return batches, people, within_s


def _streams(options: Options, terms: Terms) -> list[Stream]:
    """Of a trace or a traffic file; none where neither is asked for."""
    if not options.trace and not options.traffic:
        return []
    from tidegate.planning.loads import trace_stream, traffic_streams

    if options.trace:
        return [trace_stream(options.trace)]
    return traffic_streams(Path(options.traffic or ""), terms)


def _load_by_hand(options: Options, hits: float) -> Load:
    if options.output is None:
        raise ConfigurationError(
            ["--output: how long are the answers; write --output TOKENS, as in --output 500"]
        )
    if options.input is None and not options.throughput:
        raise ConfigurationError(
            ["--input: how long are the prompts; write --input TOKENS, as in --input 2000"]
        )
    output = number_of("--output", options.output, "tokens", least=1, above=False)
    prompt = number_of("--input", options.input, "tokens", least=1, above=False) if options.input else 0.0
    peak = (
        number_of("--peak-ratio", options.peak_ratio, "a ratio", least=1, above=False)
        if options.peak_ratio
        else 1.0
    )
    rate = number_of("--qps", options.qps, "requests/s") if options.qps is not None else None
    varies = USERS_CV if options.users is not None else 0.0
    return Load(
        kinds=(Kind(prompt_tokens=prompt, output_tokens=output, prompt_cv=varies, output_cv=varies),),
        requests_per_s=None if rate is None else rate * peak,
        peak_ratio=peak,
        prefix_hit_ratio=hits,
        users=count_of("--users", options.users, "users") if options.users is not None else None,
        think_s=pause_of("--think", options.think or "0"),
    )


def replica_of(options: Options, terms: Terms) -> HandFigures | Replica:
    """What a replica does, however that is told."""
    if options.throughput is not None:
        return _hand_figures(options.throughput, terms)
    from tidegate.planning.replicas import replica_by_model, replica_by_profile

    if options.profile is not None:
        return replica_by_profile(options.profile, options)
    return replica_by_model(options)


def _extrapolated(options: Options) -> tuple[str, ...]:
    """In how far a profile's bounds allow what its steps were not measured at."""
    if options.profile is None:
        return ()
    from tidegate.config.profiles import profile_by

    beyond = profile_by(options.profile).beyond()
    return (f"{options.profile}: extrapolated up to {', '.join(beyond)}",) if beyond else ()


def _hand_figures(throughput: str, terms: Terms) -> HandFigures:
    figure = number_of("--throughput", throughput, "tokens/s")
    if terms.budgets.tpot_s is None:
        problem = "--throughput: how fast must each request be; write --tpot TIME, as in --tpot 20ms"
        raise ConfigurationError([problem])
    if (at_once := figure * terms.budgets.tpot_s) > MOST_AT_ONCE:
        problem = f"--throughput and --tpot: they are {at_once:,.0f} requests at once in one replica"
        raise ConfigurationError([f"{problem}; check both, for {MOST_AT_ONCE:,} are the most"])
    return HandFigures(tokens_per_s=figure, tpot_s=terms.budgets.tpot_s)


def terms_of(options: Options) -> Terms:
    """What must hold. How many replicas there are is not in it yet: see `_what_there_is`."""
    price = None
    if options.price is not None:
        price = number_of("--price", options.price, "US dollars an hour", above=False)
    budgets, classes = _budgets(options)
    return Terms(
        budgets=budgets,
        classes=classes,
        percentile=percentile_of("--percentile", options.percentile),
        target_utilisation=ratio_of("--utilisation", options.utilisation or "70%", above=True),
        spare_replicas=count_of("--spare", options.spare or "1", "replicas", least=0),
        per_hour_usd=price,
    )


def _budgets(options: Options) -> tuple[Budgets, tuple[ClassBudgets, ...]]:
    """What all must hold, and what each class must where the traffic file has classes with their own."""
    budgets = Budgets(
        ttft_s=_duration("--ttft", options.ttft),
        tpot_s=_duration("--tpot", options.tpot),
        e2e_s=_duration("--e2e", options.e2e),
    )
    if not options.traffic:
        return budgets, ()
    from tidegate.planning.loads import classes_of_traffic, tightest

    classes = classes_of_traffic(Path(options.traffic), budgets)
    return tightest(classes) if classes else budgets, classes


def _what_there_is(options: Options, terms: Terms, replica: HandFigures | Replica) -> Terms:
    """With as many replicas as there are, if that is said. Of one none is spare, unless that is said too."""
    replicas = None
    if options.replicas is not None:
        replicas = count_of("--replicas", options.replicas, "replicas")
    elif options.gpus is not None:
        gpus = count_of("--gpus", options.gpus, "accelerators")
        each = replica.accelerators if isinstance(replica, Replica) else 1
        replicas = gpus // each
        if not replicas:
            raise ConfigurationError([f"--gpus: a replica has {each}, and there are {gpus}; give it fewer"])
    elif not options.said(("qps", "users", "trace", "traffic")):
        replicas = 1
    spare = terms.spare_replicas
    if replicas == 1 and options.spare is None:
        spare = 0
    return msgspec.structs.replace(terms, replicas=replicas, spare_replicas=spare)


def _priced(terms: Terms, replica: HandFigures | Replica) -> Terms:
    """At the catalogue's price, unless another is said or it has none."""
    deployment = replica.deployment if isinstance(replica, Replica) else None
    price = deployment.accelerator.price if deployment is not None else None
    if terms.per_hour_usd is not None or price is None:
        return terms
    return msgspec.structs.replace(terms, per_hour_usd=price.per_hour_usd)


def _duration(option: str, text: str | None) -> float | None:
    return None if text is None else duration_of(option, text)
