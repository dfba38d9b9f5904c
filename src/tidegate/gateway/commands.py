"""How is the gateway run from the command line?"""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
from contextlib import ExitStack, closing
from errno import EADDRINUSE
from pathlib import Path
from typing import Annotated

import msgspec
import typer
import uvloop

from tidegate.config import Address, Config, for_url, load, lock
from tidegate.config.telling import problems_told
from tidegate.core.errors import ConfigurationError
from tidegate.gateway.service import Service
from tidegate.gateway.tapes import TapeFile

log = logging.getLogger("tidegate")


def serve(
    urls: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="URL",
            help="Engines to govern with defaults, when there is no file, as in http://127.0.0.1:8000.",
            show_default=False,
        ),
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="Configuration file (YAML).", show_default=False)
    ] = None,
    listen: Annotated[
        str | None, typer.Option(help="host:port for clients, instead of the file's.", show_default=False)
    ] = None,
    admin: Annotated[
        str | None, typer.Option(help="host:port for operators, instead of the file's.", show_default=False)
    ] = None,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
    tape: Annotated[
        Path | None,
        typer.Option(
            help="New file for a record of every decision, without prompts; `tape check` replays it.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Stand between OpenAI clients and inference engines, and govern what passes."""
    if bool(urls) == (config is not None):
        raise typer.BadParameter("give either --config FILE, or the URLs of engines")
    _log_to_stderr(log_level)
    with problems_told(), ExitStack() as held:
        settings = load(config) if config else for_url(urls or [])
        settings = _listening(settings, listen, admin)
        if config is not None:
            held.enter_context(lock(config))
        recorded = held.enter_context(closing(TapeFile(tape))) if tape else None
        raise typer.Exit(uvloop.run(_serve(settings, recorded)))


def _listening(settings: Config, listen: str | None, admin: str | None) -> Config:
    """The configuration with other addresses; they are judged as if they stood in the file."""
    if listen is not None:
        address = _address("--listen", listen)
        if settings.open and not address.loopback:
            raise ConfigurationError(
                [f"--listen {listen}: without any keys only loopback may listen; add tenants with keys"]
            )
        settings = msgspec.structs.replace(settings, listen=address)
    if admin is not None:
        address = _address("--admin", admin)
        if settings.admin is None:
            raise ConfigurationError(
                [f"--admin {admin}: the file turns the admin listener off (admin: null)"]
            )
        if settings.admin.token_sha256 is None and not address.loopback:
            raise ConfigurationError(
                [f"--admin {admin}: off loopback the admin listener needs admin.token_sha256 in the file"]
            )
        settings = msgspec.structs.replace(
            settings, admin=msgspec.structs.replace(settings.admin, listen=address)
        )
    return settings


def _address(option: str, text: str) -> Address:
    try:
        return Address.parse(text)
    except ValueError as error:
        raise ConfigurationError([f"{option} {text}: {error}"]) from None


async def _serve(settings: Config, tape: TapeFile | None) -> int:
    """Serve until SIGINT or SIGTERM; a second signal ends at once."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    service = Service(settings, tape=tape.write if tape else None)
    try:
        await service.start()
    except OSError as error:
        taken = error.errno == EADDRINUSE
        log.error(
            "%s%s",
            error.strerror or error,
            "; stop what listens there, or give another address" if taken else "",
        )
        await service.stop(0.0)
        return 1
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, _on_signal, stop)
    _say_hello(service)
    # What has been made by now lives as long as the process: the collector need never look at it again.
    gc.collect()
    gc.freeze()
    # Requests free themselves without it (their tests prove that); it is there for what nobody thought of.
    gc.set_threshold(50_000, 20, 50)
    await stop.wait()
    if settings.shutdown_delay_s:
        log.info("stopping: not ready any more; clients are served for %g s yet", settings.shutdown_delay_s)
    log.info("stopping: running answers may then finish within %g s", settings.shutdown_grace_s)
    stop.clear()
    stopping = asyncio.create_task(service.stop())
    again = asyncio.create_task(stop.wait())
    await asyncio.wait({stopping, again}, return_when=asyncio.FIRST_COMPLETED)
    if not stopping.done():
        log.warning("told to stop again: what still runs is cut")
        stopping.cancel()
        await asyncio.wait({stopping})
        await service.stop(0.0)
    again.cancel()
    log.info("stopped")
    return 0


def _on_signal(stop: asyncio.Event) -> None:
    stop.set()


def _say_hello(service: Service) -> None:
    config = service.config
    scheme = "https" if config.tls else "http"
    clients = msgspec.structs.replace(config.listen, port=service.server.port)
    log.info("clients: %s://%s/v1", scheme, clients)
    if config.admin is not None and service.admin_port is not None:
        log.info(
            "operators: http://%s/status",
            msgspec.structs.replace(config.admin.listen, port=service.admin_port),
        )
    for name, pool in config.pools.items():
        engines = ", ".join(str(replica.url) for replica in pool.replicas)
        log.info("pool %s: %s, on %s", name, pool.routing.policy.value, engines)
    if config.open:
        log.info("no keys are configured: whoever can reach loopback is served")


def _log_to_stderr(level: str) -> None:
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise typer.BadParameter(f"--log-level {level}: must be debug, info, warning or error")
    logging.basicConfig(level=number, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
