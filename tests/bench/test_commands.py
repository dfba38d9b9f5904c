"""The command as its users meet it: options, output, exit codes, Ctrl-C."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from itertools import islice
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from tests.bench.scripted import Scripted, complete, run, serving, silent, until, whole
from tidegate.bench.commands import bench
from tidegate.bench.options import plan_of, tenants_of
from tidegate.bench.target import Target, first_model
from tidegate.core.errors import ConfigurationError
from tidegate.workload.requests import TenantShare

ONE = [TenantShare("default")]
app = typer.Typer()
app.command()(bench)


async def started(server: Scripted, *options: str) -> asyncio.subprocess.Process:
    """`tidegate bench` as a process."""
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tidegate", "bench", server.url, *options),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "TIDEGATE_API_KEY": "sk-env"},
    )


def test_a_run_as_json_and_as_records(tmp_path: Path) -> None:
    """JSON on stdout, nothing on stderr, a record per request in the file, the key from the environment."""

    async def main() -> None:
        out = tmp_path / "records.jsonl"
        options = "--arrivals constant --rate 50 --for 200ms --output-tokens 4 --ttft 10s --json --seed 5"
        async with serving(complete) as server:
            bench_process = await started(server, *options.split(), "--out", str(out))
            stdout, stderr = await bench_process.communicate()

        assert (bench_process.returncode, stderr) == (0, b"")
        report = json.loads(stdout)
        assert (report["model"], report["seed"], report["url"]) == ("tiny", 5, server.url)
        assert (report["total"]["requests"], report["total"]["ok"]) == (10, 10)
        assert report["total"]["goodput_ratio"] == 1.0
        records = [json.loads(line) for line in out.read_text().splitlines()]
        assert sorted(record["request_id"] for record in records) == list(range(10))
        assert {record["output_tokens"] for record in records} == {4}
        assert {exchange.header(b"authorization") for exchange, _ in server.seen} == {b"Bearer sk-env"}

    run(main())


def test_ctrl_c_prints_what_there_is() -> None:
    """Ctrl-C ends a run early, with its report."""

    async def main() -> None:
        options = "--model tiny --arrivals constant --rate 10 --for 10m"
        async with serving(complete, silent) as server:
            bench_process = await started(server, *options.split())
            await until(lambda: len(server.seen) >= 3)
            bench_process.send_signal(signal.SIGINT)
            stdout, stderr = await bench_process.communicate()

        assert (bench_process.returncode, stderr) == (0, b"")
        assert b"1 ok" in stdout
        assert b"unfinished" in stdout

    run(main())


def test_a_run_without_any_success_fails() -> None:
    """A script notices that nothing worked: exit code 1, with the report all the same."""

    async def main() -> None:
        async with serving(whole(500, {"error": {"message": "out of memory"}})) as server:
            bench_process = await started(
                server, *["--rate", "50", "--for", "100ms", "--arrivals", "constant"]
            )
            stdout, _ = await bench_process.communicate()

        assert bench_process.returncode == 1
        assert b"http_500" in stdout
        assert b"out of memory" in stdout

    run(main())


@pytest.mark.parametrize(
    "status, models, said",
    [
        (200, {"data": []}, "/v1/models lists no model"),
        (200, {"models": 1}, "/v1/models lists no model"),
        (401, {}, "/v1/models answered 401: give a key that it knows"),
        (404, {}, "/v1/models answered 404: is the server up, and the URL right?"),
    ],
)
def test_a_server_that_names_no_model(status: int, models: object, said: str) -> None:
    """Without --model the first listed is asked; if there is none, the error says what to do."""

    async def main() -> None:
        async with serving(complete) as server:
            assert await first_model(server.url + "/v1") == "tiny"
            server.models, server.models_status = models, status
            with pytest.raises(ConfigurationError, match=re.escape(said)):
                await first_model(server.url, "sk")
        with pytest.raises(ConfigurationError, match="no list of models"):
            await first_model(server.url)

    run(main())


@pytest.mark.parametrize(
    "options, said",
    [
        ("--for 30", "--for: '30' is not a duration: write a number and a unit, as in 30s or 30ms"),
        ("--for 0s", "--for is above 0"),
        ("--drain soon", "--drain: 'soon' is not a duration"),
        ("--ttft 1", "--ttft: '1' is not a duration"),
        ("--no-stream --tpot 20ms", "--ttft and --tpot need streams"),
        ("--rate 0", "a rate is above 0 requests per second, not 0"),
        ("--rate nan", "a rate is above 0 requests per second, not nan"),
        ("--time-scale 2", "--from and --time-scale are for traces"),
        ("--arrivals azure-conv --rate 3", "--rate is for poisson and constant"),
        ("--arrivals azure-conv --time-scale 0", "--time-scale is above 0, not 0"),
        ("--arrivals azure-conv --from 5h", "nothing arrives where --from and --for point"),
        ("--arrivals nowhere.csv", "trace nowhere.csv: "),
        ("--prompt-tokens 0", "at least 1 prompt token, not 0"),
        ("--arrivals azure-conv --output-tokens 0", "at least 1 output token, not 0"),
        ("--tenants a=1,a=2", "--tenants: 'a' is no tenant, or stands twice"),
        ("--tenants =1", "--tenants: '' is no tenant"),
        ("--tenants a*x=1", "--tenants: 'x' is not a weight"),
        ("--tenants a*0=1", "tenant 'a': a weight is above 0, not 0"),
        ("--concurrency-limit 99999999", "99999999 open requests need 100000063 open files"),
        ("--out /nowhere/at/all", "--out /nowhere/at/all: No such file or directory"),
    ],
)
def test_options_that_cannot_be(options: str, said: str) -> None:
    """Each is refused before anything is sent, with exit code 2 and a line that names it."""
    result = CliRunner().invoke(app, ["http://127.0.0.1:1", "--model", "tiny", *options.split()])

    assert result.exit_code == 2, result.output
    assert said in result.stderr


@pytest.mark.parametrize("text", ["a=sk-secret,a=sk-secret", "=sk-secret", "a*x=sk-secret", "a*0=sk-secret"])
def test_no_message_repeats_a_key(text: str) -> None:
    """What is wrong with the tenants is said without what their keys are."""
    with pytest.raises(ConfigurationError) as caught:
        tenants_of(text, "")

    assert "secret" not in str(caught.value)
    assert "secret" not in repr(Target(url="http://a", model="m", keys={"a": "sk-secret"}))


def test_tenants_with_keys_and_weights() -> None:
    """`name=key`, or `name*weight=key`; a key may hold anything but a comma."""
    shares, keys = tenants_of("gold*3=sk-1=, free=sk*2,none=", "ignored")

    assert shares == [TenantShare("gold", 3.0), TenantShare("free"), TenantShare("none")]
    assert keys == {"gold": "sk-1=", "free": "sk*2", "none": ""}
    assert tenants_of("", "sk") == (ONE, {"default": "sk"})
    assert tenants_of("", "") == (ONE, {})


def test_a_trace_is_replayed_from_its_middle_and_faster() -> None:
    """--from skips, --time-scale speeds up, --for is the run's; lengths are the trace's unless given."""
    plain = list(plan_of("azure-conv", None, 1, tenants=ONE, for_s=60.0, from_s=30.0))
    fast = list(plan_of("azure-conv", None, 1, tenants=ONE, for_s=30.0, from_s=30.0, time_scale=2.0))
    fixed = list(plan_of("azure-conv", None, 1, tenants=ONE, for_s=60.0, from_s=30.0, output_tokens=9))

    assert [r.prompt_tokens for r in fast] == [r.prompt_tokens for r in plain]
    assert [r.at_s for r in fast] == pytest.approx([r.at_s / 2 for r in plain])
    assert {r.output_tokens for r in fixed} == {9}
    assert [r.prompt_tokens for r in fixed] == [r.prompt_tokens for r in plain]
    assert len({r.output_tokens for r in plain}) > 9


def test_made_up_load_has_defaults() -> None:
    """Five requests per second of 512 and 128 tokens, Poisson or constant."""
    constant = list(plan_of("constant", None, 1, tenants=ONE, for_s=1.0))
    poisson = list(islice(plan_of("poisson", 1000.0, 1, tenants=ONE, for_s=1.0, prompt_tokens=7), 3))

    assert [(r.at_s, r.prompt_tokens, r.output_tokens) for r in constant] == [
        (number / 5, 512, 128) for number in range(5)
    ]
    assert {(r.prompt_tokens, r.output_tokens) for r in poisson} == {(7, 128)}
    with pytest.raises(ConfigurationError, match="above 0"):
        plan_of("poisson", -1.0, 1, tenants=ONE, for_s=1.0)
