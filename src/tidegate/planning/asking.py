"""Which question do the options of the command line ask?"""

from __future__ import annotations

import msgspec

from tidegate.core.errors import ConfigurationError
from tidegate.core.records import Budgets
from tidegate.plan.ask import Ask, HandFigures, Kind, Load, Terms
from tidegate.planning.numbers import count_of, duration_of, number_of, ratio_of


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What was written, each as it was written; None: nothing."""

    qps: str | None = None
    peak_ratio: str | None = None
    output: str | None = None
    throughput: str | None = None
    ttft: str | None = None
    tpot: str | None = None
    e2e: str | None = None
    percentile: str = "95"
    utilisation: str = "70%"
    spare: str | None = None
    replicas: str | None = None
    price: str | None = None


def ask_of(options: Options) -> Ask:
    """The question. Raises ConfigurationError for options that do not make one."""
    terms = terms_of(options)
    return Ask(load=load_of(options), replica=hand_figures_of(options, terms), terms=terms)


def load_of(options: Options) -> Load:
    """What comes."""
    if options.output is None:
        raise ConfigurationError(["--output: how long are the answers? write --output TOKENS"])
    kind = Kind(prompt_tokens=0, output_tokens=number_of("--output", options.output, "tokens"))
    peak = number_of("--peak-ratio", options.peak_ratio, "a ratio") if options.peak_ratio else 1.0
    rate = number_of("--qps", options.qps, "requests/s") if options.qps is not None else None
    return Load(kinds=(kind,), requests_per_s=None if rate is None else rate * peak, peak_ratio=peak)


def hand_figures_of(options: Options, terms: Terms) -> HandFigures:
    """Way 1."""
    assert options.throughput is not None
    throughput = number_of("--throughput", options.throughput, "tokens/s")
    if terms.budgets.tpot_s is None:
        raise ConfigurationError(
            ["--throughput: how fast must each request be? write --tpot TIME, as in --tpot 20ms"]
        )
    return HandFigures(tokens_per_s=throughput, tpot_s=terms.budgets.tpot_s)


def terms_of(options: Options) -> Terms:
    """What must hold."""
    replicas = count_of("--replicas", options.replicas, "replicas") if options.replicas is not None else None
    spare = 0 if replicas == 1 else 1
    if options.spare is not None:
        spare = count_of("--spare", options.spare, "replicas", least=0)
    return Terms(
        budgets=Budgets(
            ttft_s=_duration("--ttft", options.ttft),
            tpot_s=_duration("--tpot", options.tpot),
            e2e_s=_duration("--e2e", options.e2e),
        ),
        percentile=_percentile(options.percentile),
        target_utilisation=ratio_of("--utilisation", options.utilisation),
        spare_replicas=spare,
        replicas=replicas,
        per_hour_usd=(
            number_of("--price", options.price, "US dollars an hour", above=False)
            if options.price is not None
            else None
        ),
    )


def _percentile(text: str) -> float:
    value = number_of("--percentile", text.strip().lower().removeprefix("p"), "a percentile")
    if not 50 <= value < 100:
        hint = f"; write {100 * value:g}" if 0.5 <= value < 1 else "; 95 is usual"
        raise ConfigurationError([f"--percentile: {value:g} is not from 50 to below 100{hint}"])
    return value / 100


def _duration(option: str, text: str | None) -> float | None:
    return None if text is None else duration_of(option, text)
