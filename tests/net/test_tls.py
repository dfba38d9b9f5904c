"""HTTP over TLS, both sides real, with certificates made on the spot."""

from __future__ import annotations

import asyncio
import os
import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

from tests.net.peers import Engine, Raw, Recorder, Run, Sink, both_loops, connected, engine, until
from tidegate.core.errors import ConfigurationError, UpstreamError
from tidegate.core.messages import FailureKind
from tidegate.net.client import Client
from tidegate.net.limits import ClientLimits, ServerLimits
from tidegate.net.server import Server
from tidegate.net.tls import client_context, server_context


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Certificate and key, self-signed, of 127.0.0.1 and the name `engine`."""
    openssl = shutil.which("openssl")
    if openssl is None:
        assert "CI" not in os.environ, ".ci/run installs openssl"
        pytest.skip("needs the openssl command")
    where: Path = tmp_path_factory.mktemp("tls")
    cert, key = str(where / "cert.pem"), str(where / "key.pem")
    command = [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-days", "2", "-subj", "/CN=engine", "-addext", "subjectAltName=IP:127.0.0.1,DNS:engine"]
    subprocess.run([*command, "-keyout", key, "-out", cert], check=True, capture_output=True)
    return cert, key


@both_loops
def test_requests_over_tls(run: Run, pair: tuple[str, str]) -> None:
    """Small, large, streamed, aborted: as without TLS, on one connection where it can be kept."""
    cert, key = pair

    async def main() -> None:
        handler = Recorder()
        server = Server(handler, ssl=server_context(cert, key))
        await server.listen("127.0.0.1", 0)
        client = Client("127.0.0.1", server.port, ssl=client_context(cert))
        body = b"x" * 3_000_000
        for sent in (b"hi", body):
            answer = await client.request("POST", "/echo", [], sent)
            assert answer.body == b"POST /echo? " + sent
        assert (client.idle, server.connections) == (1, 1)
        sink = Sink()
        client.send(b"GET /hold HTTP/1.1\r\nhost: a\r\n\r\n", b"", sink)
        await until(lambda: handler.held)
        handler.held[0].start(200, [])
        handler.held[0].write(b"part")
        await until(lambda: sink.reads)
        handler.held[0].abort()
        await until(lambda: sink.over)
        assert (sink.body, sink.kinds) == (b"part", [FailureKind.RESET])
        sink = Sink()
        call = client.send(b"GET /hold HTTP/1.1\r\nhost: a\r\n\r\n", b"", sink)
        await until(lambda: len(handler.held) == 2)
        call.cancel()
        await until(lambda: handler.gone)
        await client.close()
        await server.close()

    run(main())


@both_loops
def test_a_refused_upload_over_tls(run: Run, pair: tuple[str, str]) -> None:
    """The answer to an upload that is refused at its head arrives, and the connection is let go."""
    cert, key = pair

    async def main() -> None:
        server = Server(Recorder(), ServerLimits(body_bytes=10), server_context(cert, key))
        await server.listen("127.0.0.1", 0)
        client = Client("127.0.0.1", server.port, ssl=client_context(cert))
        answer = await client.request("POST", "/echo", [], b"x" * 100_000)
        assert answer.status == 413
        assert client.idle == 0
        await until(lambda: server.connections == 0)
        await client.close()
        await server.close()

    run(main())


@both_loops
def test_an_engine_that_cannot_be_trusted(run: Run, pair: tuple[str, str]) -> None:
    """An unknown authority, a wrong name and a plain port are CONNECT failures; the server survives them."""
    cert, key = pair

    async def main() -> None:
        server = Server(Recorder(), ssl=server_context(cert, key))
        await server.listen("127.0.0.1", 0)
        plain = Server(Recorder())
        await plain.listen("127.0.0.1", 0)
        for client in (
            Client("127.0.0.1", server.port, ssl=client_context()),
            Client("127.0.0.1", server.port, ssl=client_context(cert), server_hostname="other"),
            Client("127.0.0.1", plain.port, ssl=client_context(cert)),
        ):
            with pytest.raises(UpstreamError, match="connect"):
                await client.request("GET", "/echo")
            assert client.active == 0
            await client.close()
        named = Client("127.0.0.1", server.port, ssl=client_context(cert), server_hostname="engine")
        assert (await named.request("GET", "/echo")).status == 200
        await named.close()
        await server.close()
        await plain.close()

    run(main())


@both_loops
def test_client_certificates(run: Run, pair: tuple[str, str]) -> None:
    """A listener that asks for a certificate serves only those who have one."""
    cert, key = pair

    async def main() -> None:
        server = Server(Recorder(), ssl=server_context(cert, key, cert))
        await server.listen("127.0.0.1", 0)
        known = Client("127.0.0.1", server.port, ssl=client_context(cert, cert, key))
        assert (await known.request("GET", "/echo")).status == 200
        await known.close()
        unknown = Client("127.0.0.1", server.port, ssl=client_context(cert))
        with pytest.raises(UpstreamError):
            await unknown.request("GET", "/echo")
        await unknown.close()
        await server.close()

    run(main())


@both_loops
def test_a_client_that_never_shakes_hands(run: Run, pair: tuple[str, str]) -> None:
    """A silent client is dropped at the head's deadline."""

    async def main() -> None:
        server = Server(Recorder(), ServerLimits(head_timeout_s=0.1), server_context(*pair))
        await server.listen("127.0.0.1", 0)
        async with connected(server.port) as raw:
            assert await raw.rest() == b""
        await server.close()

    run(main())


