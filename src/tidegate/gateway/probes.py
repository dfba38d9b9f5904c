"""How is a replica, and what is it? Health, load and capacity, as the engine itself tells.

The governor says when to probe. Each probe asks for health; a healthy replica is also scraped for its load,
and asked once (again after it was down) which models it serves and how large it is. A scrape reads only
the series it needs: a general parser takes 24 ms on vLLM's page, this takes well under one.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from math import nan
from typing import Any

import msgspec

from tidegate.config import Config
from tidegate.config.schema import Engine
from tidegate.core.errors import UpstreamError
from tidegate.core.messages import Event, Probed, ReplicaSeen
from tidegate.core.text import printable
from tidegate.gateway.upstream import Upstream
from tidegate.net.client import Response

log = logging.getLogger("tidegate.probes")

SCRAPE_TIMEOUT_S = 2.0
PAGE_BYTES = 2**20
"""More than this is no list of models, and would stall the loop to decode."""
NAMES_SAID = 8
"""As many models of a replica are named in the log."""
MOST = 2**53
"""No count of an engine reaches it: what does is no count."""


class Prober:
    """Probes replicas when told to, one probe at a time each."""

    def __init__(
        self,
        config: Config,
        upstreams: dict[str, Upstream],
        tell: Callable[[Event], None],
        in_flight: Callable[[str], int],
    ) -> None:
        self.models: dict[str, dict[str, dict[str, Any]]] = {}
        """What replicas list in /v1/models, by replica id and model name."""
        self.discovered: dict[str, dict[str, Any]] = {}
        """What the replicas of the pool with `discover` list, by model name."""
        self.llamacpp: set[str] = set()
        """Replicas whose engine is llama.cpp."""
        self.probed: set[str] = set()
        """Replicas that have answered a probe, well or badly."""
        self._config = config
        self._upstreams = upstreams
        self._tell = tell
        self._in_flight = in_flight
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False
        self._said_down: set[str] = set()
        self._stale: set[str] = set()  # to be asked again what they are

    def probe(self, replica_id: str) -> None:
        """Ask a replica for its health in the background; after `close` nobody is asked."""
        if self._closed:
            return
        task = asyncio.get_running_loop().create_task(self._probe(self._upstreams[replica_id]))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def listing(self, pool: str) -> dict[str, Any]:
        """An engine's own entry for the model of a pool, from any replica that has one."""
        for replica_id, models in self.models.items():
            upstream = self._upstreams[replica_id]
            if upstream.pool_name == pool and upstream.model in models:
                return models[upstream.model]
        return {}

    async def close(self) -> None:
        """Stop every probe that is under way, and begin no other: the governor's timers run to the end."""
        self._closed = True
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _probe(self, upstream: Upstream) -> None:
        probe = self._config.pools[upstream.pool_name].probe
        ok = False
        try:
            response = await self._get(upstream, probe.path, probe.timeout_s)
            ok = 200 <= response.status < 300
            why = f"{probe.path} answered {response.status}"
        except (UpstreamError, OSError, TimeoutError) as error:
            why = str(error) or f"no answer within {probe.timeout_s:g} s"
        self._log(upstream.id, ok, why)
        try:
            if ok:
                await self._look(upstream)
            else:
                # It may come back as another: asked again then. Until it does, what it was is what is known;
                # whether it is to be believed dead is the governor's to say, not one bad probe's.
                self._stale.add(upstream.id)
        finally:  # a probe that is never told of would be the replica's last
            self.probed.add(upstream.id)
            self._tell(Probed(replica=upstream.id, ok=ok))

    async def _look(self, upstream: Upstream) -> None:
        """What it is and how loaded. Healthy is healthy: this is a bonus that not every engine tells."""
        with suppress(UpstreamError, OSError, TimeoutError, msgspec.DecodeError, RecursionError):
            if upstream.id not in self.models or upstream.id in self._stale:
                await self._discover(upstream)
            if (seen := await self._scrape(upstream)) is not None:
                self._tell(seen)

    def _log(self, replica_id: str, ok: bool, why: str) -> None:
        if ok and replica_id in self._said_down:
            self._said_down.discard(replica_id)
            log.info("replica %s answers its probes again", replica_id)
        elif not ok and replica_id not in self._said_down:
            self._said_down.add(replica_id)
            log.warning("replica %s fails its probe: %s", replica_id, why)

    async def _get(self, upstream: Upstream, path: str, timeout_s: float) -> Response:
        full = upstream.config.url.path + path
        return await upstream.client.request("GET", full, upstream.headers(), timeout_s=timeout_s)

    # -- what it is -------------------------------------------------------------------------------

    async def _discover(self, upstream: Upstream) -> None:
        listed = await self._json(upstream, "/v1/models")
        entries = listed.get("data") if isinstance(listed, dict) else None
        if not isinstance(entries, list):
            return  # not yet, or never: asked again at the next probe
        models = {
            entry["id"]: entry
            for entry in entries
            if isinstance(entry, dict) and isinstance(entry.get("id"), str)
        }
        if models.keys() != self.models.get(upstream.id, {}).keys():
            names = ", ".join(printable(name) for name in list(models)[:NAMES_SAID]) or "no model"
            log.info("replica %s serves %s%s", upstream.id, names, ", …" if len(models) > NAMES_SAID else "")
        self.models[upstream.id] = models
        self.discovered = {
            name: entry
            for replica_id, listed in self.models.items()
            if self._config.pools[self._upstreams[replica_id].pool_name].discover
            for name, entry in listed.items()
        }
        self._stale.discard(upstream.id)
        engine = self._config.pools[upstream.pool_name].engine
        slots = context = None
        self.llamacpp.discard(upstream.id)
        if engine is Engine.LLAMACPP or (engine is Engine.AUTO and _is_llamacpp(models)):
            self.llamacpp.add(upstream.id)
            slots, context = _size_of_llamacpp(await self._json(upstream, "/props"))
        if context is None:
            lengths = [_count(entry.get("max_model_len")) for entry in models.values()]
            context = min((length for length in lengths if length is not None), default=None)
        self._tell(ReplicaSeen(replica=upstream.id, slots=slots, context_tokens=context))

    async def _json(self, upstream: Upstream, path: str) -> Any:
        response = await self._get(upstream, path, self._patience_s(upstream))
        if response.status != 200 or len(response.body) > PAGE_BYTES:
            return None
        return msgspec.json.decode(response.body)

    # -- how loaded it is -------------------------------------------------------------------------

    async def _scrape(self, upstream: Upstream) -> ReplicaSeen | None:
        if self._config.pools[upstream.pool_name].engine is Engine.OTHER:
            return None
        before = self._in_flight(upstream.id)
        response = await self._get(upstream, "/metrics", self._patience_s(upstream))
        return read_metrics(upstream.id, response.body, before) if response.status == 200 else None

    def _patience_s(self, upstream: Upstream) -> float:
        return min(SCRAPE_TIMEOUT_S, self._config.pools[upstream.pool_name].probe.timeout_s)


