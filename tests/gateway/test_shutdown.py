"""How the gateway ends, and how it refuses to start: as a process, with signals and exit codes."""

from __future__ import annotations

import asyncio
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from tests.gateway.fake_engine import DONE, MODEL, ROLE, Turn, answer, delta, events, fake_engine, stall
from tests.gateway.gateway_in_process import QUIET, configured, run, serving, until
from tests.gateway.http_client import CHAT, Reply, Talk, ask, chat, talking
from tests.server_process import REPOSITORY, free_port

GRACE_S = 3.0
"""Long enough for what must happen within it, on a busy machine too."""
OPEN = events(ROLE, delta("x"))


class Running(NamedTuple):
    """A gateway in a process of its own."""

    process: Process
    port: int
    admin_port: int
    log_path: Path

    @property
    def log(self) -> str:
        """What it has said."""
        return self.log_path.read_text()

    async def ready(self) -> int:
        """Status of its readiness; 0 when nobody answers."""
        try:
            return (await ask(self.admin_port, "/readyz", headers={"host": "localhost"})).status
        except OSError:
            return 0

    async def ended(self) -> int:
        """Its exit code, once it has ended."""
        return await asyncio.wait_for(self.process.wait(), 15)


def written(folder: Path, engine_url: str, **more: Any) -> Path:
    """A configuration file."""
    path = folder / "gateway.yaml"
    pools = {MODEL: {"replicas": [{"url": engine_url}]} | QUIET | more.pop("pool", {})}
    path.write_text(yaml.safe_dump({"shutdown_grace_s": GRACE_S, "pools": pools} | more))
    return path


@asynccontextmanager
async def started(
    folder: Path, *arguments: str, port: int = 0, admin_port: int = 0
) -> AsyncIterator[Running]:
    """`tidegate serve` on free ports; killed at the end if it still runs."""
    port, admin_port = port or free_port(), admin_port or free_port()
    log_path = folder / f"{port}-{admin_port}.log"
    with log_path.open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tidegate", "serve", *arguments),
            *("--listen", f"127.0.0.1:{port}", "--admin", f"127.0.0.1:{admin_port}"),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=REPOSITORY,
        )
    try:
        yield Running(process, port, admin_port, log_path)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert "Traceback" not in log_path.read_text(), log_path.read_text()


async def until_ready(gateway: Running, status: int = 200) -> None:
    """Wait until it takes traffic, or until it says otherwise."""
    while await gateway.ready() != status:
        assert gateway.process.returncode is None, gateway.log
        await asyncio.sleep(0.02)


async def opened(port: int, content: str) -> Talk:
    """A client in the middle of its stream."""
    talk = Talk(*await asyncio.open_connection("127.0.0.1", port))
    talk.request(CHAT, chat(content=content))
    assert (await talk.head()).status == 200
    await talk.chunk()
    return talk


async def rest(talk: Talk) -> Reply:
    """What else comes of a stream."""
    body = b""
    while piece := await talk.chunk():
        body += piece
    talk.hang_up()
    return Reply(200, {}, body)


def test_sigterm_with_open_streams(tmp_path: Path) -> None:
    """Not ready and no accepts at once; streams may finish in the grace, then an error event ends them."""

    async def main() -> None:
        stopping = asyncio.Event()

        async def script(turn: Turn) -> None:
            await turn.head()
            await turn.chunk(ROLE + delta("first"))
            if "short" in turn.request.json()["messages"][0]["content"]:
                await stopping.wait()
                await turn.chunk(delta(" last") + delta("", finish="stop") + DONE)
                await turn.end()
            else:
                await turn.stall()

        async with fake_engine(script) as engine:
            config = written(tmp_path, engine.url, pool={"gate": {"max_concurrency": 3}})
            async with started(tmp_path, "--config", str(config)) as gateway:
                await until_ready(gateway)
                short, long, longer = [await opened(gateway.port, kind) for kind in ("short", "long", "long")]
                waiting = Talk(*await asyncio.open_connection("127.0.0.1", gateway.port))
                waiting.request(CHAT, chat())
                idle = Talk(*await asyncio.open_connection("127.0.0.1", gateway.port))
                idle.request("/v1/models")
                await idle.reply()

                loop = asyncio.get_running_loop()
                told_at = loop.time()
                gateway.process.send_signal(signal.SIGTERM)
                refused = await waiting.reply()
                assert (refused.status, refused.error["code"]) == (503, "shutting_down")
                assert int(refused.headers["retry-after"]) >= 1
                assert refused.headers["connection"] == "close"
                assert await gateway.ready() == 503
                assert await idle.closed()
                with pytest.raises(OSError, match="Connect"):
                    await asyncio.open_connection("127.0.0.1", gateway.port)
                assert loop.time() - told_at < GRACE_S, (
                    "a noisy machine: all this has to happen within the grace"
                )
                stopping.set()

                assert (await rest(short)).data[-1] == "[DONE]"
                for talk in (long, longer):
                    last = (await rest(talk)).data[-1]
                    assert last["error"]["code"] == "shutting_down"
                assert await gateway.ended() == 0
                assert loop.time() - told_at > GRACE_S * 0.9
                await until(lambda: engine.running == 0)
                for talk in (waiting, idle):
                    talk.hang_up()

    run(main())


