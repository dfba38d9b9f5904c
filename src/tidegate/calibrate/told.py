"""What does an engine tell of itself: how much fits into it, and how long may a sequence be?"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec

from tidegate.bench.target import ListedModel, Target, client_of, listed_models, origin_of
from tidegate.calibrate.pages import Page, read_page
from tidegate.config.problems import did_you_mean, quoted
from tidegate.core.errors import ConfigurationError, UpstreamError
from tidegate.net.client import Client
from tidegate.net.limits import ClientLimits

TIMEOUT_S = 5.0
LLAMACPP = "llamacpp"
"""As its list of models calls itself."""


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of an engine, by itself or by who calibrates it; None: nobody says."""

    max_num_seqs: int | None = None
    max_batched_tokens: int | None = None
    kv_tokens: int | None = None
    context_tokens: int | None = None
    block_tokens: int | None = None
    prefix_cache: bool = False

    def over(self, other: Told) -> Told:
        """What this says, and where it says nothing what `other` does."""
        own = {name: each for name, each in msgspec.structs.asdict(self).items() if each}
        return msgspec.structs.replace(other, **own)


class Scraper:
    """Fetches /metrics of one server, for as long as it answers."""

    def __init__(self, target: Target) -> None:
        self._origin = origin_of(target.url)
        key = next(iter(target.keys.values()), "")
        self._headers = [(b"authorization", b"Bearer " + key.encode())] if key else []
        self._client: Client = client_of(self._origin, ClientLimits())

    async def get(self, path: str) -> bytes | None:
        """The body, or None if there is none to be had."""
        with suppress(UpstreamError, OSError, TimeoutError):
            response = await self._client.request(
                "GET", self._origin.path + path, self._headers, timeout_s=TIMEOUT_S
            )
            return response.body if response.status == 200 else None
        return None

    async def page(self, at_s: float) -> Page | None:
        """The page of now, or None for one that says too little."""
        body = await self.get("/metrics")
        if body is None:
            return None
        with suppress(ConfigurationError):
            return read_page(body.decode("utf-8", "replace"), at_s, "/metrics")
        return None

    async def close(self) -> None:
        """End its connection."""
        await self._client.close()


async def told_by(target: Target, listed: ListedModel) -> Told:
    """What the engine says of its bounds, in its list of models, its metrics and its properties."""
    context = _count(listed.max_model_len)
    scraper = Scraper(target)
    try:
        if listed.owned_by == LLAMACPP:
            return _of_llamacpp(await scraper.get("/props"))
        page = await scraper.page(0.0)
    finally:
        await scraper.close()
    if page is None:
        return Told(context_tokens=context)
    return Told(
        context_tokens=context,
        kv_tokens=page.kv_tokens,
        block_tokens=page.block_tokens,
        prefix_cache=page.prefix_cache,
    )


async def listing_of(url: str, key: str, model: str | None) -> ListedModel:
    """The model that is asked for, else the first. Raises ConfigurationError if the server has it not."""
    models = await listed_models(url, key)
    if model is None:
        return models[0]
    for each in models:
        if each.id == model:
            return each
    remedy = did_you_mean(model, [each.id for each in models])
    raise ConfigurationError([f"--model {quoted(model)}: {url} does not serve it; {remedy}"])


def _of_llamacpp(body: bytes | None) -> Told:
    """Slots of equal size, as /props has them."""
    props: Any = None
    with suppress(msgspec.DecodeError):
        props = msgspec.json.decode(body or b"")
    if not isinstance(props, dict):
        return Told()
    settings = props.get("default_generation_settings")
    context = _count(settings.get("n_ctx")) if isinstance(settings, dict) else None
    slots = _count(props.get("total_slots"))
    return Told(
        max_num_seqs=slots, context_tokens=context, kv_tokens=slots * context if slots and context else None
    )


def _count(value: Any) -> int | None:
    """A number above 0, or None for whatever else an engine may say."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
