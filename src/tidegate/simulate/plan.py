"""Which runs does a command line ask for, and which of its points cannot be?"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from tidegate.config import Config, parse
from tidegate.config.documents import read
from tidegate.config.problems import did_you_mean
from tidegate.core.errors import ConfigurationError
from tidegate.core.records import Budgets
from tidegate.core.units import format_duration, format_span, seconds_of
from tidegate.sim.scenario import Scenario
from tidegate.sim.scenario import check as check_scenario
from tidegate.simulate.figures import Terms
from tidegate.simulate.fleet import (
    askers_of,
    assumed_of,
    extrapolated_of,
    scenario_of,
    terms_of,
    uncounted_keys,
)
from tidegate.simulate.load import Load, budgets_of, check_names, span_of
from tidegate.simulate.load import check as check_load
from tidegate.simulate.run import AUTO, RunSettings
from tidegate.simulate.sweeps import SHORT, points_of, settings_of

LOAD_OPTIONS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "trace": ("trace", str),
    "rate": ("rate_per_s", float),
    "cv": ("cv", float),
    "time_scale": ("time_scale", float),
    "requests": ("requests", int),
    "prompt_tokens": ("prompt_tokens", int),
    "output_tokens": ("output_tokens", int),
    "lengths": ("lengths", str),
    "traffic": ("traffic", str),
}
"""Options of the load that a sweep may set, with the field of `Load` and how it is read."""
OPTIONS = ("profile", *LOAD_OPTIONS)


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line says, before any of it is judged."""

    file: Path
    load: Load
    """`askers` are those of each point's file."""
    values: dict[str, str] = {}
    """Settings that stand instead of the file's at every point."""
    sweeps: tuple[str, ...] = ()
    profile: str | None = None
    budgets: Budgets = Budgets()
    warm_up: str | float = AUTO
    seed: int = 1
    repeat: int = 1

    @property
    def seeds(self) -> range:
        """One for each run of a point."""
        return range(self.seed, self.seed + self.repeat)


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """One point of the sweep, judged."""

    set: dict[str, str]
    scenario: Scenario
    load: Load
    terms: Terms
    assumed: tuple[str, ...]
    """Pools of which the file does not say what they are."""
    uncounted: tuple[str, ...]
    """Keys whose limits are not simulated."""
    extrapolated: tuple[str, ...]
    """What engines may do that their profile was not measured at."""
    profile: str | None


class Impossible(msgspec.Struct, frozen=True, kw_only=True):
    """A point that cannot be."""

    set: dict[str, str]
    problems: tuple[str, ...]


def judged_points(plan: Plan) -> list[Point | Impossible]:
    """Every point of the plan. Raises ConfigurationError for what is wrong with all of them."""
    text = read(plan.file)
    swept = points_of(plan.sweeps)
    problems = [f"--sweep {key}: {problem}" for key in swept[0] if (problem := _unknown(key))]
    problems += [f"{given} and --sweep {key}: leave one out" for key, given in _twice(plan, swept[0])]
    if problems:
        raise ConfigurationError(problems)
    return [_point(plan, text, each) for each in swept]


def runs_of(
    plan: Plan, point: Point, *, records: bool, plots: bool, perfetto: Path | None
) -> Iterator[RunSettings]:
    """The runs of one point. The first keeps what plots show, and writes its batches to `perfetto`."""
    for seed in plan.seeds:
        first = seed == plan.seed
        yield RunSettings(
            scenario=point.scenario,
            load=point.load,
            terms=point.terms,
            seed=seed,
            warm_up=plan.warm_up,
            plots=plots and first,
            keep_records=records,
            perfetto=perfetto if first else None,
        )


def values_of(texts: Sequence[str]) -> dict[str, str]:
    """Settings by path, of `--set KEY=VALUE`."""
    values = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key or not value:
            raise ConfigurationError([f"--set {text}: write KEY=VALUE, such as limits.max_in_flight=100"])
        values[SHORT.get(key, key)] = value
    return values


def warm_up_of(text: str) -> str | float:
    """`auto`, `none`, or a duration."""
    if text == AUTO:
        return AUTO
    return 0.0 if text == "none" else seconds_of("--warmup", text)


