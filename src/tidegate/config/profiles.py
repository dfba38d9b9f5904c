"""What is an engine said to be, by a name or by a profile file, and how far is what was measured of it known?

A profile file is YAML (or JSON): `curve` (its `type` is linear or table), `replica`, and, where `tidegate
calibrate` wrote it, `measured`. `emulate`, `simulate` and `plan` read it by `profile_by`. Each of them says
where it goes beyond what was measured (`ProfileFile.beyond`): a curve is a line, and lines have no end.
"""

from __future__ import annotations

from functools import lru_cache
from math import inf
from pathlib import Path

import msgspec
import yaml

from tidegate.config.decoding import INVALID, Decoder, of_type
from tidegate.config.documents import compose, read
from tidegate.config.problems import report
from tidegate.config.simulation import PrefillConfig, SimulatedEngine
from tidegate.core.curve import Curve, Linear, Table
from tidegate.core.errors import ConfigurationError
from tidegate.sim.profiles import Profile, named
from tidegate.sim.settings import Disaggregation

DEFAULT_PROFILE = "h100-8b"
"""Where neither the file nor the command line names one."""
SUFFIXES = (".json", ".yaml", ".yml")
SLACK = 1.2
"""So many times the largest that was measured is not worth a word yet."""


class Span(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """From the least to the most that was measured."""

    least: float
    most: float

    def __post_init__(self) -> None:
        """ConfigurationError for an end before the beginning."""
        if not 0 <= self.least <= self.most < inf:
            raise ConfigurationError(["least and most are 0 or more, finite, and in this order"])

    def __str__(self) -> str:
        return f"{self.least:,.0f} to {self.most:,.0f}"


class Measured(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a curve comes from, where it holds, and how well."""

    source: str
    """What was measured: an engine and its model, or files."""
    date: str = ""
    """When, as in 2030-12-31."""
    points: int
    held_out_points: int = 0
    """As many more, which the stated errors are of."""
    held_out_error_ratio: float | None = None
    """Mean of the relative errors at points that the fit did not see, 0.05 for 5 %; null: there were none."""
    held_out_worst_ratio: float | None = None
    repeat_error_ratio: float | None = None
    """What of that error is no line's fault: how far held-out points are from other runs of the same."""
    disturbed_ratio: float = 0.0
    """Share of the repeats that took much longer than others of their kind, and count for nothing here."""
    sequences: Span
    """In a step."""
    context_tokens: Span
    """That the sequences of a step attend to, in sum."""
    sequence_tokens: Span | None = None
    """That each of them attends to, in the mean; null: nobody says."""
    prompt_tokens: Span | None = None
    """Of the prompts whose prefill was measured; null: of none."""
    first_token_overhead_s: float = 0.0
    """From the end of the step to the client, beyond what any step takes; in no curve."""
    standard_errors: dict[str, float] = {}
    """By constant of the curve, in its unit; one that is missing is not known from these points."""
    assumed: tuple[str, ...] = ()
    """Settings of the replica that the engine does not tell, and nobody gave."""
    warnings: tuple[str, ...] = ()
    """What is wrong with the points, and which runs would help."""

    def beyond(
        self,
        *,
        sequences: float | None = None,
        context_tokens: float | None = None,
        sequence_tokens: float | None = None,
        prompt_tokens: float | None = None,
    ) -> list[str]:
        """Which of these figures of a step are outside of what was measured, and what that was."""
        asked = (
            ("sequences", sequences, self.sequences),
            ("tokens of context", context_tokens, self.context_tokens),
            (
                "tokens of context in one sequence",
                sequence_tokens if self.sequence_tokens else None,
                self.sequence_tokens,
            ),
            ("tokens of a prompt", prompt_tokens, self.prompt_tokens),
        )
        return [
            f"{value:,.0f} {what} (measured: {'none' if span is None else span})"
            for what, value, span in asked
            if value is not None and (span is None or not span.least / SLACK <= value <= span.most * SLACK)
        ]


class ProfileFile(Profile, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A profile, and where its curve holds if it was measured."""

    measured: Measured | None = None

    def beyond(self) -> list[str]:
        """In how far the replica's own bounds let it do what was not measured."""
        if self.measured is None:
            return []
        bounds = self.replica
        return self.measured.beyond(
            sequences=bounds.max_num_seqs,
            context_tokens=min(bounds.kv_tokens, bounds.max_num_seqs * bounds.context_tokens),
            sequence_tokens=min(bounds.kv_tokens, bounds.context_tokens),
            prompt_tokens=bounds.context_tokens,
        )


def is_file(profile: str) -> bool:
    """Whether that is a profile file, and not the name of a profile."""
    return profile.endswith(SUFFIXES)


def profile_by(profile: str) -> ProfileFile:
    """The profile of that name, or of that file. Raises ConfigurationError."""
    return read_profile(Path(profile)) if is_file(profile) else _of_file(named(profile))


@lru_cache
def read_profile(path: Path) -> ProfileFile:
    """The profile of a file. Raises ConfigurationError with everything that is wrong with it."""
    if path.suffix == ".json":
        return _read_json(path)
    try:
        text = read(path)
    except ConfigurationError as error:
        raise ConfigurationError([f"profile {problem}" for problem in error.problems]) from None
    return parse_profile(text, f"profile {path}")


def _read_json(path: Path) -> ProfileFile:
    try:
        return msgspec.json.decode(path.read_bytes(), type=ProfileFile)
    except OSError as error:
        raise ConfigurationError([f"profile {path}: {error.strerror}"]) from None
    except (msgspec.MsgspecError, ConfigurationError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigurationError([f"profile {path}: {error}"]) from None


def parse_profile(text: str, source: str) -> ProfileFile:
    """The profile that YAML text describes; `source` names it in problems. Raises ConfigurationError."""
    decoder = Decoder(base=Path())
    node = compose(text, source, "it needs a curve and a replica")
    profile = decoder.decode(node, of_type(ProfileFile), ())
    if decoder.problems or profile is INVALID:
        raise ConfigurationError(report(source, decoder.problems, decoder.marks))
    assert isinstance(profile, ProfileFile)
    return profile


def as_yaml(profile: ProfileFile) -> str:
    """The text of a profile file."""
    return yaml.safe_dump(_told(profile), sort_keys=False, allow_unicode=True, width=110)


def profile_of(*engines: SimulatedEngine, default: str = DEFAULT_PROFILE) -> Profile:
    """The profile of a replica. What a later one of `engines` says stands instead of an earlier one's.

    `default` names one, or a file. Raises ConfigurationError for settings that do not go together.
    """
    said = _said_of(engines, default)
    found = Profile(
        curve=said.curve, replica=said.replica, disaggregation=said.disaggregation, prefill=said.prefill
    )
    parts = None
    for each in engines:
        found, parts = _changed(found, each), each.disaggregation or parts
    if parts is None:
        return found
    plain = Disaggregation(**{name: getattr(parts, name) for name in Disaggregation.__struct_fields__})
    prefill = None
    if parts.prefill is not None:
        like = named(parts.prefill_profile) if parts.prefill_profile else found
        prefill = _changed(Profile(curve=like.curve, replica=like.replica), parts.prefill)
    return msgspec.structs.replace(found, disaggregation=plain, prefill=prefill)


def _changed(profile: Profile, said: SimulatedEngine | PrefillConfig) -> Profile:
    """With the step times and the settings that are said."""
    curve: Curve = profile.curve
    if said.curve is not None:
        curve = Linear(**msgspec.structs.asdict(said.curve))
    if said.table is not None:
        curve = Table(**msgspec.structs.asdict(said.table))
    own = {name: value for name, value in msgspec.structs.asdict(said.engine).items() if value is not None}
    return msgspec.structs.replace(
        profile, curve=curve, replica=msgspec.structs.replace(profile.replica, **own)
    )


def beyond_of(*engines: SimulatedEngine, default: str = DEFAULT_PROFILE) -> list[str]:
    """In how far a replica may do what its curve was not measured at; see `ProfileFile.beyond`."""
    if any(each.curve is not None or each.table is not None for each in engines):
        return []
    measured = _said_of(engines, default).measured
    replica = profile_of(*engines, default=default).replica
    return ProfileFile(curve=Linear(a_s=1.0), replica=replica, measured=measured).beyond()


def _said_of(engines: tuple[SimulatedEngine, ...], default: str) -> ProfileFile:
    own = next((found for each in reversed(engines) if (found := _own(each)) is not None), None)
    return own or profile_by(default)


def _own(engine: SimulatedEngine) -> ProfileFile | None:
    """What the engine itself is said to be."""
    if engine.profile_file is not None:
        return read_profile(engine.profile_file)
    return None if engine.profile is None else _of_file(named(engine.profile))


def _of_file(profile: Profile) -> ProfileFile:
    return ProfileFile(**{name: getattr(profile, name) for name in Profile.__struct_fields__})


def _told(value: object) -> object:
    """Plain data of a value, without what says nothing."""
    if isinstance(value, msgspec.Struct):
        tag = value.__struct_config__.tag
        own = {name: each for name, each in msgspec.structs.asdict(value).items() if each not in _NOTHING}
        return ({} if tag is None else {"type": tag}) | {name: _told(each) for name, each in own.items()}
    if isinstance(value, dict):
        return {name: _told(each) for name, each in value.items()}
    return [_told(each) for each in value] if isinstance(value, tuple) else value


_NOTHING: tuple[object, ...] = (None, "", (), {})