def test_a_balancer_is_given_time_to_notice(tmp_path: Path) -> None:
    """Not ready at once, yet clients are served on old and new connections until the delay is over."""

    async def main() -> None:
        async with fake_engine(answer()) as engine:
            config = written(tmp_path, engine.url, shutdown_delay_s=2.0)
            async with started(tmp_path, "--config", str(config)) as gateway:
                await until_ready(gateway)
                async with talking(gateway.port) as old:
                    gateway.process.send_signal(signal.SIGTERM)
                    await until_ready(gateway, 503)
                    assert (await ask(gateway.port, CHAT, chat())).text == "Hello there."
                    old.request(CHAT, chat())
                    assert (await old.reply()).text == "Hello there."
                    assert await old.closed()  # idle, once the delay is over
                with pytest.raises(ConnectionError):
                    await ask(gateway.port, CHAT, chat())
                assert await gateway.ended() == 0

    run(main())


def test_told_twice_in_the_delay_it_ends_at_once(tmp_path: Path) -> None:
    """Whoever has no patience need not wait for balancers either."""

    async def main() -> None:
        async with fake_engine(OPEN) as engine:
            config = written(tmp_path, engine.url, shutdown_delay_s=60)
            async with started(tmp_path, "--config", str(config)) as gateway:
                await until_ready(gateway)
                talk = await opened(gateway.port, "long")
                gateway.process.send_signal(signal.SIGTERM)
                await until_ready(gateway, 503)
                gateway.process.send_signal(signal.SIGTERM)
                assert (await rest(talk)).data[-1]["error"]["code"] == "shutting_down"
                assert await gateway.ended() == 0

    run(main())


def test_with_nothing_open_the_end_is_at_once(tmp_path: Path) -> None:
    """No grace is waited for when nobody needs it; SIGINT does the same."""

    async def main() -> None:
        async with fake_engine(answer()) as engine:
            config = written(tmp_path, engine.url, shutdown_grace_s=60)
            async with started(tmp_path, "--config", str(config)) as gateway:
                await until_ready(gateway)
                assert (await ask(gateway.port, CHAT, chat())).text == "Hello there."
                gateway.process.send_signal(signal.SIGINT)
                assert await gateway.ended() == 0

    run(main())


def test_told_twice_it_ends_at_once(tmp_path: Path) -> None:
    """A second signal does not wait for the grace: streams get their error event and the process ends."""

    async def main() -> None:
        async with fake_engine(OPEN) as engine:
            config = written(tmp_path, engine.url, shutdown_grace_s=60)
            async with started(tmp_path, "--config", str(config)) as gateway:
                await until_ready(gateway)
                talk = await opened(gateway.port, "long")
                gateway.process.send_signal(signal.SIGTERM)
                await until_ready(gateway, 503)
                gateway.process.send_signal(signal.SIGTERM)
                assert (await rest(talk)).data[-1]["error"]["code"] == "shutting_down"
                assert await gateway.ended() == 0

    run(main())


