"""TLS on both sides: one gateway in front of another, the link between them encrypted."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.gateway.fake_engine import MODEL, answer, fake_engine
from tests.gateway.gateway_in_process import configured, run, serving, until
from tests.gateway.http_client import chat
from tests.net.test_tls import pair
from tidegate.config import Config, parse
from tidegate.core.errors import ConfigurationError

__all__ = ["pair"]


def in_front_of(url: str, upstream: dict[str, str]) -> Config:
    """A gateway whose engine is another gateway."""
    pool = {"replicas": [{"url": url}], "engine": "other", "probe": {"path": "/v1/models"}}
    top = {"listen": "127.0.0.1:0", "admin": None, "pools": {MODEL: pool}, "upstream": upstream}
    return parse(yaml.safe_dump(top), "test", base=Path())


def test_a_governed_stream_through_tls_twice(pair: tuple[str, str]) -> None:
    """An https listener serves, and an https engine with an authority of its own is reached."""
    cert, key = pair

    async def main() -> None:
        tls = {"certificate": cert, "private_key": key}
        async with fake_engine(answer()) as engine, serving(configured(engine, tls=tls)) as inner:
            url = f"https://127.0.0.1:{inner.port}"
            async with serving(in_front_of(url, {"ca_file": cert})) as outer:
                await until(lambda: outer.service.not_ready() is None)
                reply = await outer.ask(chat())
                assert (reply.status, reply.whole, reply.data[-1]) == (200, True, "[DONE]")

    run(main())


def test_an_engine_that_nobody_vouches_for(pair: tuple[str, str]) -> None:
    """Without its authority an https engine is not spoken to: the request ends as a failed connection."""
    cert, key = pair

    async def main() -> None:
        tls = {"certificate": cert, "private_key": key}
        async with fake_engine(answer()) as engine, serving(configured(engine, tls=tls)) as inner:
            url = f"https://127.0.0.1:{inner.port}"
            async with serving(in_front_of(url, {})) as outer:
                reply = await outer.ask(chat())
                assert (reply.status, reply.error["code"]) == (502, "upstream_error")
                assert engine.requests == []

    run(main())


def test_authorities_must_be_readable(tmp_path: Path) -> None:
    """A file that holds none is named, with its place."""
    (tmp_path / "empty.pem").write_text("")

    for name in ("empty.pem", "absent.pem"):
        with pytest.raises(
            ConfigurationError, match=rf"upstream.ca_file: names .*{name}, which is no readable"
        ):
            in_front_of("https://127.0.0.1:1", {"ca_file": str(tmp_path / name)})
