"""What is said of the planner's accuracy: a table for a terminal, a section of the page."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill
from typing import Any

import msgspec
from rich.table import Table

from accuracy.operators import report as operators
from accuracy.planner.results import Group, Planner
from accuracy.planner.rows import CONFIGURATION
from accuracy.planner.scoring import Score

COLUMNS = {
    "tpot_median": "TPOT median",
    "tpot_mean": "TPOT mean",
    "ttft_median": "TTFT median",
    "ttft_mean": "TTFT mean",
}

_NAMES = fill(", ".join(f"`{name}`" for name in CONFIGURATION), 106)

HEAD = f"""\
# How accurate is the planner?

Closed forms (`tidegate.perf.roofline` for steps, `tidegate.plan.closed.loop` for clients) against measured
deployments (`../shared/data/engine-e2e-measured`; its README says what is wrong with the rows). Errors are
absolute and relative, of TPOT and of TTFT, median and mean over rows; a bar in brackets must be kept, and
`make accuracy` fails where one is not.

**Rows.** Where configuration, load and, to three digits, both values are those of a row before, a row is left
out. Some dumps count devices twice (`tp4 ep4` as tp 16; on two devices with data-parallel attention, tp 2,
attention_dp 2 and ep 4): they are counted once, as other dumps have the same measurements. DeepSeek on GB200
as *aggregated* on 20 to 72 devices is what prefill and decode have together, and left out. Judged are
aggregated rows with a measured TTFT below 3 s.

**Curves.** A curve is the values of these columns, in this order, with `|` between them:
{_NAMES}.
It is held out if its SHA-256, read as a number, is below 3 modulo 10. Version, image and day are no part of
it, so that no version of a curve is fitted while another is judged.

**What the columns leave out.** Caches are taken to be in fp8 where weights are in fp8 or fp4. The dumps'
clients send ten requests each, of 0.8 to 1 of the nominal lengths, and some engines deliver every 20th step
(InferenceMAX's README and scripts, read 2026-11-30); lengths are taken as nominal here all the same, as a
reader of the columns would, and `alone` and `steps` below stand for the rest. Other rows, of one lab on
H100 with outputs of 128 to 1,024 tokens, show clients that keep in step, which those do whose requests are
exactly equal: groups end together, ask together, and wait for the group before. Which lengths vary is not
recorded, but those with long outputs do: `behind` prompts are waited for up to about `in_step_tokens` of
output. Speculative decoding is not recorded: rows of DeepSeek-R1 in one configuration differ by 2.
"""

FLOOR = """\
The measurements' own floor, by points that were measured more than once (what is left after repeats were left
out), against the median of each point:
"""

CALIBRATED = """\
## Calibrated for a GPU and an engine

Four factors (of what is read, of what is computed, of what layers and steps take besides, of waiting) are
fitted to a group's dense curves that are not held out, and judged by those that are.
"""

LEFT_OUT = """\
## Without a model, without a GPU

The constants are fitted to all judged rows (every second one, ten steps) but those of one architecture or of
one GPU, and judged by these. What only one GPU had (bf16 and SGLang on H100) rests on priors then; priors are
what operators measured alone say (`accuracy/planner/fitting.py`). DeepSeek-R1 and V3 are one architecture.
"""

FIT = """\
## The constants

`python -m accuracy.planner --fit` fits them to the rows that are judged and not held out, and prints them
as `tidegate.perf.efficiencies` has them. They are shared by all models and GPUs; an engine's software has
its own layer overheads and waiting. What a product takes that computes nothing, what its inputs and outputs
move at in 16 bits, `alone` and `together` are not fitted but known: from operators, from InferenceMAX, from
how engines schedule. (Left free, `together` of SGLang came out as 1.01: its clients all stay together.)
"""

FOOT = """\
## What is missing, and what was tried

- TTFT rests on what benchmarks do not record: how many requests each client sends, whether lengths vary,
  how often an engine looks for requests. Rows of TensorRT-LLM with 1024/1024 tokens on 1, 2 and 4 GPUs have
  three times the TTFT of the same with 1024/8192, about 20 steps more, and those of Llama-3.1-8B fall with
  more clients and jump at 64 or 128; no closed form meets both.