def test_a_second_process_on_the_same_configuration(tmp_path: Path) -> None:
    """It refuses to start with exit code 2 and says what to do; the first goes on; later it may start."""

    async def main() -> None:
        async with fake_engine(answer()) as engine:
            config = str(written(tmp_path, engine.url))
            async with started(tmp_path, "--config", config) as first:
                await until_ready(first)
                async with started(tmp_path, "--config", config) as second:
                    assert await second.ended() == 2
                    assert "another process" in second.log
                    assert "stop the other one" in second.log
                assert (await ask(first.port, CHAT, chat())).status == 200
                first.process.kill()  # however it ends, its lock ends with it
                await first.process.wait()
            async with started(tmp_path, "--config", config) as third:
                await until_ready(third)

    run(main())


@pytest.mark.parametrize("which", ["port", "admin_port"])
def test_an_address_that_is_taken(tmp_path: Path, which: str) -> None:
    """A port in use ends the start with exit code 1 and one line that names the address, no traceback."""

    async def main() -> None:
        async with fake_engine(answer()) as engine:
            taken = {which: engine.port}
            async with started(tmp_path, "--config", str(written(tmp_path, engine.url)), **taken) as gateway:
                assert await gateway.ended() == 1
                assert str(engine.port) in gateway.log
                assert "cannot" in gateway.log

    run(main())


def test_a_configuration_that_is_wrong(tmp_path: Path) -> None:
    """Every mistake is named with its line, and the exit code is 2."""

    async def main() -> None:
        path = tmp_path / "gateway.yaml"
        path.write_text("pools:\n  m:\n    replicas: [{url: 'ftp://x'}]\n    nonsense: 1\n")
        async with started(tmp_path, "--config", str(path)) as gateway:
            assert await gateway.ended() == 2
            assert "gateway.yaml:3" in gateway.log
            assert "gateway.yaml:4" in gateway.log

    run(main())


def test_during_the_shutdown_nothing_new_is_begun() -> None:
    """On a connection that is still busy the next request is refused, and the connection closed."""

    async def main() -> None:
        go = asyncio.Event()

        async def script(turn: Turn) -> None:
            await turn.head()
            await turn.chunk(ROLE + delta("x"))
            await go.wait()
            await turn.chunk(delta("", finish="stop") + DONE)
            await turn.end()

        async with fake_engine(script) as engine, serving(configured(engine)) as gateway:
            async with talking(gateway.port) as talk:
                talk.request(CHAT, chat())
                await talk.head()
                await talk.chunk()
                stopping = asyncio.create_task(gateway.service.stop(5.0))
                await asyncio.sleep(0)
                talk.request(CHAT, chat(content="too late"))
                go.set()
                assert (await rest_of(talk)).endswith(DONE)
                assert await talk.closed()
                talk.hang_up()
                await stopping
            assert len(engine.requests) == 1

    run(main())


async def rest_of(talk: Talk) -> bytes:
    """The rest of a chunked answer."""
    body = b""
    while piece := await talk.chunk():
        body += piece
    return body


@pytest.mark.parametrize("stream", [True, False])
def test_what_has_no_token_yet_is_told_at_the_end_of_the_grace(stream: bool) -> None:
    """A request that runs but has nothing to show gets a 503 with a wait when the grace is over."""

    async def main() -> None:
        async with (
            fake_engine(stall()) as engine,
            serving(configured(engine)) as gateway,
            talking(gateway.port) as talk,
        ):
            talk.request(CHAT, chat(stream))
            await until(lambda: engine.running == 1)
            stopping = asyncio.create_task(gateway.service.stop(0.1))
            reply = await talk.reply()
            assert (reply.status, reply.error["code"]) == (503, "shutting_down")
            assert int(reply.headers["retry-after"]) >= 1
            talk.hang_up()
            await stopping
            await until(lambda: engine.running == 0)

    run(main())


def test_a_client_that_does_not_read_does_not_hold_the_end() -> None:
    """Whoever takes nothing is cut when the grace and its second are over."""

    async def main() -> None:
        async def script(turn: Turn) -> None:
            await turn.head()
            while True:
                await turn.chunk(delta("x" * 10_000))

        async with (
            fake_engine(script) as engine,
            serving(configured(engine)) as gateway,
            talking(gateway.port, buffer_bytes=1_000) as talk,
        ):
            talk.request(CHAT, chat())
            await until(lambda: engine.running == 1)
            await asyncio.sleep(0.2)
            await asyncio.wait_for(gateway.service.stop(0.1), 10)
            assert gateway.service.server.connections == 0

    run(main())
