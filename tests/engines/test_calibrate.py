"""Does calibrating a real engine give a profile of it? How good a one depends on the machine."""

from __future__ import annotations

import asyncio
from pathlib import Path
from time import monotonic

import msgspec
import pytest

from tests.engines.llama import Llama
from tests.engines.vllm import BLOCK_TOKENS, CONTEXT_TOKENS, KV_BLOCKS, MODEL, SEATS, Vllm
from tidegate.bench.load import run_load
from tidegate.bench.target import Target
from tidegate.calibrate.report import Report, report_of
from tidegate.calibrate.sources import Asked, of_engine, of_scrapes
from tidegate.calibrate.told import Scraper, Told
from tidegate.config.profiles import Measured
from tidegate.core.curve import Linear
from tidegate.workload.requests import PlannedRequest


def calibrated(url: str, for_s: float) -> Report:
    """What comes of so long."""
    asked = Asked(url=url, model=None, api_key="", for_s=for_s, seed=None)
    found = asyncio.run(of_engine(asked, Told()))
    return report_of(found, file="p.yaml", date="")


def check_curve(curve: object, seats: int) -> None:
    """Steps take time, and fuller ones not less."""
    assert isinstance(curve, Linear)
    assert 1e-5 < curve.step_s(seats, 1000 * seats) < 2.0
    assert curve.step_s(seats, 1000 * seats) >= curve.step_s(1, 100)


def check_prompts(curve: object) -> None:
    """They cost; of scrapes on a busy machine that is not to be seen."""
    assert isinstance(curve, Linear)
    assert curve.step_s(0, 0, [(1000, 0)]) > curve.step_s(0, 0, [(100, 0)])


def check_measured(measured: Measured | None, seats: int) -> None:
    """One sequence and a full batch were seen; some points were kept to judge by, and are."""
    assert measured is not None
    # On a busy machine an answer of a tenth of a second may arrive in one piece, which shows no steps.
    assert measured.sequences.least <= 2
    assert measured.sequences.most == seats
    assert measured.held_out_points >= 1
    assert measured.held_out_error_ratio is not None
    assert measured.repeat_error_ratio is not None


@pytest.mark.engine
@pytest.mark.timeout(180, func_only=True)
def test_a_profile_of_llamacpp(llama: Llama) -> None:
    """It has the engine's own slots and context; what fits into all slots is what was seen in them."""
    report = calibrated(llama.url, 25.0)
    replica, measured = report.profile.replica, report.profile.measured

    assert (replica.max_num_seqs, replica.context_tokens) == (llama.slots, llama.context_tokens)
    assert llama.context_tokens < replica.kv_tokens <= llama.slots * llama.context_tokens
    check_curve(report.profile.curve, llama.slots)
    check_measured(measured, llama.slots)
    check_prompts(report.profile.curve)
    assert measured is not None
    assert measured.assumed == ("max_batched_tokens", "kv_tokens")


@pytest.mark.vllm
@pytest.mark.timeout(300, func_only=True)
def test_a_profile_of_vllm(vllm: Vllm) -> None:
    """It has the engine's own cache, block and context; its seats are found, its token budget is assumed."""
    report = calibrated(vllm.url, 40.0)
    replica, measured = report.profile.replica, report.profile.measured

    assert (replica.max_num_seqs, replica.context_tokens) == (vllm.seats, vllm.context_tokens)
    assert (replica.kv_tokens, replica.block_tokens) == (KV_BLOCKS * BLOCK_TOKENS, BLOCK_TOKENS)
    assert replica.prefix_cache
    check_curve(report.profile.curve, vllm.seats)
    check_measured(measured, vllm.seats)
    check_prompts(report.profile.curve)
    assert measured is not None
    assert measured.assumed == ("max_batched_tokens",)


@pytest.mark.vllm
@pytest.mark.timeout(300, func_only=True)
def test_scrapes_of_vllm_at_work(vllm: Vllm, tmp_path: Path) -> None:
    """Pages that were saved while others used it give points, and steps that take as long as they did."""

    async def watched() -> list[tuple[float, str]]:
        target = Target(url=vllm.url, model=MODEL)
        scraper, pages = Scraper(target), []
        load = asyncio.create_task(run_load(target, plan(), seed=int(monotonic())))
        while not load.done():
            body = await scraper.get("/metrics")
            assert body is not None
            pages.append((monotonic(), body.decode()))
            await asyncio.sleep(0.5)
        await scraper.close()
        assert all(each.ok for each in await load)
        return pages

    path = tmp_path / "scrapes.jsonl"
    lines = [msgspec.json.encode({"at_s": at, "page": page}) for at, page in asyncio.run(watched())]
    path.write_bytes(b"\n".join(lines))
    found = of_scrapes(path, Told())
    report = report_of(found, file="p.yaml", date="")

    assert (found.told.kv_tokens, found.told.block_tokens) == (KV_BLOCKS * BLOCK_TOKENS, BLOCK_TOKENS)
    assert all(0 < each.sequences <= SEATS for each in found.points)
    assert all(0 < each.context_tokens <= KV_BLOCKS * BLOCK_TOKENS for each in found.points)
    check_curve(report.profile.curve, SEATS)
    assert report.profile.measured is not None
    # How long single prompts were is in no page, and whether any is in one depends on when it was scraped.
    assert any(" is unknown and taken for 0: " in each for each in report.profile.measured.warnings)


def plan() -> list[PlannedRequest]:
    """One at a time, then two, then four, each with short prompts and with long ones."""
    planned = []
    for phase, (at_once, prompt) in enumerate(
        [(1, 64), (4, 64), (2, 600), (1, CONTEXT_TOKENS // 2), (4, 600), (2, 64)]
    ):
        planned += [
            PlannedRequest(at_s=phase * 5.0, prompt_tokens=prompt, output_tokens=400) for _ in range(at_once)
        ]
    return planned