- How TTFT was found, by cross-validation over curves in the rows that may be fitted (medians; in brackets
  means): with waiting in steps that include the prompts of others and a factor of 0.63 on a request's own
  prompt dense rows were met to 24.0 % (30 %) and experts to 25.3 % (46 %); with prompts right before where
  clients keep in step 19.0 % (25 %) and 24.3 % (40 %); with clients of SGLang together only there,
  activations, launches and a request's own prompt at 0.9 of its length 17.7 % (25 %) and 24.7 % (37 %). A
  steady queue before prompts hardly occurs in closed loops (`queue` is a twentieth of what it is for random
  arrivals).
- Tried for steps, and no better: shares by GPU from operator tables (of products and attention, of links,
  of experts: TTFT of a GPU that was left out is 1 to 2 points better, TPOT 0.3 to 1.7 worse); an overhead
  per layer of a prompt's steps; waiting in steps without prompts; other robust losses.
- gpt-oss-120b is the model that the others say least about: weights in MXFP4 are computed in other ways on
  each GPU and by each engine. With a share of the peak of its own for them, from tables, it was met to 31 %
  instead of 34 % when left out, and others worse.
- GB200 has 17 dense rows, of which 15 are of one lab: there TPOT of Qwen3-32B on two GPUs is 27 to 52 ms
  with 1 to 64 clients, up and down, and 8 ms for one client in another row. An engine without captured
  graphs would look so.
- On four B200 DeepSeek in fp8 leaves room for 4 or 5 sequences of 9K at 0.9 of the memory; measured were 8
  to 16. Whoever measured gave the engine more. These rows are what makes the mean TTFT of experts large.
- Rows with a TTFT of 3 s and more mostly wait for a limit that the columns do not have. Those that wait for
  KV memory by the planner's count are told so (`binding: kv_memory`), and none is called impossible.
- Disaggregated rows: the columns have one worker of each where there were several, no data-parallel
  attention, and no speculation. DeepSeek-V3 rows, which seem to have none of it, are met best.
"""


def percent(error: float, bar: float | None = None) -> str:
    """4.3 % (12 %)"""
    return f"{100 * error:.1f} %" + (f" ({100 * bar:.0f} %)" if bar is not None else "")


def table(planner: Planner) -> Table:
    """For a terminal."""
    shown = Table("rows", "n", *COLUMNS.values(), title="The planner against measured deployments")
    for group in [*planner.groups, *(each.group for each in planner.calibrations), *planner.left_out]:
        missed = group.missed()
        cells = [
            f"[{'red' if name in missed else 'green'}]{text}[/]" if name in group.bars else text
            for name, text in zip(COLUMNS, _cells(group), strict=True)
        ]
        shown.add_row(group.name, str(group.score.rows), *cells)
    return shown


def section(planner: Planner) -> str:
    """Of docs/accuracy.md."""
    calibrations = [
        [
            each.group.name,
            str(each.fitted_rows),
            str(each.group.score.rows),
            *_cells(each.group),
            ", ".join(f"{name} {factor:.2f}" for name, factor in each.factors.items()),
        ]
        for each in planner.calibrations
    ]
    floor = Group(name="repeated points", score=planner.floor)
    constants = [[f"`{name}`", f"{value:.3g}"] for name, value in planner.constants.items()]
    queued = (
        f"{planner.queued} aggregated rows have a TTFT of 3 s and more; {planner.queued_for_memory} of them\n"
        f"wait for KV memory by the planner's count. Of all aggregated rows {planner.infeasible} are called\n"
        f"impossible. {planner.unfit} disaggregated rows count fewer devices than hold the weights, and are\n"
        "left out.\n"
    )
    calibrated = ["group", "fitted", "judged", *COLUMNS.values(), "factors"]
    return "\n".join(
        [
            HEAD,
            "## With what ships\n",
            _groups(planner.groups),
            queued,
            FLOOR,
            _groups([floor]),
            CALIBRATED,
            _markdown(calibrated, calibrations),
            LEFT_OUT,
            _groups(planner.left_out),
            FIT,
            _markdown(["constant", "value"], constants),
            operators.section(planner.operators, planner.ratios),
            FOOT,
        ]
    )


def builtins(planner: Planner) -> dict[str, Any]:
    """Of docs/accuracy.json."""
    return {**msgspec.to_builtins(planner), "missed": planner.missed()}


def _cells(group: Group) -> list[str]:
    return [percent(getattr(group.score, name), group.bars.get(name)) for name in COLUMNS]


def _groups(groups: Sequence[Group]) -> str:
    rows = [[group.name, *_counts(group.score), *_cells(group)] for group in groups]
    return _markdown(["rows", "n", "curves", *COLUMNS.values()], rows)


def _counts(score: Score) -> list[str]:
    return [str(score.rows), str(score.curves)]


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"
