"""What does the file say for `tidegate simulate` alone: what are the fleet and its users taken to be?

`tidegate serve` ignores all of it. Settings of the simulator live beside it, as those of the policy do.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from tidegate.core.curve import Linear, Table
from tidegate.sim.clients import ClientSettings
from tidegate.sim.faults import Fault
from tidegate.sim.network import Network
from tidegate.sim.settings import Disaggregation, Speculation


class CurveConfig(Linear, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=False):
    """Seconds of a step, linear in what it computes and reads."""


class TableConfig(Table, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=False):
    """Seconds of a step by tables, straight between their points."""


class EngineConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How an engine was started; null: as the profile says. Names are vLLM's."""

    max_num_seqs: int | None = None
    """Sequences in a batch."""
    max_batched_tokens: int | None = None
    """Token budget of a step."""
    kv_tokens: int | None = None
    """KV cache; whole blocks of it are used."""
    context_tokens: int | None = None
    """Prompt and output of one sequence together."""
    block_tokens: int | None = None
    """A block of KV cache."""
    chunked_prefill: bool | None = None
    """false: a prompt is computed whole in one step."""
    long_prefill_tokens: int | None = None
    """A step computes no more of one prompt; 0: no such bound."""
    kv: Literal["paged", "reserved"] | None = None
    """Blocks as a sequence grows, or from the start all that it may need."""
    whole_prompt_must_fit: bool | None = None
    """Admit a prompt only when all of it fits, not just its first chunk."""
    prefix_cache: bool | None = None
    """Blocks of a prompt that another had before are not computed again."""
    priority: bool | None = None
    """The engine itself orders by class; else first come, first served."""
    speculation: Speculation | None = None
    """Speculative decoding."""
    speed: float | None = None
    """Every duration is divided by it."""


class PrefillConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Engines that compute prompts, where they are not as those that decode."""

    curve: CurveConfig | None = None
    """Step times instead of those of the others."""
    table: TableConfig | None = None
    """The same by tables; instead of `curve`."""
    engine: EngineConfig = EngineConfig()
    """Each of its values that is set stands instead of that of the others."""


class DisaggregationConfig(Disaggregation, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Some engines compute prompts, others decode."""

    prefill: PrefillConfig | None = None
    """What those that compute prompts have otherwise."""


class SimulatedEngine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an engine is taken to be."""

    profile: str | None = None
    """Of those that tidegate knows; null: that of the pool, else of `--profile`."""
    profile_file: Path | None = None
    """File with a profile, instead; relative to the configuration file."""
    curve: CurveConfig | None = None
    """Step times instead of the profile's."""
    table: TableConfig | None = None
    """The same by tables, as they are measured or computed; instead of `curve`."""
    engine: EngineConfig = EngineConfig()
    """Each of its values that is set stands instead of the profile's."""
    disaggregation: DisaggregationConfig | None = None
    """Not one engine but several: some compute prompts, others decode."""


class SimulatedReplica(SimulatedEngine, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One replica, where it differs from its pool."""

    asked_at_s: float = 0.0
    """When it is asked for."""
    provision_s: float = 0.0
    """From then until it serves."""


class SimulatedPool(SimulatedEngine, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The replicas of a pool."""

    replicas: dict[str, SimulatedReplica] = {}
    """By the replica's name."""


class SimulatedTenant(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much of the load is a tenant's."""

    share: float = 1.0
    """Of the requests, beside the other tenants' shares."""
    pool: str | None = None
    """What it asks for; null: the first pool that it may use."""
    class_: str | None = msgspec.field(default=None, name="class")
    """Class that it asks for; null: its own."""


class SimulationConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the fleet and its users are taken to be."""

    pools: dict[str, SimulatedPool] = {}
    """By the pool's name."""
    tenants: dict[str, SimulatedTenant] = {}
    """Who asks, by the tenant's name; without any, all tenants of the file alike."""
    bytes_per_token: float = 4.0
    """Of the prompts: the gateway sees bytes, and learns how many make a token."""
    network: Network = Network()
    """Delays between the gateway and its replicas."""
    clients: ClientSettings = ClientSettings()
    """What a client does that is refused, or must wait."""
    faults: tuple[Fault, ...] = ()
    """What goes wrong, and when."""
