"""Who is calling? A key's digest is looked up; the key itself goes no further than this file."""

from __future__ import annotations

import time
from collections.abc import Callable

from tidegate.config import Caller, Config, digest_of
from tidegate.net.exchange import Exchange


class Auth:
    """Recognises callers by `Authorization: Bearer` or `x-api-key`."""

    def __init__(self, config: Config, unix_now: Callable[[], float] = time.time) -> None:
        self._callers = config.callers()
        self._anonymous = config.anonymous() if config.open else None
        self._unix_now = unix_now
        self._seen: dict[bytes, Caller] = {}  # valid keys that were presented: no more than are configured

    def caller(self, exchange: Exchange) -> Caller | None:
        """Whoever this request is from; None if it carries no key that is known and in date.

        The look-up is by SHA-256, so its timing tells nothing about any stored key. A key that was right is
        looked up as it is from then on: by Python's own hash, whose secret differs in each process.
        """
        if self._anonymous is not None:
            return self._anonymous
        key = _presented(exchange)
        if not key:
            return None
        caller = self._seen.get(key)
        if caller is None:
            caller = self._callers.get(digest_of(key))
            if caller is not None:
                self._seen[key] = caller
        return caller if caller is not None and self.in_date(caller) else None

    def in_date(self, caller: Caller) -> bool:
        """Whether the caller's key has not expired."""
        return caller.expires is None or caller.valid_at(self._unix_now())


def _presented(exchange: Exchange) -> bytes | None:
    authorization = exchange.header(b"authorization")
    if authorization is not None:
        if authorization.startswith(b"Bearer "):
            return authorization[7:].strip()
        scheme, _, key = authorization.partition(b" ")
        return key.strip() if scheme.lower() == b"bearer" else None
    return exchange.header(b"x-api-key")
