"""What can be asked of a configuration on the command line? `config check`, `config schema`, `key new`."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tidegate.config.json_schema import schema
from tidegate.config.keys import new_key
from tidegate.config.loading import load
from tidegate.config.model import Config
from tidegate.config.problems import dotted
from tidegate.config.schema import ReplicaConfig
from tidegate.config.telling import problems_told
from tidegate.config.warnings import warnings_of
from tidegate.policy.settings import GateSettings, LimitSettings

config_app = typer.Typer(help="Check a configuration file, or print its schema.", no_args_is_help=True)
key_app = typer.Typer(help="Make API keys.", no_args_is_help=True)


@config_app.command()
def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The configuration file (YAML).")],
) -> None:
    """Say what a configuration means, or everything that is wrong with it."""
    with problems_told():
        config = load(file)
    console = Console(highlight=False)
    _summarise(console, config)
    for warning in warnings_of(config, time.time()):
        path = f"{dotted(warning.where)}: " if warning.where else ""
        console.print(f"[yellow]warning[/] {escape(path + warning.text)}", soft_wrap=True)
    console.print(f"[green]OK[/] {escape(str(file))}", soft_wrap=True)


@config_app.command("schema")
def print_schema() -> None:
    """Print the JSON Schema of the file, for editors."""
    typer.echo(json.dumps(schema(), indent=2))


@key_app.command()
def new(
    tenant: Annotated[str, typer.Option(help="Tenant that the key is for.")] = "my-tenant",
    name: Annotated[str, typer.Option(help="Name of the key, for logs and metrics.")] = "default",
) -> None:
    """Make an API key: printed once, known by its digest from then on."""
    plain, digest = new_key()
    lines = ["tenants:", f"  {dotted((tenant,))}:", "    keys:", f"      {dotted((name,))}:"]
    typer.echo("The key, which is shown only now:\n", err=True)
    typer.echo(plain)
    typer.echo("\nFor the configuration:\n", err=True)
    typer.echo("\n".join([*lines, f"        sha256: {digest}"]))


def _summarise(console: Console, config: Config) -> None:
    scheme = "http" if config.tls is None else "https"
    who = "anybody on this machine, without a key" if config.open else "holders of a key"
    admin = "off" if config.admin is None else f"http://{config.admin.listen}"
    console.print(escape(f"serves {scheme}://{config.listen} to {who}; admin {admin}"), soft_wrap=True)
    console.print(escape(f"limits over everything: {_limits(config.limits)}"), soft_wrap=True)
    for table in (_pools(config), _classes(config), _tenants(config)):
        if table.row_count:
            console.print()
            console.print(table)
    console.print()


def _pools(config: Config) -> Table:
    table = _table("pool", "also called", "replicas", "gate", "limits", "under pressure")
    table.columns[2].no_wrap = True  # half a URL is of no use
    for name, pool in config.pools.items():
        also = [*pool.aliases, *(["whatever they list"] if pool.discover else [])]
        urls = [_replica(replica) for replica in pool.replicas]
        steps = [f"{step.__struct_config__.tag} above {step.above:g}" for step in pool.degradation]
        _row(
            table,
            name,
            ", ".join(also),
            "\n".join(urls),
            _gate(pool.gate),
            _limits(pool.limits),
            "\n".join(steps),
        )
    return table


def _classes(config: Config) -> Table:
    table = _table("class", "guaranteed share", "guaranteed places", "longest wait", "budgets")
    for name, each in config.classes.items():
        budgets = {"TTFT": each.budgets.ttft_s, "TPOT": each.budgets.tpot_s, "E2E": each.budgets.e2e_s}
        texts = [f"{label} {value:g} s" for label, value in budgets.items() if value is not None]
        label = f"{name} (protected)" if each.protected else name
        share, places = f"{each.guaranteed_share:.0%}", str(each.guaranteed_places)
        _row(table, label, share, places, f"{each.max_wait_s:g} s", ", ".join(texts))
    return table


def _tenants(config: Config) -> Table:
    table = _table("tenant", "class", "weight", "pools", "limits", "keys")
    for name, tenant in config.tenants.items():
        pools = "all" if tenant.pools is None else ", ".join(tenant.pools)
        limits = [_limits(tenant.limits)]
        limits += [f"{pool}: {_limits(each)}" for pool, each in tenant.pool_limits.items()]
        keys = [
            key if each.limits is None else f"{key}: {_limits(each.limits)}"
            for key, each in tenant.keys.items()
        ]
        own = tenant.class_ or config.usual_class
        _row(table, name, own, f"{tenant.weight:g}", pools, "\n".join(limits), "\n".join(keys))
    return table


def _replica(replica: ReplicaConfig) -> str:
    """Its name and URL; a name that was taken from the URL says nothing more."""
    url = str(replica.url)
    return url if url.endswith(f"//{replica.name}") else f"{replica.name} {url}"


def _table(*headings: str) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table


def _row(table: Table, *cells: str) -> None:
    table.add_row(*(escape(cell or "-") for cell in cells))


def _limits(limits: LimitSettings | None) -> str:
    if limits is None:
        return "unlimited"
    parts = [
        (limits.requests_per_minute, "requests/min"),
        (limits.tokens_per_minute, "tokens/min"),
        (limits.max_in_flight, "in flight"),
    ]
    return ", ".join(f"{value:,.10g} {unit}" for value, unit in parts if value is not None) or "unlimited"


def _gate(gate: GateSettings) -> str:
    parts = [
        (gate.max_concurrency, "requests"),
        (gate.kv_tokens, "KV tokens"),
        (gate.max_prefill_tokens, "prefill tokens"),
    ]
    return "\n".join(f"{value:,} {unit}" for value, unit in parts if value is not None) or "what engines tell"