def read_metrics(replica_id: str, page: bytes, in_flight_before: int = 0) -> ReplicaSeen | None:
    """The few series that matter of vLLM's or llama.cpp's /metrics; None for an unknown page."""
    if b"\nvllm:" in page:
        usage = list(_series(page, b"vllm:kv_cache_usage_perc")) or list(
            _series(page, b"vllm:gpu_cache_usage_perc")
        )
        return ReplicaSeen(
            replica=replica_id,
            running=_total(page, b"vllm:num_requests_running"),
            waiting=_total(page, b"vllm:num_requests_waiting"),
            # Several engines of one server (data parallel) each tell their own.
            kv_used_ratio=sum(usage) / len(usage) if usage else None,
            kv_capacity_tokens=_vllm_capacity(page),
            in_flight_before=in_flight_before,
        )
    if b"\nllamacpp:" in page:
        return ReplicaSeen(
            replica=replica_id,
            running=_total(page, b"llamacpp:requests_processing"),
            waiting=_total(page, b"llamacpp:requests_deferred"),
            in_flight_before=in_flight_before,
        )
    return None


def _series(page: bytes, name: bytes) -> Iterator[float]:
    """Values of every series of that exact name; those that cannot be are left out."""
    at = page.find(b"\n" + name)
    while at >= 0:
        end = page.find(b"\n", at + 1)
        line = page[at + 1 : end if end >= 0 else len(page)]
        at = page.find(b"\n" + name, at + 1)
        if line[len(name) : len(name) + 1] in (b"{", b" "):
            value = _number(line.rpartition(b" ")[2])
            if 0 <= value < MOST:
                yield value


def _number(text: bytes) -> float:
    try:
        return float(text)
    except ValueError:
        return nan


def _total(page: bytes, name: bytes) -> int | None:
    values = list(_series(page, name))
    return round(sum(values)) if values else None


# Whole names: models with state-space layers have a `mamba_block_size` too.
_LABEL = re.compile(rb'[{,](block_size|num_gpu_blocks)="([0-9]{1,12})"')


def _vllm_capacity(page: bytes) -> int | None:
    at = page.find(b"\nvllm:cache_config_info{")
    if at < 0:
        return None
    labels = dict(_LABEL.findall(page[at + 1 : page.find(b"\n", at + 1)]))
    if len(labels) < 2:
        return None
    return int(labels[b"block_size"]) * int(labels[b"num_gpu_blocks"]) or None


def _is_llamacpp(models: dict[str, dict[str, Any]]) -> bool:
    return any(entry.get("owned_by") == "llamacpp" for entry in models.values())


def _size_of_llamacpp(props: Any) -> tuple[int | None, int | None]:
    """Slots, and the context of each."""
    if not isinstance(props, dict):
        return None, None
    settings = props.get("default_generation_settings")
    context = settings.get("n_ctx") if isinstance(settings, dict) else None
    return _count(props.get("total_slots")), _count(context)


def _count(value: Any) -> int | None:
    """A number above 0, or None for whatever else an engine may say."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
