"""SGLang tells of itself by other names, and counts at other times: what is read of it is what vLLM's is."""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.bench.scripted import run, serving, whole
from tests.calibrate.sglang import CLIENT, RANK, SglangEngine, server_info
from tests.calibrate.test_files import CURVE, arrivals, profile_of, written
from tests.calibrate.virtual import TRUE
from tidegate.bench.target import ListedModel, Target
from tidegate.calibrate.pages import read_page
from tidegate.calibrate.scrapes import points_of
from tidegate.calibrate.sources import Found, of_scrapes
from tidegate.calibrate.told import Told, told_by
from tidegate.core.curve import Linear
from tidegate.core.errors import ConfigurationError
from tidegate.net.exchange import Exchange


@lru_cache
def pages() -> list[tuple[float, str]]:
    """Some minutes of an engine, scraped each second."""
    return SglangEngine().serve(arrivals(400, 1.5), scrape_every_s=1.0)[1]


def scrapes_in(path: Path, scraped: list[tuple[float, str]]) -> Path:
    """A JSONL file of them."""
    return written(path, [msgspec.json.encode({"at_s": at, "page": page}) for at, page in scraped])


def test_scrapes_of_a_known_engine(tmp_path: Path) -> None:
    """A page a second gives the constants of decoding within 15 %, and the bounds that it tells."""
    profile = profile_of(of_scrapes(scrapes_in(tmp_path / "s", pages()), Told()))
    curve, measured = profile.curve, profile.measured

    assert isinstance(curve, Linear)
    assert measured is not None
    for name in ("a_s", "b_s_per_sequence", "c_s_per_context_token", "d_s_per_prefill_token"):
        assert getattr(curve, name) == pytest.approx(getattr(CURVE, name), rel=0.15), name
    assert measured.held_out_error_ratio is not None
    assert measured.held_out_error_ratio < 0.06
    assert measured.assumed == ("max_num_seqs", "max_batched_tokens")
    assert (profile.replica.kv_tokens, profile.replica.context_tokens) == (
        TRUE.replica.kv_tokens,
        TRUE.replica.context_tokens,
    )


def test_gauges_that_are_late() -> None:
    """Gauges are of the last of its log lines: with ones of half a second ago, constants are within 15 %."""
    scraped = SglangEngine().serve(arrivals(400, 1.5), scrape_every_s=0.5)[1]
    read = [read_page(text, at, "here") for at, text in scraped]
    late = [
        msgspec.structs.replace(now, series=now.series | {name: before[name] for name in GAUGES})
        for before, now in list(pairwise(read))[::2]
    ]
    curve = profile_of(Found(points=points_of(late), told=Told(), source="")).curve

    assert isinstance(curve, Linear)
    for name in ("a_s", "b_s_per_sequence", "c_s_per_context_token", "d_s_per_prefill_token"):
        assert getattr(curve, name) == pytest.approx(getattr(CURVE, name), rel=0.15), name


GAUGES = ("num_requests_running", "num_requests_waiting", "num_used_tokens")


def lines(*given: tuple[str, str, float]) -> str:
    """A page of these series: name, labels and value."""
    return "".join(f"sglang:{name}{{{labels}}} {value!r}\n" for name, labels, value in given)


OTHER_RANK = RANK.replace('tp_rank="0"', 'tp_rank="1"')
LEAST = (("num_running_reqs", RANK, 3.0), ("num_used_tokens", RANK, 700.0))


