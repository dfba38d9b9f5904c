"""What do two scrapes of /metrics say of the steps between them?

Between them so many gaps between tokens took so long in sum: their quotient is the mean gap, which is the
mean step, and their sum over the time that passed is how many sequences decoded at once. The KV cache in use
says how much context these had (a prefix that sequences share counts once), and the prompt tokens what was
computed beside. Which quantities suffice: vLLM's design of its metrics (docs/design/metrics.md). How long
single prompts were is not told, so that the quadratic constant stays 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import msgspec

from tidegate.calibrate.held_out import split
from tidegate.calibrate.pages import Page, read_page
from tidegate.calibrate.points import Point, name_of_batch
from tidegate.core.errors import ConfigurationError
from tidegate.perf.regression import Observation

LEAST_GAPS = 20
"""Between two scrapes; a mean of fewer says little."""
STEADY_RATIO, STEADY = 0.25, 1.0
"""How far the batch may differ between two scrapes: by this share of it, or so many sequences. Else the
mean gap is of no batch that there was."""
LEAST_PROMPT_TOKENS = 1.0
"""Per step, beside decoding; fewer are taken for none."""


class _Scrape(msgspec.Struct):
    at_s: float
    page: str


def pages_of(path: Path) -> list[Page]:
    """Saved scrapes, in order of time.

    A folder has a page in each file, named by its instant (`12.5.txt`), else of the file's own time; a JSONL
    file has `at_s` and `page` in each line. Raises ConfigurationError.
    """
    try:
        found = _of_folder(path) if path.is_dir() else _of_lines(path)
    except (OSError, UnicodeDecodeError) as error:
        problem = error.strerror if isinstance(error, OSError) else "is not UTF-8"
        raise ConfigurationError([f"--scrapes {path}: {problem}"]) from None
    if len(found) < 2:
        raise ConfigurationError([f"--scrapes {path}: holds {len(found)} pages; it takes two at least"])
    return sorted(found, key=lambda page: page.at_s)


def _of_folder(folder: Path) -> list[Page]:
    files = [each for each in sorted(folder.iterdir()) if each.is_file() and not each.name.startswith(".")]
    return [read_page(each.read_text(), _instant_of(each), str(each)) for each in files]


def _instant_of(file: Path) -> float:
    try:
        return float(file.stem)
    except ValueError:
        return file.stat().st_mtime


def _of_lines(file: Path) -> list[Page]:
    decoder = msgspec.json.Decoder(_Scrape)
    pages = []
    for number, line in enumerate(file.read_text().splitlines(), 1):
        try:
            scrape = decoder.decode(line)
        except msgspec.MsgspecError as error:
            raise ConfigurationError(
                [f"--scrapes {file}:{number}: is not a scrape with at_s and page: {error}"]
            ) from None
        pages.append(read_page(scrape.page, scrape.at_s, f"{file}:{number}"))
    return pages


def points_of(pages: Sequence[Page], kv_tokens: int | None = None) -> list[Point]:
    """A point for each pair of neighbours between which the engine was busy and its batch steady.

    `kv_tokens` is for engines that do not tell how large their cache is. Raises ConfigurationError if that is
    not known.
    """
    capacity = kv_tokens or next((page.kv_tokens for page in pages if page.kv_tokens), None)
    if any(page.used_tokens(capacity) is None for page in pages):
        raise ConfigurationError(
            ["the pages do not say how large the KV cache is (vllm:cache_config_info): give --kv-tokens"]
        )
    return split([point for before, after in pairwise(pages) for point in _between(before, after, capacity)])


def _between(before: Page, after: Page, capacity: int | None) -> Iterator[Point]:
    gone_s = after.at_s - before.at_s
    gaps = _more(before, after, "inter_token_latency_seconds_count")
    gaps_s = _more(before, after, "inter_token_latency_seconds_sum")
    running = (before["num_requests_running"], after["num_requests_running"])
    steady = abs(running[1] - running[0]) <= max(STEADY, STEADY_RATIO * max(running))
    undisturbed = _more(before, after, "num_preemptions_total") == 0
    if gone_s <= 0 or gaps < LEAST_GAPS or gaps_s <= 0 or min(running) < 1 or not (steady and undisturbed):
        return
    step_s = gaps_s / gaps
    passes = _more(before, after, "iteration_tokens_total_count")
    sequences = gaps / passes if passes else gaps_s / gone_s
    steps = passes or gone_s / step_s
    blocks = max(before.block_tokens or 1, after.block_tokens or 1)
    used = ((before.used_tokens(capacity) or 0.0) + (after.used_tokens(capacity) or 0.0)) / 2
    # The last block of a sequence is half full, in the mean.
    context = max(used - sum(running) / 2 * (blocks - 1) / 2, 0.0)
    prompts = _more(before, after, "prompt_tokens_total") - _more(before, after, "prompt_tokens_cached_total")
    beside = prompts / steps if prompts / steps >= LEAST_PROMPT_TOKENS else 0.0
    yield Point(
        name=name_of_batch(sequences),
        observation=Observation(
            seconds=step_s,
            steps=1,
            sequences=sequences,
            context_tokens=context,
            prefill_tokens=beside,
        ),
        sequences=sequences,
        context_tokens=context,
    )


def _more(before: Page, after: Page, name: str) -> float:
    """What was counted in between. An engine that was started anew counts from 0: that is less than none."""
    return after[name] - before[name]