def header_of(plan: Plan, planned: Sequence[Point | Impossible]) -> str:
    """What will be run, in a line."""
    first = next(each for each in planned if isinstance(each, Point))
    replicas = sum(map(len, first.scenario.pools.values()))
    fleet = f"{_counted(len(first.scenario.pools), 'pool')}, {_counted(replicas, 'replica')}"
    seeds = f"seed {plan.seed}" if plan.repeat == 1 else f"seeds {plan.seed} to {plan.seed + plan.repeat - 1}"
    sweep = f"{len(planned)} points, the first of them: " if len(planned) > 1 else ""
    return f"simulating {plan.file}: {sweep}{fleet}; {first.load}; {seeds}"


def _unknown(key: str) -> str:
    """What is wrong with a name that neither is an option nor can be a path of the file; else nothing."""
    names = [*SHORT, *OPTIONS]
    sections = [field.encode_name for field in msgspec.structs.fields(Config)]
    if "." in key or key in names or key in sections:
        return ""
    return f"neither an option nor a path of the file; {did_you_mean(key, names)}"


def _twice(plan: Plan, swept: Iterable[str]) -> Iterator[tuple[str, str]]:
    """What is swept and given by its own option too, and as what. Of `--set` a sweep has the last word."""
    defaults = {field.name: field.default for field in msgspec.structs.fields(Load)}
    for key in swept:
        if key == "profile" and plan.profile is not None:
            yield key, f"--profile {plan.profile}"
        elif key in LOAD_OPTIONS:
            field = LOAD_OPTIONS[key][0]
            value = getattr(plan.load, field)
            if value != defaults[field]:
                shown = f"{value:g}" if isinstance(value, float) else value
                yield key, f"--{key.replace('_', '-')} {shown}"


def _point(plan: Plan, text: str, set_: dict[str, str]) -> Point | Impossible:
    try:
        own, paths = settings_of(set_, OPTIONS)
        config = parse(
            text, str(plan.file), base=plan.file.parent, environ=None, values={**plan.values, **paths}
        )
        return _judged(plan, config, set_, own)
    except ConfigurationError as error:
        return Impossible(set=set_, problems=tuple(error.problems))


def _judged(plan: Plan, config: Config, set_: dict[str, str], own: Mapping[str, str]) -> Point:
    profile = own.get("profile", plan.profile)
    assumed = tuple(assumed_of(config))
    if profile is not None and not assumed:
        remedy = "set simulation.pools.*.profile instead, by --set or --sweep"
        raise ConfigurationError([f"--profile {profile}: the file says what every engine is; {remedy}"])
    load = msgspec.structs.replace(plan.load, askers=askers_of(config), **_load_values(own))
    check_load(load)
    check_names(load, config)
    _check_warm_up(plan.warm_up, load)
    scenario = scenario_of(config, profile)
    check_scenario(scenario)
    return Point(
        set=set_,
        scenario=scenario,
        load=load,
        terms=terms_of(config, plan.budgets, budgets_of(load, config)),
        assumed=assumed,
        uncounted=tuple(uncounted_keys(config)),
        extrapolated=tuple(extrapolated_of(config, profile)),
        profile=profile,
    )


def _check_warm_up(warm_up: str | float, load: Load) -> None:
    """Raise ConfigurationError if it leaves nothing to measure. How long a traffic file asks is not known."""
    if not isinstance(warm_up, float) or not warm_up or load.traffic is not None:
        return
    span_s = span_of(load)
    if warm_up >= span_s:
        shown = f"--warmup {format_duration(warm_up)}"
        problem = f"requests come for {format_span(span_s)} only, so that nothing is left to measure"
        raise ConfigurationError([f"{shown}: {problem}; shorten it, or run longer with --for"])


def _load_values(own: Mapping[str, str]) -> dict[str, Any]:
    values = {}
    for key, text in own.items():
        if key in LOAD_OPTIONS:
            field, convert = LOAD_OPTIONS[key]
            try:
                values[field] = convert(text)
            except ValueError:
                kind = "a whole number" if convert is int else "a number"
                raise ConfigurationError([f"{key}={text}: is not {kind}"]) from None
    return values


def _counted(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"
