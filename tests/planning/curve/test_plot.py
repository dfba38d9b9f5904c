"""How does a load-latency curve look at a terminal, with its lines and without?"""

from __future__ import annotations

from io import BytesIO, TextIOWrapper
from math import nan

import msgspec
import pytest
from rich.console import Console

from tidegate.core.records import Budgets
from tidegate.plan.answer import CurvePoint, LoadCurve, Percentiles, UsersOfCurve
from tidegate.plan.ask import Terms
from tidegate.planning.curve.plot import curve_told
from tidegate.planning.curve.words import curve_table, is_flat, percentiles_of, places, sentence

TERMS = Terms(budgets=Budgets(ttft_s=1.0))
RATES = (2.0, 4.0, 5.0, 6.0, 7.0, 8.0, 8.5, 9.0, 9.5)


def percentiles(median: float, tail: float) -> Percentiles:
    """P99 is twice P95."""
    return Percentiles(mean=median, p50=median, p95=tail, p99=2 * tail, at_percentile=tail)


def curve(**changes: object) -> LoadCurve:
    """Of a fleet that sustains 10 requests/s, as M/M/1: 0.1 s x 1 / (1 - utilisation) at P95."""
    points = tuple(
        CurvePoint(
            utilisation=rate / 10,
            requests_per_s=rate,
            wait_s=percentiles(0, 0),
            ttft_s=percentiles(0.1, 0.1 / (1 - rate / 10)),
            tpot_s=percentiles(0.02, 0.02),
            e2e_s=percentiles(1, 2),
            marks={5.0: ("asked",), 8.0: ("knee",), 9.0: ("budgets",)}.get(rate, ()),  # type: ignore[arg-type]
        )
        for rate in RATES
    )
    values: dict[str, object] = {
        "replicas": 2,
        "percentile": 0.95,
        "sustained_per_s": 10.0,
        "asked_per_s": 5.0,
        "knee_per_s": 8.0,
        "held_per_s": 9.0,
        "budgeted": True,
        "may_wait": True,
        "points": points,
    }
    return LoadCurve(**(values | changes))  # type: ignore[arg-type]


def of_users() -> LoadCurve:
    """The same for so many users, of whom 190 meet most."""
    users = UsersOfCurve(asked=100, knee=160, held=180, most=200)
    points = tuple(
        msgspec.structs.replace(point, users=round(20 * point.requests_per_s)) for point in curve().points
    )
    return msgspec.structs.replace(curve(), points=points, users=users)


def shown(width: int, encoding: str = "utf-8") -> list[str]:
    """Its lines, without the blanks at their ends."""
    told = BytesIO()
    file = TextIOWrapper(told, encoding=encoding)
    Console(file=file, width=width, highlight=False).print(curve_told(curve(), TERMS))
    file.flush()
    return [line.rstrip() for line in told.getvalue().decode().splitlines()]


def test_a_curve_over_users() -> None:
    """Its axis, its marks and its table are of their number, and rates stand beside it."""
    assert sentence(of_users()) == (
        "2 replicas, all up, sustain 10 requests/s. TTFT P95 turns up at 160 users, the knee; every budget "
        "holds at P95 up to 180 users (9 requests/s). The plan is for 100 users (5 requests/s)."
    )
    assert places(of_users()) == [("plan", 100.0), ("knee", 160)]
    rows = [str(cell) for cell in curve_table(of_users()).columns[0].cells]
    assert rows == ["40", "100", "120", "160", "170", "180"]

    told = BytesIO()
    file = TextIOWrapper(told, encoding="utf-8")
    Console(file=file, width=60, highlight=False).print(curve_told(of_users(), TERMS))
    file.flush()
    lines = [line.split() for line in told.getvalue().decode().splitlines()]
    assert ["0", "users", "40", "80", "120", "160", "200"] in lines


