"""The demos as their users run them: a process, a pipe, a signal."""

from __future__ import annotations

import json
import shlex
import signal
import socket
import subprocess
import urllib.request

import pytest
from typer.testing import CliRunner

from tests.demo.running import demo, ended
from tidegate.demo.commands import demo_app


def test_a_demo_without_a_terminal() -> None:
    """Lines while it runs, a curl line that works as printed, a table, and an end by itself with 0."""
    with demo("--for", "4s", "--no-live") as process:
        answer = _curl(_printed_curl(process))
        out = ended(process)

    assert process.returncode == 0, out
    (yours,) = (line.split() for line in out.splitlines() if line.startswith("you "))
    assert yours[1] == "1", out
    assert answer["choices"][0]["message"]["content"]
    assert "requests/s; running" in out
    for word in ("chat", "reports", "interactive", "batch", "TTFT P95", "noisy-neighbour"):
        assert word in out, out
    assert "HELD" in out or "MISSED" in out
    assert "Traceback" not in out


def test_a_demo_is_over_when_told() -> None:
    """The first Ctrl-C ends it with its table, and with 0."""
    with demo("--no-live") as process:
        _printed_curl(process)
        process.send_signal(signal.SIGINT)
        out = ended(process)

    assert process.returncode == 0, out
    assert "seed 0" in out
    assert "Traceback" not in out


def test_the_port_is_taken() -> None:
    """It says so, and on which port it listens instead: on the screen, or beside the JSON for programs."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for options in (("--no-live",), ("--json",)):
            with demo("--for", "1s", "--port", str(port), *options) as process:
                out = ended(process)
            assert process.returncode == 0, out
            (said,) = (line for line in out.splitlines() if "is taken" in line)
            assert f"port {port} is taken; the gateway is at http://127.0.0.1:" in said
            assert said.rpartition(":")[2] != str(port)


def test_its_figures_for_programs() -> None:
    """With --json there is nothing but JSON, with both tenants and both classes."""
    with demo("--for", "1s", "--json", "--seed", "7", "--port", "0") as process:
        found = json.loads(ended(process))

    assert process.returncode == 0
    assert found["seed"] == 7
    assert [each["name"] for each in found["tenants"]] == ["chat", "reports", "you"]
    assert [each["priority"] for each in found["budgets"]] == ["interactive", "batch"]
    assert found["unfinished"] + sum(each["requests"] for each in found["tenants"]) > 0


def test_a_small_noisy_neighbour() -> None:
    """Token limits stop the noisy one and nobody else, and request limits do not.

    Who is slowed down by how much is a matter of time, and of this machine's: test_simulating has that.
    """
    with demo("noisy-neighbour", "--for", "24s", "--speed", "8", "--json") as process:
        found = json.loads(ended(process))

    quota = found["quota"]
    assert process.returncode in (0, 1)  # 1: on a busy machine the baseline itself may waver
    assert found["complete"]
    assert min(found["slowdown_by_requests"], found["slowdown_by_tokens"], found["quota_ratio"]) > 0
    assert quota["tokens_per_minute"] >= quota["equal_share_tokens_per_minute"]
    assert found["baseline"]["others"]["requests"] == found["by_tokens"]["others"]["requests"]
    assert found["by_tokens"]["others"]["failed"] == {}
    assert list(found["by_tokens"]["noisy"]["failed"]) == ["token_quota_exceeded"]
    assert found["by_requests"]["noisy"]["tokens"] > found["by_tokens"]["noisy"]["tokens"]


def test_a_noisy_neighbour_simulated() -> None:
    """The table of the live run without one: at once, and with 0 since all is as promised."""
    result = CliRunner().invoke(demo_app, ["noisy-neighbour", "--simulated", "--for", "60s"])

    assert result.exit_code == 0, result.output
    for word in ("request limits", "TTFT P50", "simulated gateways", "Limit tokens, not requests."):
        assert word in " ".join(result.output.split())


def test_a_small_noisy_neighbour_played_and_simulated() -> None:
    """Three runs, each as clients, the gateway and the simulation tell it, for programs."""
    with demo("noisy-neighbour", "--for", "8s", "--speed", "8", "--both", "--json") as process:
        found = json.loads(ended(process))

    assert process.returncode in (0, 1)  # 1: so few requests on a busy machine may say anything
    assert [run["rule"] for run in found["runs"]] == ["no noisy tenant", "request limits", "token limits"]
    for run in found["runs"]:
        assert set(run["differences"]) == {"mean", "p50", "p95"}
        assert run["clients"]["ttft_s"]["count"] == run["gateway"]["ttft_s"]["count"]
        assert run["simulated"]["ttft_s"]["count"] == 10 * run["gateway"]["ttft_s"]["count"]
    assert found["round_trip_s"]["count"] > 0
    assert found["live"]["by_tokens"]["others"]["failed"] == {}


@pytest.mark.parametrize(
    "options, named",
    [
        (["--for", "soon"], "--for"),
        (["--for", "0s"], "--for"),
        (["noisy-neighbour", "--for", "0s"], "--for"),
        (["noisy-neighbour", "--speed", "inf"], "speed"),
        (["noisy-neighbour", "--speed", "nan"], "speed"),
        (["noisy-neighbour", "--speed", "nan", "--simulated"], "speed"),
        (["noisy-neighbour", "--both", "--simulated"], "--both"),
    ],
)
def test_what_cannot_be(options: list[str], named: str) -> None:
    """A duration or speed that is none is refused before anything starts, by name."""
    result = CliRunner().invoke(demo_app, options)

    assert result.exit_code == 2
    assert named in result.output


def _printed_curl(process: subprocess.Popen[str]) -> list[str]:
    """The words of the curl line that a demo prints first."""
    assert process.stdout is not None
    first = process.stdout.readline()
    assert first.startswith("curl "), first
    return shlex.split(first.removesuffix("\\\n") + process.stdout.readline())


def _curl(words: list[str]) -> dict[str, list[dict[str, dict[str, str]]]]:
    """What curl would do: POST the data, with its own content type."""
    program, address, h, header, d, data = words
    assert (program, h, d) == ("curl", "-H", "-d")
    name, _, value = header.partition(": ")
    request = urllib.request.Request(f"http://{address}", data.encode(), {name: value})
    with urllib.request.urlopen(request, timeout=30) as response:
        found: dict[str, list[dict[str, dict[str, str]]]] = json.load(response)
    return found
