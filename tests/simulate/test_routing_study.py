"""The command of docs/guides/routing-study.md is one, and shows what the guide says that it shows."""

from __future__ import annotations

import json
import re
import shlex
from typing import Any

from typer.testing import CliRunner

from tests.server_process import REPOSITORY
from tests.shared_data import shared
from tidegate.cli import command_line

POOL = "llama-3.1-70b"
TRACE = "mooncake-fast25/conversation_trace.jsonl.gz"


def commands() -> list[list[str]]:
    """Those of the guide, without `tidegate`."""
    guide = (REPOSITORY / "docs/guides/routing-study.md").read_text()
    blocks = re.findall(r"```sh\ntidegate (.*?)\n```", guide, re.DOTALL)
    return [shlex.split(block.replace("\\\n", "")) for block in blocks]


def points(command: list[str], *more: str) -> list[dict[str, Any]]:
    """What a command of the guide gives, with the trace where it is kept."""
    place = {"conversation_trace.jsonl": str(shared(TRACE))}
    arguments = [place.get(each, each) for each in command]
    arguments = [str(REPOSITORY / each) if each.startswith("docs/") else each for each in arguments]
    result = CliRunner().invoke(command_line(), [*arguments, *more, "--jobs", "1", "--json"])
    assert result.exit_code == 0, result.stderr
    found: list[dict[str, Any]] = json.loads(result.stdout)["points"]
    return found


def test_affinity_finds_more_of_what_was_computed_at_every_load() -> None:
    """The first seconds of each of the nine runs: more than either of the others, at each of three loads."""
    study, _ = commands()
    hits = {
        (point["set"]["routing"], point["set"]["time_scale"]): point["engines"][POOL]["prefix_hit_ratio"][
            "value"
        ]
        for point in points(study, "--for", "40s")
    }

    assert len(hits) == 9
    for load in ("2", "4", "6"):
        others = max(hits["round_robin", load], hits["least_tokens", load])
        assert hits["prefix_affinity", load] > 1.1 * others


def test_the_settings_can_be_swept() -> None:
    """The guide's other command has a point for each share that explores."""
    _, sweep = commands()

    assert [point["figures"]["total"]["requests"] for point in points(sweep, "--requests", "50")] == [
        50,
        50,
        50,
    ]