SUSTAIN = "2 replicas, all up, sustain 10 requests/s."
KNEE = "TTFT P95 turns up at 8 requests/s (80%), the knee"
PLAN = "The plan is for 5 requests/s (50%)."


@pytest.mark.parametrize(
    "changes, text",
    [
        ({}, f"{SUSTAIN} {KNEE}; every budget holds at P95 up to 9 requests/s (90%). {PLAN}"),
        ({"held_per_s": 0.0}, f"{SUSTAIN} {KNEE}; every budget holds at P95 at no rate. {PLAN}"),
        (
            {"may_wait": False},
            f"{SUSTAIN} {KNEE}; every budget holds, and nobody waits, at P95 up to "
            f"9 requests/s (90%). {PLAN}",
        ),
        (
            {"replicas": 1, "knee_per_s": None, "budgeted": False, "percentile": 0.9},
            "1 replica, all up, sustains 10 requests/s. TTFT P90 has no knee; "
            f"nobody waits at P90 up to 9 requests/s (90%). {PLAN}",
        ),
    ],
)
def test_sentence(changes: dict[str, object], text: str) -> None:
    """What all sustain, the knee, the budgets and the load."""
    assert sentence(curve(**changes)) == text


GOLDEN = """\
TTFT (log)   . P50   o P95   x P99   -- budget 1s   : plan
| knee
        |                         :              |      xx
        |                         :              |     x
     2s +                         :              |  xxx oo
     1s +----------------------------------------xxx--oo----
        |                         :         xxxxx| ooo
  500ms +                         : xxxxxxxx   ooooo
        |              xxxxxxxxxxxxx     oooooo  |
  200ms +          xxxx         ooooooooo        |
        |          ooooooooooooo  :              |
  100ms +          .......................................
        +---------------------------------------------------
        0%        20%       40%       60%       80%     100%
        0/s        2         4         6         8        10
"""


@pytest.mark.parametrize("width", [40, 60, 80, 120])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_it_is_never_wider_than_the_terminal(width: int, encoding: str) -> None:
    """And in ASCII where that is all there is."""
    lines = shown(width, encoding)

    assert max(map(len, lines)) <= width
    assert encoding == "utf-8" or "".join(lines).isascii()


def test_the_plot_in_ascii() -> None:
    """Percentiles, the plan's load, the knee, and the budget across."""
    lines = shown(60, "ascii")
    start = next(place for place, line in enumerate(lines) if line.startswith("TTFT"))

    assert "\n".join(lines[start : start + 15]) == GOLDEN.rstrip("\n")


def test_what_is_the_same_everywhere_is_not_drawn() -> None:
    """A pace that is given has no curve, nor has that of answers of one token, which have none."""
    assert not any(line.startswith("TPOT  ") for line in shown(80))

    none = [msgspec.structs.replace(point, tpot_s=percentiles(nan, nan * 1)) for point in curve().points]
    assert is_flat(curve(points=tuple(none)), "TPOT")
    assert not is_flat(curve(points=tuple(none)), "TTFT")


@pytest.mark.parametrize(
    "percentile, names",
    [
        (0.95, ("P50", "P95", "P99")),
        (0.9, ("P50", "P90", "P99")),
        (0.99, ("P50", "P95", "P99")),
        (0.5, ("P50", "P95", "P99")),
        (0.999, ("P50", "P99", "P99.9")),
    ],
)
def test_the_percentile_that_is_asked_for_is_among_three(percentile: float, names: tuple[str, ...]) -> None:
    """In their order."""
    assert percentiles_of(percentile) == names


def test_the_table_has_every_marked_point() -> None:
    """Between them only round utilisations, until queues begin."""
    table = curve_table(curve())

    used, marks = [*table.columns[0].cells], [*table.columns[-1].cells]
    assert used == ["20%", "40%", "50%", "60%", "70%", "80%", "85%", "90%", "95%"]
    assert marks == ["", "", "plan", "", "", "knee", "", "budgets", ""]
