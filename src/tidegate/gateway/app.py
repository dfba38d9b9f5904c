"""What does a request want, and from whom? Routes, the checks before policy, and the answers to refusals.

Deny by default: only the routes named here exist, and each but the listing of models goes through the
governor. Nothing in a request can name a host.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from os import urandom
from typing import Any
from urllib.parse import unquote

import msgspec

from tidegate.config import Caller, Config
from tidegate.core.hashing import hash64
from tidegate.core.messages import Arrived, FailureKind, Quota
from tidegate.core.reasons import ANSWERS, Reason
from tidegate.core.request import Request
from tidegate.gateway.answers import error_body, quota_lines, refusal_headers
from tidegate.gateway.apis import APIS, Api
from tidegate.gateway.auth import Auth
from tidegate.gateway.bodies import Body, Problem, open_body
from tidegate.gateway.driver import Driver
from tidegate.gateway.flight import Flight
from tidegate.gateway.logs import Lines
from tidegate.gateway.prefixes import BLOCK_BYTES, Prefixes, pools_by_prefix
from tidegate.gateway.probes import Prober
from tidegate.gateway.prompts import MediaEstimate
from tidegate.gateway.upstream import Upstream
from tidegate.net.exchange import Exchange
from tidegate.net.headers import Headers
from tidegate.policy.settings import RoutingPolicy

log = logging.getLogger("tidegate.gateway")

JSON = (b"content-type", b"application/json")
BEARER = (b"www-authenticate", b"Bearer")
ID_BYTES_MAX = 128
_ID_CHARACTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.:"


class Gateway:
    """The handler of the client-facing server."""

    def __init__(
        self,
        config: Config,
        driver: Driver,
        upstreams: dict[str, Upstream],
        prober: Prober,
        refused: Callable[[Reason, str], None],
    ) -> None:
        self.config = config
        self.driver = driver
        self.upstreams = upstreams
        self._prober = prober
        self._refused = refused  # told of each refusal that never reaches the governor, for the metrics
        self._auth = Auth(config)
        self._models = config.models()
        self._discovering = next((name for name, pool in config.pools.items() if pool.discover), None)
        self._hashing = {
            name
            for name, pool in config.pools.items()
            if pool.routing.policy is RoutingPolicy.CONSISTENT_HASH
        }
        self._prefixed = pools_by_prefix(config)
        self._prefixes = Prefixes(urandom(16))
        self._extras = {path: name for name, pool in config.pools.items() for path in pool.extras}
        self._media = MediaEstimate(
            image_tokens=config.media.tokens_per_image, audio_tokens=config.media.tokens_per_audio
        )
        self._ids = 0  # given so far
        self._id_prefix = b"tg-%b-" % urandom(4).hex().encode()
        self._lines = Lines(log)

    # -- the server's handler ---------------------------------------------------------------------

    def on_head(self, exchange: Exchange) -> None:
        """Refuse before the body is read whatever its head already decides."""
        path = exchange.path
        if path in APIS:
            expected = "POST"
        elif path in self._extras:
            expected = exchange.method
        elif path == "/v1/models" or path.startswith("/v1/models/"):
            expected = "GET"
        else:
            self._refuse_early(exchange, Reason.UNKNOWN_ROUTE, f"there is no route {path[:200]!r}")
            return
        if exchange.method != expected:
            detail = f"{path[:200]} is asked for with {expected}"
            self._refuse_early(exchange, Reason.METHOD, detail, (b"allow", expected.encode()))
            return
        caller = exchange.context = self._auth.caller(exchange)
        if caller is None:
            detail = "no valid API key; send one as 'Authorization: Bearer KEY'"
            self._refuse_early(exchange, Reason.UNAUTHENTICATED, detail, BEARER)

    def on_request(self, exchange: Exchange) -> None:
        """A whole request: list models, or hand it to the governor."""
        caller = exchange.context
        assert isinstance(caller, Caller)
        if not self._auth.in_date(caller):  # its last day ended between head and body
            self._refuse_early(exchange, Reason.UNAUTHENTICATED, "the API key has expired", BEARER)
            return
        api = APIS.get(exchange.path)
        if api is not None:
            self._govern(exchange, api, caller)
        elif exchange.path in self._extras:
            self._govern_extra(exchange, caller)
        else:
            self._list_models(exchange, caller)

    def refusal(self, reason: Reason, detail: str) -> tuple[int, Headers, bytes]:
        """A refusal by the HTTP layer."""
        self._refused(reason, "")
        self._lines.warn("refused by HTTP: %s: %s", reason.value, detail)
        body = error_body(reason, detail)
        return ANSWERS[reason].status, [JSON, *refusal_headers(reason, None)], body

    # -- governed requests ------------------------------------------------------------------------

    def _govern(self, exchange: Exchange, api: Api, caller: Caller) -> None:
        request_id = self._request_id(exchange)
        raw = exchange.body
        body = open_body(api, raw, self._media)
        if isinstance(body, Problem):
            self._refuse(exchange, Reason.MALFORMED, body.message, caller, request_id, api, body.param)
            return
        exchange.body = b""  # from here on only the opened body is needed
        pool = self._pool_of(body.model)
        if pool is None and self._discovering is not None and not self._prober.discovered:
            detail = "no engine tells which models it serves; none is up, or none has been asked yet"
            self._refuse(exchange, Reason.NO_REPLICA, detail, caller, request_id, api, None)
            return
        if pool is None:
            detail = f"no model is named {body.model[:200]!r}; GET /v1/models lists those that there are"
            self._refuse(exchange, Reason.UNKNOWN_MODEL, detail, caller, request_id, api, "model")
            return
        allowed = caller.pools
        if allowed is not None and pool not in allowed:
            detail = f"this key may not use {body.model[:200]!r}; GET /v1/models lists those that it may"
            self._refuse(exchange, Reason.FORBIDDEN, detail, caller, request_id, api, "model")
            return
        asked = self._asked(exchange, caller)
        if isinstance(asked, str):
            self._refuse(exchange, Reason.MALFORMED, asked, caller, request_id, api, None)
            return
        priority, timeout_s = asked
        request = Request(
            request_id=self._next_id(),
            model=pool,
            tenant=caller.tenant,
            key=caller.key,
            priority=priority,
            prompt_bytes=body.prompt_bytes,
            prompt_tokens_known=body.prompt_tokens_known,
            max_tokens=body.max_tokens,
            choices=body.choices,
            generates=api.generates,
            streams=body.stream,
            body_bytes=len(raw),
            affinity=self._affinity(exchange, body) if pool in self._hashing else None,
            timeout_s=timeout_s,
        )
        if pool in self._prefixed:
            request = msgspec.structs.replace(
                request,
                prefix=self._prefixes.of(caller.tenant, body.fields),
                prefix_block_tokens=BLOCK_BYTES / self.bytes_per_token(pool),
            )
        self._fly(exchange, request, body, request_id)

    def _govern_extra(self, exchange: Exchange, caller: Caller) -> None:
        """An engine's own route: through the same door, as a request that generates nothing."""
        pool = self._extras[exchange.path]
        request_id = self._request_id(exchange)
        if caller.pools is not None and pool not in caller.pools:
            detail = "this key may not use the model behind that route"
            self._refuse(exchange, Reason.FORBIDDEN, detail, caller, request_id, None, None)
            return
        request = Request(
            request_id=self._next_id(),
            model=pool,
            tenant=caller.tenant,
            key=caller.key,
            priority=caller.default_class,
            prompt_bytes=0,
            generates=False,
            streams=False,
            body_bytes=len(exchange.body),
        )
        self._fly(exchange, request, None, request_id)

    def _fly(self, exchange: Exchange, request: Request, body: Body | None, request_id: bytes) -> None:
        number: int = request.request_id
        self.driver.flights[number] = Flight(self, exchange, number, body, request_id)
        self.driver.tell(Arrived(request))

    def _pool_of(self, model: str) -> str | None:
        pool = self._models.get(model)
        if pool is None and self._discovering is not None and model in self._prober.discovered:
            return self._discovering
        return pool

    def _asked(self, exchange: Exchange, caller: Caller) -> tuple[str, float | None] | str:
        """Class and deadline that the headers ask for, within what the caller may have; or what is wrong."""
        priority, timeout_s = caller.default_class, None
        for name, value in exchange.headers:
            if name == b"x-tidegate-priority":
                asked = value.decode("latin-1")
                if asked not in self.config.classes:
                    return f"x-tidegate-priority must be one of {', '.join(caller.classes)}"
                # More than a caller may ask for is not refused: it gets the best that it may have.
                priority = asked if asked in caller.classes else caller.classes[0]
            elif name == b"x-tidegate-timeout-ms":
                if not (value.isdigit() and 0 < len(value) <= 9 and int(value) > 0):
                    return "x-tidegate-timeout-ms must be a whole number of milliseconds above 0"
                timeout_s = int(value) / 1e3
        return priority, timeout_s

    def _affinity(self, exchange: Exchange, body: Body) -> int | None:
        source = exchange.header(b"x-session-id") or body.affinity_source
        return None if source is None else hash64(source)

    def _request_id(self, exchange: Exchange) -> bytes:
        """The client's own id if it is clean and short, else a new one."""
        own = exchange.header(b"x-request-id")
        if own and len(own) <= ID_BYTES_MAX and not own.translate(None, _ID_CHARACTERS):
            return own
        return b"%b%d" % (self._id_prefix, self._next_id())

    def _next_id(self) -> int:
        self._ids += 1
        return self._ids

    # -- models -----------------------------------------------------------------------------------

    def _list_models(self, exchange: Exchange, caller: Caller) -> None:
        """The models that this key may use, each with what its engine says of it."""
        request_id = self._request_id(exchange)
        entries = {
            name: {**self._prober.listing(pool), "id": name, "object": "model", "owned_by": "tidegate"}
            for name, pool in self._models.items()
            if not self.config.pools[pool].discover and (caller.pools is None or pool in caller.pools)
        }
        if self._discovering is not None and (caller.pools is None or self._discovering in caller.pools):
            for name, entry in self._prober.discovered.items():
                entries.setdefault(name, {**entry, "id": name, "object": "model"})
        for entry in entries.values():
            entry.setdefault("created", 0)
        one = unquote(exchange.path.removeprefix("/v1/models").removeprefix("/"))
        if one and one not in entries:
            detail = f"no model is named {one[:200]!r}"
            self._refuse(exchange, Reason.UNKNOWN_MODEL, detail, caller, request_id, None, "model")
            return
        body: Any = entries[one] if one else {"object": "list", "data": list(entries.values())}
        exchange.respond(200, [JSON, (b"x-request-id", request_id)], msgspec.json.encode(body))

    # -- refusals ---------------------------------------------------------------------------------

    def _refuse_early(
        self, exchange: Exchange, reason: Reason, detail: str, *more: tuple[bytes, bytes]
    ) -> None:
        self._refused(reason, "")
        self._lines.warn("refused %s %s: %s", exchange.method, exchange.path[:200], reason.value)
        request_id, api = self._request_id(exchange), APIS.get(exchange.path)
        self.refuse(exchange, reason, detail, request_id=request_id, api=api, more=more)

    def _refuse(
        self,
        exchange: Exchange,
        reason: Reason,
        detail: str,
        caller: Caller,
        request_id: bytes,
        api: Api | None,
        param: str | None,
    ) -> None:
        self._refused(reason, caller.tenant)
        self._lines.warn(
            "request %s of %s refused: %s: %s", request_id.decode(), caller.tenant, reason.value, detail
        )
        self.refuse(exchange, reason, detail, request_id=request_id, api=api, param=param)

    def refuse(
        self,
        exchange: Exchange,
        reason: Reason,
        detail: str,
        *,
        request_id: bytes,
        api: Api | None = None,
        param: str | None = None,
        retry_after_s: float | None = None,
        quota: Quota | None = None,
        final: bool = False,
        more: Sequence[tuple[bytes, bytes]] = (),
    ) -> None:
        """Answer with the error that the table of reasons has for this."""
        headers = [JSON, *refusal_headers(reason, retry_after_s, final), *more]
        lines = b"x-request-id: %b\r\n" % request_id + (quota_lines(quota) if quota is not None else b"")
        body = error_body(reason, detail, param=param, api=api)
        exchange.respond(ANSWERS[reason].status, headers, body, lines)

    def note_failure(self, replica: str, request_id: bytes, kind: FailureKind, detail: str) -> None:
        """One line for an attempt that failed."""
        self._lines.warn(
            "request %s on %s failed: %s: %s", request_id.decode(), replica, kind.value, detail[:300]
        )

    # -- for flights ------------------------------------------------------------------------------

    def assembles(self, upstream: Upstream) -> bool:
        """Whether whole answers are asked for as streams of that replica."""
        asked = upstream.asked_for_streams
        return upstream.id in self._prober.llamacpp if asked is None else asked

    def bytes_per_token(self, pool: str) -> float:
        """As learned by the pool."""
        return self.driver.governor.pools[pool].predictor.bytes_per_token.value
