"""What is a replica, by the name of a profile or of a model and its accelerators?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tidegate.core.curve import Curve, scaled
from tidegate.core.errors import ConfigurationError
from tidegate.perf.deployment import Deployment
from tidegate.perf.efficiencies import Waiting
from tidegate.perf.speculative import Verifying
from tidegate.plan.ask import Replica
from tidegate.plan.laws.engine import Engine
from tidegate.planning.numbers import count_of, number_of, ratio_of
from tidegate.planning.options import Options

if TYPE_CHECKING:
    from tidegate.catalog.accelerators import Accelerator
    from tidegate.catalog.models import Model
    from tidegate.sim.profiles import Profile

SAID = {
    "weights": "--quant",
    "kv": "--kv-quant",
    "software": "--engine",
    "attention_dp": "--dp",
    "memory": "--model",
    "memory_ratio": "--memory",
    "reserve_bytes": "--reserve",
    "acceptance_ratio": "--acceptance",
    "draft_tokens": "--draft-tokens",
    "max_num_seqs": "--max-num-seqs",
    "max_batched_tokens": "--max-batched-tokens",
}
"""How a part of a deployment is called on the command line, where it is called otherwise."""


def replica_by_profile(name: str, options: Options) -> Replica:
    """Of a profile's name or file. Raises ConfigurationError."""
    from tidegate.config.profiles import profile_by

    profile = profile_by(name)
    if profile.disaggregation is not None:
        problem = f"--profile {name}: is of replicas that compute prompts apart from those that decode"
        raise ConfigurationError([f"{problem}; give the profile of one kind"])
    bounds = profile.replica
    engine = Engine(
        curve=curve_of(profile),
        max_num_seqs=bounds.max_num_seqs,
        max_batched_tokens=bounds.max_batched_tokens,
        kv_tokens=bounds.kv_tokens,
        context_tokens=bounds.sequence_tokens,
        block_tokens=bounds.block_tokens,
    )
    # What is measured of delivery; the rest as an engine does that looks for requests in each step.
    overhead_s = 0.0 if profile.measured is None else profile.measured.first_token_overhead_s
    return Replica(name=name, engine=limited(engine, options), waiting=Waiting(overhead_s=overhead_s))


def curve_of(profile: Profile) -> Curve | Verifying:
    """At its speed, guessing ahead where its engine does."""
    curve, guessing = scaled(profile.curve, 1 / profile.replica.speed), profile.replica.speculation
    if guessing is None:
        return curve
    return Verifying(
        curve=curve, draft_tokens=guessing.draft_tokens, acceptance_ratio=guessing.acceptance_ratio
    )


def replica_by_model(options: Options) -> Replica:
    """Of a model and accelerators. Raises ConfigurationError, which names the option."""
    from tidegate.plan.deployed import deployed
    from tidegate.planning.catalog.lookup import catalog_with, model_named
    from tidegate.planning.drafts import speculation_of

    assert options.model is not None
    assert options.gpu is not None
    catalog, values = catalog_with(map(Path, options.catalog)), deployment_values(options)
    model, accelerator = model_named(options.model, catalog), catalog.accelerator(options.gpu)
    values["speculation"] = speculation_of(options, model, catalog)
    deployment = deployment_by(model, accelerator, values)
    try:
        replica = deployed(deployment)
    except ConfigurationError as error:
        problem = _as_option(error.problems[0]).rpartition(": ")[0]
        raise ConfigurationError([f"{problem}; {_what_fits(deployment)}"]) from None
    return msgspec.structs.replace(replica, engine=limited(replica.engine, options))


def deployment_by(model: Model, accelerator: Accelerator, values: dict[str, object]) -> Deployment:
    """Of `deployment_values`. Raises ConfigurationError, which names the option."""
    try:
        return Deployment(model=model, accelerator=accelerator, **values)  # type: ignore[arg-type]
    except ConfigurationError as error:
        raise ConfigurationError([_as_option(problem) for problem in error.problems]) from None


def deployment_values(options: Options) -> dict[str, object]:
    """Of `Deployment`, by the names that it has for them; what is not said is left out."""
    counts: dict[str, object] = {
        name: count_of(f"--{written.replace('_', '-')}", text, "of them")
        for name, written in (
            ("tp", "tp"),
            ("pp", "pp"),
            ("ep", "ep"),
            ("attention_dp", "dp"),
            ("max_num_seqs", "max_num_seqs"),
            ("max_batched_tokens", "max_batched_tokens"),
        )
        if (text := getattr(options, written)) is not None
    }
    texts = {"weights": options.quant, "kv": options.kv_quant, "software": options.engine}
    values: dict[str, object] = counts | {name: text for name, text in texts.items() if text is not None}
    if options.memory is not None:
        values["memory_ratio"] = ratio_of("--memory", options.memory, above=True)
    if options.reserve is not None:
        values["reserve_bytes"] = int(2**30 * number_of("--reserve", options.reserve, "GiB", above=False))
    return values


def _what_fits(deployment: Deployment) -> str:
    """The remedies that would do, of the options that there are."""
    tried: dict[str, dict[str, object]] = {
        **{f"--tp {deployment.tp << more}": {"tp": deployment.tp << more} for more in range(1, 6)},
        **{f"--quant {name}": {"weights": name} for name in ("fp8", "int4")},
    }
    fitting = [written for written, values in tried.items() if _fits(deployment, values)]
    by_tp = [written for written in fitting if written.startswith("--tp")][:1]
    by_bits = [written for written in fitting if written.startswith("--quant")][:1]
    found = " or ".join([*by_tp, *by_bits])
    return f"{found} would fit" if found else "more or larger accelerators would do"


def _fits(deployment: Deployment, values: dict[str, object]) -> bool:
    from tidegate.perf.memory import memory_of

    try:
        memory_of(msgspec.structs.replace(deployment, **values))
    except ConfigurationError:
        return False
    return True


def limited(engine: Engine, options: Options) -> Engine:
    """With the limits that the command line sets instead of the engine's own."""
    limits = {
        field: count_of(f"--{name.replace('_', '-')}", text, unit)
        for field, name, unit in (
            ("max_num_seqs", "max_num_seqs", "sequences"),
            ("max_batched_tokens", "max_batched_tokens", "tokens"),
            ("context_tokens", "max_model_len", "tokens"),
        )
        if (text := getattr(options, name)) is not None
    }
    return msgspec.structs.replace(engine, **limits)


def _as_option(problem: str) -> str:
    name, colon, text = problem.partition(": ")
    return f"{SAID.get(name, f'--{name}')}{colon}{text}" if colon else problem