def test_an_encrypted_key_is_refused(tmp_path: Path, pair: tuple[str, str]) -> None:
    """It is not asked for at a terminal, where a service would wait for ever."""
    cert, key = pair
    encrypted = str(tmp_path / "encrypted.pem")
    command = [shutil.which("openssl") or "", "ec", "-in", key, "-aes256", "-passout", "pass:secret"]
    subprocess.run([*command, "-out", encrypted], check=True, capture_output=True)

    with pytest.raises(ConfigurationError, match="cannot be used"):
        server_context(cert, encrypted)


@both_loops
def test_closing_amid_a_handshake(run: Run, pair: tuple[str, str]) -> None:
    """A closing server does not wait for a client that has not shaken hands."""

    async def main() -> None:
        server = Server(Recorder(), ssl=server_context(*pair))
        await server.listen("127.0.0.1", 0)
        async with connected(server.port) as raw:
            await asyncio.sleep(0.05)
            await server.close()
            assert await raw.rest() == b""

    run(main())


@both_loops
def test_an_engine_that_never_shakes_hands(run: Run, pair: tuple[str, str]) -> None:
    """The connect deadline covers the handshake."""

    async def mute(peer: Engine, raw: Raw) -> None:
        await raw.rest()

    async def main() -> None:
        async with engine(mute) as peer:
            limits = ClientLimits(connect_timeout_s=0.1)
            client = Client("127.0.0.1", peer.port, limits, client_context(pair[0]))
            with pytest.raises(UpstreamError, match="no connection within"):
                await client.request("GET", "/")
            await client.close()

    run(main())


def test_files_that_cannot_be_used(tmp_path: Path, pair: tuple[str, str]) -> None:
    """A missing, empty or mismatched file is a configuration error that names it."""
    cert, key = pair
    empty = tmp_path / "empty.pem"
    empty.touch()

    for files in [("absent.pem", key), (str(empty), key), (cert, key, str(empty))]:
        with pytest.raises(ConfigurationError, match=r"absent\.pem|empty\.pem"):
            server_context(*files)
    for ca_path, cert_path in [("absent.pem", None), (str(empty), None), (None, str(empty))]:
        with pytest.raises(ConfigurationError, match=r"absent\.pem|empty\.pem"):
            client_context(ca_path, cert_path)
    assert server_context(cert, key).minimum_version is ssl.TLSVersion.TLSv1_2