@pytest.mark.parametrize(
    ("more", "series"),
    [
        # A histogram is not there before it has counted something.
        ((), {"num_requests_running": 3, "inter_token_latency_seconds_sum": 0}),
        # Schedulers of all ranks say the same (--enable-metrics-for-all-schedulers).
        (
            (("num_running_reqs", OTHER_RANK, 3.0), ("num_used_tokens", OTHER_RANK, 700.0)),
            {"num_requests_running": 3, "num_used_tokens": 700},
        ),
        # With priorities the sum has an empty one.
        (
            (
                ("num_running_reqs", RANK + ',priority="5"', 3.0),
                ("num_queue_reqs", RANK + ',priority=""', 4.0),
                ("num_queue_reqs", RANK + ',priority="5"', 4.0),
            ),
            {"num_requests_running": 3, "num_requests_waiting": 4},
        ),
        # What the front counts has a series for each kind of request.
        (
            (
                ("inter_token_latency_seconds_count", CLIENT + ',is_streaming="true"', 50.0),
                ("inter_token_latency_seconds_count", CLIENT + ',is_streaming="false"', 20.0),
                ("inter_token_latency_seconds_bucket", CLIENT + ',le="+Inf"', 70.0),
            ),
            {"inter_token_latency_seconds_count": 70},
        ),
        # Prompts are counted as they are computed, and not when their answers end.
        (
            (
                ("realtime_tokens_total", f'mode="prefill_compute",{RANK}', 900.0),
                ("realtime_tokens_total", f'mode="prefill_cache",{RANK}', 50.0),
                ("prompt_tokens_total", CLIENT, 300.0),
                ("cached_tokens_total", CLIENT + ',cache_source="device"', 40.0),
            ),
            {"prompt_tokens_total": 900, "prompt_tokens_cached_total": 0},
        ),
        # Older builds count them then only.
        (
            (("prompt_tokens_total", CLIENT, 300.0), ("cached_tokens_total", CLIENT, 40.0)),
            {"prompt_tokens_total": 300, "prompt_tokens_cached_total": 40},
        ),
        # And they call gaps between tokens by another name.
        (
            (
                ("time_per_output_token_seconds_sum", CLIENT, 8.5),
                ("time_per_output_token_seconds_count", CLIENT, 99.0),
            ),
            {"inter_token_latency_seconds_sum": 8.5, "inter_token_latency_seconds_count": 99},
        ),
    ],
)
def test_what_is_counted(more: tuple[tuple[str, str, float], ...], series: dict[str, float]) -> None:
    """Each series is read once, by vLLM's name."""
    page = read_page(lines(*LEAST, *more), 0.0, "here")

    assert {name: page[name] for name in series} == series


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (lines(LEAST[0]), "has no sglang:num_used_tokens, which a fit from /metrics needs"),
        (
            lines(*LEAST, ("num_running_reqs", 'dp_rank="0",' + RANK, 1.0))
            + lines(("num_running_reqs", 'dp_rank="1",' + OTHER_RANK, 1.0)),
            "speaks of 3 engines at once",
        ),
    ],
)
def test_pages_that_say_too_little(text: str, said: str) -> None:
    """What lacks the KV cache is refused, as are several engines behind one address."""
    with pytest.raises(ConfigurationError, match=f"^here: {said}"):
        read_page(text, 0.0, "here")


@pytest.mark.parametrize(
    ("info", "told"),
    [
        (
            server_info(),
            Told(
                max_num_seqs=128,
                max_batched_tokens=8192,
                kv_tokens=20480,
                context_tokens=32768,
                block_tokens=1,
                prefix_cache=True,
            ),
        ),
        # No chunks, no prefix cache, a build that says less.
        (
            server_info(
                chunked_prefill_size=-1,
                disable_radix_cache=True,
                max_running_requests=64,
                internal_states=[],
            ),
            Told(
                max_num_seqs=64,
                max_batched_tokens=16384,
                kv_tokens=20480,
                context_tokens=32768,
                block_tokens=1,
            ),
        ),
        # vLLM in its development mode.
        (
            {"vllm_config": {"scheduler_config": {"max_num_seqs": 256, "max_num_batched_tokens": 16384}}},
            Told(max_num_seqs=256, max_batched_tokens=16384, context_tokens=32768),
        ),
        ({"vllm_config": "model='m', ..."}, Told(context_tokens=32768)),
        ({"vllm_config": {"scheduler_config": None}}, Told(context_tokens=32768)),
        ({"internal_states": [7], "page_size": "1"}, Told(context_tokens=32768)),
        (["x"], Told(context_tokens=32768)),
    ],
)
def test_what_the_server_info_tells(info: Any, told: Told) -> None:
    """Bounds come from it, as far as it says them; the list of models has the longest sequence."""

    async def main() -> None:
        async with serving(whole(404, {}), whole(200, info)) as server:
            listed = ListedModel(id="m", max_model_len=32768, owned_by="sglang")
            assert await told_by(Target(url=server.url, model="m"), listed) == told

    run(main())


def test_where_older_builds_have_it() -> None:
    """`/get_server_info` is asked where `/server_info` is not known, and what the list lacks is there too."""
    older = whole(200, server_info(context_length=4096))

    async def main() -> None:
        async with serving(whole(404, {}), whole(404, {}), older) as server:
            listed = ListedModel(id="m", owned_by="sglang")
            told = await told_by(Target(url=server.url, model="m"), listed)
        assert (told.max_num_seqs, told.max_batched_tokens, told.context_tokens) == (128, 8192, 4096)

    run(main())


def test_several_engines_behind_one_address() -> None:
    """They are not measured as if they were one: a batch would be spread over them."""
    page = lines(*LEAST, *((name, 'dp_rank="1",' + labels, value) for name, labels, value in LEAST))

    def metrics(exchange: Exchange, body: dict[str, Any]) -> None:
        exchange.respond(200, [(b"content-type", b"text/plain")], page.encode())

    async def main() -> None:
        async with serving(metrics) as server:
            with pytest.raises(ConfigurationError, match="/metrics: speaks of 2 engines at once"):
                await told_by(Target(url=server.url, model="m"), ListedModel(id="m"))

    run(main())
