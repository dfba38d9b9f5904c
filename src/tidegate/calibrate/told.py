"""What does an engine tell of itself: how much fits into it, and how long may a sequence be?"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec

from tidegate.bench.target import ListedModel, Target, client_of, listed_models, origin_of
from tidegate.calibrate.pages import Page, SeveralEngines, read_page
from tidegate.config.problems import did_you_mean, quoted
from tidegate.core.errors import ConfigurationError, UpstreamError
from tidegate.net.client import Client
from tidegate.net.limits import ClientLimits

TIMEOUT_S = 5.0
MAX_BATCHED_TOKENS = 2048
"""Of an engine that does not tell, and of which nobody says: what vLLM takes by itself below 70 GiB, and on
an A100. Source: `get_batch_defaults` in its engine/arg_utils.py."""
LLAMACPP, SGLANG = "llamacpp", "sglang"
"""As their lists of models call themselves."""


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
        """The page of now, or None for one that says too little. ConfigurationError for several engines'."""
        body = await self.get("/metrics")
        if body is None:
            return None
        try:
            return read_page(body.decode("utf-8", "replace"), at_s, f"{self._origin.authority}/metrics")
        except SeveralEngines:
            raise
        except ConfigurationError:
            return None

    async def close(self) -> None:
        """End its connection."""
        await self._client.close()


async def told_by(target: Target, listed: ListedModel) -> Told:
    """What the engine says of its bounds: in its list of models, its metrics, and its own configuration.

    Raises ConfigurationError for a server that runs several engines: a batch would be spread over them.
    """
    scraper = Scraper(target)
    try:
        if listed.owned_by == LLAMACPP:
            return _of_llamacpp(await scraper.get("/props"))
        page = await scraper.page(0.0)
        info = await scraper.get("/server_info?config_format=json")
        if info is None and listed.owned_by == SGLANG:
            info = await scraper.get("/get_server_info")
    finally:
        await scraper.close()
    known = Told(context_tokens=_count(listed.max_model_len)).over(of_server_info(info))
    return known if page is None else known.over(of_page(page))


def of_page(page: Page) -> Told:
    """What a page of /metrics says of bounds."""
    return Told(
        kv_tokens=page.kv_tokens,
        context_tokens=page.context_tokens,
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


def of_server_info(body: bytes | None) -> Told:
    """What SGLang's `/server_info` says, and vLLM's, which it has in its development mode only.

    Source of the names: `server_args.py` and `http_server.py` of SGLang, `config/scheduler.py` of vLLM.
    """
    info = _object(body)
    if isinstance(config := info.get("vllm_config"), dict):
        return _of_vllm_scheduler(config.get("scheduler_config"))
    states = info.get("internal_states")
    state = states[0] if isinstance(states, list) and states and isinstance(states[0], dict) else {}
    return Told(
        max_num_seqs=_count(state.get("effective_max_running_requests_per_dp"))
        or _count(info.get("max_running_requests")),
        # Prompts are computed in chunks of the one, if at all, and else up to the other at once.
        max_batched_tokens=_count(info.get("chunked_prefill_size")) or _count(info.get("max_prefill_tokens")),
        kv_tokens=_count(info.get("max_total_num_tokens")),
        context_tokens=_count(info.get("context_length")),
        block_tokens=_count(info.get("page_size")),
        prefix_cache=info.get("disable_radix_cache") is False,
    )


def _of_vllm_scheduler(scheduler: Any) -> Told:
    if not isinstance(scheduler, dict):
        return Told()
    return Told(
        max_num_seqs=_count(scheduler.get("max_num_seqs")),
        max_batched_tokens=_count(scheduler.get("max_num_batched_tokens")),
    )


def _of_llamacpp(body: bytes | None) -> Told:
    """Its slots, as /props has them. Whether they share one context or have one each it does not say."""
    props = _object(body)
    settings = props.get("default_generation_settings")
    context = _count(settings.get("n_ctx")) if isinstance(settings, dict) else None
    slots = _count(props.get("total_slots"))
    return Told(max_num_seqs=slots, context_tokens=context, kv_tokens=context if slots == 1 else None)


def _object(body: bytes | None) -> dict[str, Any]:
    """A JSON object, or an empty one for whatever else came."""
    with suppress(msgspec.DecodeError):
        if isinstance(found := msgspec.json.decode(body or b""), dict):
            return found
    return {}


def _count(value: Any) -> int | None:
    """A number above 0, or None for whatever else an engine may say."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
