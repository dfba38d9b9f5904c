"""How is the emulator run from the command line?"""

from __future__ import annotations

import asyncio
import signal
from typing import Annotated

import typer
import uvloop

from tidegate.config.profiles import profile_by
from tidegate.core.errors import ConfigurationError
from tidegate.emulator.replica_server import Options
from tidegate.emulator.server import Emulator
from tidegate.sim.profiles import TABLE, Profile, at_speed


def emulate(
    port: Annotated[
        int, typer.Option(min=1, max=65_535, help="Port of the first replica; the others follow.")
    ] = 8000,
    replicas: Annotated[int, typer.Option(min=1, help="How many replicas to serve.")] = 1,
    profile: Annotated[str, typer.Option(help=f"Timing: {', '.join(TABLE)}, or a profile file.")] = "demo",
    model: Annotated[str, typer.Option(help="Name of the model served.")] = "tidegate-demo",
    speed: Annotated[float, typer.Option(help="Run so many times as fast as the profile says.")] = 1.0,
    chunk_tokens: Annotated[
        int, typer.Option(min=1, help="Tokens per streamed event; more of them cost less CPU.")
    ] = 1,
    max_waiting: Annotated[
        int | None, typer.Option(min=0, help="Refuse with 503 when so many sequences wait for a seat.")
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    faults: Annotated[bool, typer.Option(help="Let clients inject faults at POST /emulator/fault.")] = False,
) -> None:
    """Serve the OpenAI API with the timing of GPU replicas, and no GPU."""
    options = Options(
        model=model, chunk_tokens=chunk_tokens, max_waiting=max_waiting, faults=faults, host=host
    )
    last = port + replicas - 1
    if last > 65_535:
        raise typer.BadParameter(f"--port {port} leaves no ports for {replicas} replicas")
    try:
        timing = profile_by(profile)
        if beyond := timing.beyond():
            typer.echo(f"{profile}: extrapolated up to {', '.join(beyond)}", err=True)
        uvloop.run(_serve(list(range(port, last + 1)), at_speed(timing, speed), options))
    except ConfigurationError as error:
        raise typer.BadParameter(str(error)) from error
    except OSError as error:
        where = f"{host}:{port}" if replicas == 1 else f"{host}:{port} to {last}"
        typer.echo(f"cannot listen on {where}: {error.strerror}; --port names another", err=True)
        raise typer.Exit(1) from error


async def _serve(ports: list[int], profile: Profile, options: Options) -> None:
    """Serve until told to stop."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    emulator = Emulator()
    await emulator.start(ports, profile, options)
    for url in emulator.urls:
        typer.echo(url)
    await stop.wait()
    await emulator.close()
