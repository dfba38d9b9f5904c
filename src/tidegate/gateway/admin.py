"""What may an operator ask, and change? The admin listener, on a port of its own.

Liveness and readiness depend on nothing but this process. What changes something needs the admin
token, on loopback too; everything but liveness and readiness needs it beyond loopback. Host is
allow-listed, so that a browser cannot be made to ask (DNS rebinding).
"""

from __future__ import annotations

import hmac
import json
import logging
import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from tidegate.config import digest_of
from tidegate.core.messages import DrainAsked
from tidegate.gateway.status import status

if TYPE_CHECKING:
    from tidegate.gateway.service import Service

log = logging.getLogger("tidegate.admin")

LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "[::1]"})
PUBLIC = frozenset({"/healthz", "/readyz"})


class Guard:
    """Lets through what Host, token and origin allow."""

    def __init__(self, app: ASGIApp, token_sha256: str | None, hosts: frozenset[str], loopback: bool) -> None:
        self._app = app
        self._token_sha256 = token_sha256.lower() if token_sha256 else None
        self._hosts = hosts
        self._loopback = loopback

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        answer = self._refusal(scope)
        await (answer or self._app)(scope, receive, send)

    def _refusal(self, scope: Scope) -> Response | None:
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        hosts = [value for name, value in headers if name == b"host"]
        if len(hosts) != 1 or _hostname(hosts[0]) not in self._hosts:
            return _error(421, "this Host is not served here; name it in admin.hosts of the configuration")
        reads = scope["method"] in ("GET", "HEAD")
        if reads and (scope["path"] in PUBLIC or self._loopback):
            return None
        if self._token_sha256 is None:
            return _error(
                403, "no admin token is configured, so nothing can be changed; set admin.token_sha256"
            )
        tokens = [value for name, value in headers if name == b"authorization"]
        shown = tokens[0].partition(b" ")[2].strip() if len(tokens) == 1 else b""
        if hmac.compare_digest(digest_of(shown), self._token_sha256):
            return None
        return _error(401, "the admin token is missing or wrong; send 'Authorization: Bearer TOKEN'")


_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::[0-9]+)?")


def _hostname(value: bytes) -> str:
    """The name in a Host header, without the port; empty for what is no Host."""
    found = _HOST.fullmatch(value.decode("latin-1").lower())
    return found[1] if found else ""


def _error(code: int, message: str) -> Response:
    return JSONResponse({"error": {"message": message, "code": code}}, status_code=code)


def admin_app(service: Service) -> ASGIApp:
    """The admin routes behind their guard."""

    async def healthz(request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def readyz(request: Request) -> Response:
        why = service.not_ready()
        return JSONResponse({"status": why or "ready"}, status_code=503 if why else 200)

    async def metrics(request: Request) -> Response:
        return Response(service.metrics.page(), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def show_status(request: Request) -> Response:
        body = status(service.governor, service.driver.now(), service.server.connections, service.not_ready())
        return Response(json.dumps(body, indent=2), media_type="application/json")

    async def drain(request: Request) -> Response:
        return _drain(service, request.path_params["replica"], request.method == "POST")

    routes: list[tuple[str, Callable[[Request], Awaitable[Response]], list[str]]] = [
        ("/healthz", healthz, ["GET"]),
        ("/readyz", readyz, ["GET"]),
        ("/metrics", metrics, ["GET"]),
        ("/status", show_status, ["GET"]),
        ("/replicas/{replica:path}/drain", drain, ["POST", "DELETE"]),
    ]

    async def index(request: Request) -> Response:
        return JSONResponse({"endpoints": {path: methods for path, _, methods in routes}})

    routes.insert(0, ("/", index, ["GET"]))
    app = Starlette(routes=[Route(path, handler, methods=methods) for path, handler, methods in routes])
    admin = service.config.admin
    assert admin is not None
    hosts = LOOPBACK_HOSTS | {host.lower() for host in admin.hosts}
    return Guard(app, admin.token_sha256, hosts, admin.listen.loopback)


def _drain(service: Service, replica: str, drain: bool) -> Response:
    member = service.governor.members.get(replica)
    if member is None:
        known = ", ".join(service.governor.members)
        return _error(404, f"no replica is named {replica!r}; there are {known}")
    service.driver.tell(DrainAsked(replica=replica, drain=drain))
    log.info("an operator %s replica %s", "drains" if drain else "takes back", replica)
    body: dict[str, Any] = {"replica": replica, "draining": drain, "in_flight": member.replica.in_flight}
    return JSONResponse(body)
