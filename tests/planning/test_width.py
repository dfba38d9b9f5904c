"""Is every table of a plan whole where a terminal is narrow?"""

from __future__ import annotations

import re
from collections import Counter

import pytest
from typer.testing import CliRunner

from tests.server_process import REPOSITORY
from tidegate.cli import command_line

APP = command_line(["plan", "catalog"])
NARROW, WIDE = 80, 400
LONGEST_WORD = 20
"""Of a word that must not be broken: no figure and no name of a column is longer."""
BY_HAND = "plan --throughput 2000 --output 500 --tpot 20ms"
LARGE = "--model Llama-3.1-70B --input 2000 --output 500 --ttft 1s --tpot 40ms"
EXAMPLES = "docs/examples"


def printed(command: str, width: int, monkeypatch: pytest.MonkeyPatch) -> str:
    """By a terminal that is so wide."""
    monkeypatch.chdir(REPOSITORY)
    result = CliRunner().invoke(APP, command.split(), env={"COLUMNS": str(width)})
    assert result.exit_code == 0, result.stderr
    return result.stdout


def words(text: str) -> Counter[str]:
    """Short enough not to be broken, in any order: where cells fold, lines of columns mix."""
    found = re.split(r"[\s─]+", text)
    return Counter(word for word in found if 0 < len(word) <= LONGEST_WORD)


@pytest.mark.parametrize(
    "command",
    [
        f"{BY_HAND} --qps 10",
        f"{BY_HAND} --qps 123456 --percentile 99.9",
        f"{BY_HAND} --replicas 4",
        "plan --profile h100-8b --trace azure-conv --ttft 1s --tpot 20ms --schedule",
        f"plan {LARGE} --gpu h100-sxm --tp 4 --quant fp8 --qps 8 --tenants acme=2,umbrella-corporation=1",
        f"plan {LARGE} --gpu h100-sxm --tp 4 --quant fp8 --users 4000",
        f"plan {LARGE} --gpu h100-sxm,rtx-pro-6000,b300-sxm --tp 8 --qps 800",
        f"plan {LARGE} --gpu h100-sxm --tp 4 --disaggregated --link 400Gb --qps 2",
        f"plan {LARGE} --gpu rtx-pro-6000 --tp 8 --disaggregated --link 4Tb --qps 200",
        "plan --model Llama-3.1-8B --gpu h100-sxm --offline 10000000 --input 6000 --output 300 --within 8h",
        f"plan compare {EXAMPLES}/minimal.yaml {EXAMPLES}/simulated.yaml --qps 2 --input 1000 --output 200",
        "catalog list",
        "catalog show h100-sxm",
        "catalog show rtx-pro-6000",
        "catalog show DeepSeek-V3",
    ],
)
def test_nothing_is_cut_at_80_columns(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No ellipsis, no line that is longer, and every word and figure whole, as on a wide terminal."""
    narrow, wide = (printed(command, width, monkeypatch) for width in (NARROW, WIDE))

    assert "…" not in narrow + wide
    assert [line for line in narrow.splitlines() if len(line) > NARROW] == []
    assert words(wide) - words(narrow) == Counter()
