"""What may the configuration file say?

Each mechanism's settings live beside the mechanism (policy, net) and are only put together here, so the
file and the governor mean the same thing by the same name. Every value is frozen.
"""

from __future__ import annotations

from datetime import date
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from tidegate.config.addresses import Address, Origin
from tidegate.config.simulation import SimulationConfig
from tidegate.core.records import Budgets
from tidegate.net.limits import ClientLimits, ServerLimits
from tidegate.policy.settings import ClassSettings, GateSettings, LimitSettings, PoolSettings, TokenWeights

Digest = Annotated[str, Meta(pattern="^[0-9a-fA-F]{64}$")]


class TlsConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Serve https. Paths are relative to the configuration file."""

    certificate: Path
    """PEM file with the certificate and its chain."""
    private_key: Path
    """PEM file with the private key, unencrypted."""


class AdminConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The listener of metrics, status and drain, apart from that of the clients."""

    listen: Address = Address("127.0.0.1", 9090)
    """Off loopback only with `token_sha256`."""
    token_sha256: Digest | None = None
    """SHA-256 of the bearer token that every request must carry, 64 hex digits."""
    hosts: tuple[str, ...] = ()
    """Names that the Host header may hold beside loopback names; guards against DNS rebinding."""


class UpstreamConfig(ClientLimits, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Connections to engines."""

    inter_token_timeout_s: float = 60.0
    """Longest silence of an engine in the middle of an answer."""
    ca_file: Path | None = None
    """Certificate authorities (PEM) that https engines are verified against; null: the system's."""


class Engine(StrEnum):
    """How a pool's replicas are probed and scraped."""

    AUTO = "auto"
    VLLM = "vllm"
    LLAMACPP = "llamacpp"
    OTHER = "other"


class StreamUpstream(StrEnum):
    """Whether engines are asked for streams although clients want whole answers."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


class ProbeConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a replica is asked for its health; how often is in `health`."""

    path: str = "/health"
    """Below the replica's URL; any 2xx is good."""
    timeout_s: float = 5.0
    """No answer for so long is bad."""


class ReplicaConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One engine of a pool."""

    url: Origin
    """Base URL, http or https, without /v1; a path prefix is kept."""
    name: str = ""
    """Unique in its pool; default: host:port and the path of the URL."""
    weight: float = 1.0
    """Share of the load beside the pool's other replicas."""
    model: str | None = None
    """Name of the model at the engine, where it differs from the pool's name."""
    credential_env: str | None = None
    """Environment variable whose value is sent as a bearer token."""
    credential_file: Path | None = None
    """File whose content is sent as a bearer token; relative to the configuration file."""
    gate: GateSettings | None = None
    """Each of its values that is set stands instead of the pool's."""


class PoolConfig(PoolSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The replicas of one model, and how they are governed."""

    replicas: tuple[ReplicaConfig, ...]
    """At least one."""
    aliases: tuple[str, ...] = ()
    """Further model names that clients may send."""
    discover: bool = False
    """Serve every model name that the replicas list in /v1/models; for one pool at most."""
    engine: Engine = Engine.AUTO
    """What the replicas are; auto asks them."""
    extras: tuple[str, ...] = ()
    """Further engine routes that clients may use, such as /tokenize: counted as requests, not in tokens."""
    allow_fields: tuple[str, ...] = ()
    """Body fields that could jump the engine's queue and are passed on all the same, such as priority."""
    inject_usage: bool = True
    """Ask engines for the usage of streams whose client did not, and keep it from the client."""
    stream_upstream: StreamUpstream = StreamUpstream.AUTO
    """Ask for streams and put whole answers together here, so that an engine stops when its client leaves.

    auto: where the engine is llama.cpp, which notices that only while it streams.
    """
    probe: ProbeConfig = ProbeConfig()


class ClassConfig(ClassSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A priority class; the order in the file is the priority, highest first."""

    budgets: Budgets = Budgets()
    """What the class is measured against in metrics and reports; nothing is cut for it."""


class KeyConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One API key of a tenant. The file holds its digest, never the key."""

    sha256: Digest
    """SHA-256 of the key, 64 hex digits, as `tidegate key new` prints it."""
    limits: LimitSettings | None = None
    """Beside those of the tenant."""
    pools: tuple[str, ...] | None = None
    """Those of the tenant's pools that the key may use; null: all of them."""
    expires: date | None = None
    """Last day, in UTC, on which the key is taken, such as 2030-12-31."""


class TenantConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who uses the fleet: a share, limits and keys."""

    weight: float = 1.0
    """Share of a contended pool beside the other tenants of the same class."""
    class_: str | None = msgspec.field(default=None, name="class")
    """Class of its requests; null: `default_class`."""
    classes: tuple[str, ...] | None = None
    """Classes it may ask for by header; null: its own and every lower one."""
    pools: tuple[str, ...] | None = None
    """Pools it may use; null: all."""
    limits: LimitSettings | None = None
    """Over everything that the tenant does."""
    pool_limits: dict[str, LimitSettings] = {}
    """Further limits in single pools, by the pool's name."""
    keys: dict[str, KeyConfig] = {}
    """By a name that logs and metrics may show."""


class MediaConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What parts of a prompt that are not text are taken to cost before the engine has counted them."""

    tokens_per_image: int = 1_000
    tokens_per_audio: int = 500


class File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One gateway and its fleet."""

    listen: Address = Address("127.0.0.1", 8080)
    """Where clients connect; off loopback only once there are keys."""
    tls: TlsConfig | None = None
    """null: plain http."""
    admin: AdminConfig | None = AdminConfig()
    """null: no admin listener."""
    http: ServerLimits = ServerLimits()
    """Bounds and deadlines of client connections."""
    upstream: UpstreamConfig = UpstreamConfig()
    shutdown_delay_s: float = 0.0
    """How long clients are served as ever once it was told to stop, while it says that it is not ready."""
    shutdown_grace_s: float = 30.0
    """How long running answers may go on after that; then they are truncated."""
    pools: dict[str, PoolConfig]
    """By the model name that clients send."""
    classes: dict[str, ClassConfig] = msgspec.field(default_factory=lambda: {"default": ClassConfig()})
    """By name, highest priority first."""
    default_class: str | None = None
    """Class of a tenant that names none; null: the lowest, so that priority is granted and never assumed."""
    tenants: dict[str, TenantConfig] = {}
    """By name. Without any keys everybody is one tenant, and only loopback may listen."""
    limits: LimitSettings | None = None
    """Over everything."""
    weights: TokenWeights = TokenWeights()
    media: MediaConfig = MediaConfig()
    simulation: SimulationConfig = SimulationConfig()
    """What `tidegate simulate` takes the fleet and its users to be; `serve` ignores it."""
