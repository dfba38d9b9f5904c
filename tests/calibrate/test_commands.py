"""The command as its users meet it: an engine over loopback, files, what is printed and what is refused."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import sys
from pathlib import Path

import msgspec
import pytest
import typer
from typer.testing import CliRunner

from tests.bench.scripted import DONE, complete, delta, run, serving, stream, until, usage, whole
from tests.calibrate.test_files import records_in, written
from tests.calibrate.test_files import served as served_run
from tests.emulator.inside import Inside, served
from tests.server_process import free_port
from tidegate.bench.load import run_load
from tidegate.bench.target import Target
from tidegate.calibrate import sources
from tidegate.calibrate.commands import calibrate
from tidegate.calibrate.sources import Asked, of_engine
from tidegate.calibrate.told import Told
from tidegate.config.profiles import read_profile
from tidegate.core.curve import Linear
from tidegate.core.errors import ConfigurationError
from tidegate.emulator.replica_server import Options
from tidegate.planning.commands import plan_app
from tidegate.sim.profiles import Profile
from tidegate.sim.settings import ReplicaSettings
from tidegate.simulate.commands import simulate
from tidegate.workload.requests import PlannedRequest

PROFILE = Profile(
    curve=Linear(
        a_s=5e-3,
        b_s_per_sequence=0.5e-3,
        c_s_per_context_token=0.5e-6,
        d_s_per_prefill_token=50e-6,
        e_s_per_prefill_token_squared=5e-9,
    ),
    replica=ReplicaSettings(max_num_seqs=4, max_batched_tokens=2048, kv_tokens=32_768, context_tokens=8192),
)
app = typer.Typer()
app.command()(calibrate)


def called(*options: str | Path) -> tuple[int, str, str]:
    """Exit code, stdout and stderr."""
    result = CliRunner().invoke(app, [str(each) for each in options], env={"COLUMNS": "200"})
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


def test_an_emulated_engine(tmp_path: Path) -> None:
    """From an engine whose curve is known to a profile file of the same, over loopback, in real time.

    How exactly is what tests in virtual time hold; here a busy machine delays what it likes.
    """
    out = tmp_path / "mine.yaml"
    with served(PROFILE, Options(model="m")) as inside:
        code, stdout, stderr = called("--url", inside.url + "/v1", "--for", "6s", "--json", "--out", out)

    assert (code, stderr) == (0, "")
    profile, report = read_profile(out), json.loads(stdout)
    assert isinstance(profile.curve, Linear)
    assert isinstance(PROFILE.curve, Linear)
    for decodes, context, chunks in [
        (1, 100, ()),
        (4, 400, ()),
        (4, 10_000, ()),
        (2, 1000, ((2000, 0),)),
    ]:
        predicted = profile.curve.step_s(decodes, context, chunks)
        assert predicted == pytest.approx(PROFILE.curve.step_s(decodes, context, chunks), rel=0.3)
    assert profile.curve.a_s == pytest.approx(PROFILE.curve.a_s, rel=0.25)
    # What the engine tells is taken over, its seats are found out, and its token budget is assumed.
    assert profile.replica == msgspec.structs.replace(PROFILE.replica, max_batched_tokens=2048)
    measured = profile.measured
    assert measured is not None
    assert measured.assumed == ("max_batched_tokens",)
    assert (measured.source, measured.sequences.least) == (f"m at {inside.url}/v1", 1)
    assert report["profile"]["curve"]["a_s"] == profile.curve.a_s
    assert report["held_out_error_ratio"] == measured.held_out_error_ratio
    assert report["held_out_error_ratio"] < 0.4
    assert {row["held_out"] for row in report["rows"]} == {True, False}


def test_an_engine_that_is_only_watched(tmp_path: Path) -> None:
    """With --watch nothing is asked of it but its metrics: an idle one has too little to show."""
    out = tmp_path / "mine.yaml"
    with served(PROFILE, Options(model="m")) as inside:
        code, _, stderr = called("--url", inside.url, "--watch", "--for", "2s", "--out", out)
        asked = inside.replica(lambda replica: replica.counters.steps)

    assert (code, asked) == (2, 0)
    assert re.search(
        "0 of [12] intervals between scrapes had a steady batch, and it takes 8: scrape a busy", stderr
    )
    assert not out.exists()


def test_an_engine_at_work_that_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    """While others use it, its pages tell the steps: near to the curve, and with the size of its cache."""
    monkeypatch.setattr(sources, "WATCH_EVERY_S", 0.2)

    async def main(url: str) -> sources.Found:
        plan = [
            PlannedRequest(at_s=index * 0.15, prompt_tokens=50 + 400 * (index % 3), output_tokens=60)
            for index in range(24)
        ]
        asked = Asked(url=url, model="m", api_key="", for_s=3.5, seed=None, watch=True)
        load = asyncio.create_task(run_load(Target(url=url, model="m"), plan))
        found = await of_engine(asked, Told())
        await load
        return found

    with served(PROFILE, Options(model="m")) as inside:
        found = asyncio.run(main(inside.url))

    assert len(found.points) >= 8
    assert found.told.kv_tokens == PROFILE.replica.kv_tokens
    for point in found.points:
        work = point.observation
        chunks = ((round(work.prefill_tokens), 0),) if work.prefill_tokens >= 1 else ()
        expected = PROFILE.curve.step_s(round(point.sequences), point.context_tokens, chunks)
        assert point.step_s == pytest.approx(expected, rel=0.5)


def test_ctrl_c_ends_it_with_what_there_is(tmp_path: Path) -> None:
    """A run that is interrupted fits what it has; before it has enough it says so, and leaves no file."""
    steady = msgspec.structs.replace(PROFILE, curve=Linear(a_s=1e-3))

    async def main(inside: Inside, steps: int) -> tuple[int | None, str]:
        options = ["--url", inside.url, "--for", "40s", "--out", str(tmp_path / "p.yaml")]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tidegate", "calibrate", *options),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        await until(lambda: inside.replica(lambda replica: replica.counters.steps) > steps)
        process.send_signal(signal.SIGINT)
        _, stderr = await process.communicate()
        return process.returncode, stderr.decode()

    for steps, ends in [(5, 2), (3000, 0)]:  # that takes half as many, where nothing is delayed
        with served(steady, Options(model="m")) as inside:
            code, stderr = asyncio.run(main(inside, steps))
        assert code == ends, stderr
        assert "Traceback" not in stderr
        if code:
            assert "it takes 8" in stderr
            assert [*tmp_path.iterdir()] == []
        else:
            assert read_profile(tmp_path / "p.yaml").measured is not None


def test_records_in_words(tmp_path: Path) -> None:
    """A sentence, the points, the constants, what was assumed, and where the profile is."""
    out = tmp_path / "mine.yaml"
    code, stdout, stderr = called(
        "--records", records_in(tmp_path / "r.jsonl", served_run()[0]), "--out", out
    )

    assert (code, stderr) == (0, "")
    assert re.search(
        r"r\.jsonl: \d+ points fitted, \d\.\d% off; \d+ held out, \d\.\d% off in the mean", stdout
    )
    assert re.search(r"up to 8 at once +\d+ +[\d,]+ +[\d.]+ms +[\d.]+ms +\d\.\d%", stdout)
    assert re.search(r"a \(each step\) +0\.008\d* ", stdout)
    assert "not told by the engine, and assumed: max_num_seqs" in stdout
    assert "max_batched_tokens 2,048" in stdout
    assert "vLLM takes 8,192 by itself on GPUs of 70 GiB and more" in stdout
    assert f"written to {out}" in stdout.replace("\n", "")
    assert read_profile(out).measured is not None


def test_what_is_given_stands_instead_of_what_is_assumed(tmp_path: Path) -> None:
    """Options say what the engine does not."""
    out = tmp_path / "mine.yaml"
    given = ["--max-num-seqs", "24", "--max-batched-tokens", "4096"]
    given += ["--kv-tokens", "65536", "--context-tokens", "8192"]
    code, stdout, _ = called("--records", records_in(tmp_path / "r", served_run()[0]), *given, "--out", out)

    replica = read_profile(out).replica
    assert code == 0
    assert (replica.max_num_seqs, replica.max_batched_tokens) == (24, 4096)
    assert (replica.kv_tokens, replica.context_tokens) == (65_536, 8192)
    assert "assumed" not in stdout
    assert "extrapolated up to 24 sequences" in stdout


def test_scrapes_as_json(tmp_path: Path) -> None:
    """Figures as numbers, what is not measured as null, warnings in the profile."""
    lines = [msgspec.json.encode({"at_s": at, "page": page}) for at, page in served_run()[1]]
    out = tmp_path / "mine.yml"
    code, stdout, _ = called("--scrapes", written(tmp_path / "s", lines), "--json", "--out", out)
    report = json.loads(stdout)

    assert (code, report["file"]) == (0, str(out))
    assert report["profile"]["measured"]["prompt_tokens"] is None
    assert report["profile"]["replica"]["kv_tokens"] == 65_536
    assert any("e (prompt" in warning for warning in report["profile"]["measured"]["warnings"])


def test_whoever_takes_the_profile_says_where_it_ends(tmp_path: Path) -> None:
    """`simulate` and `plan` answer from the file, and name what its bounds allow beyond what was measured."""
    out = tmp_path / "mine.yaml"
    given = ["--max-num-seqs", "99", "--kv-tokens", "65536", "--context-tokens", "1000"]
    called("--records", records_in(tmp_path / "r", served_run()[0]), *given, "--out", out)
    (tmp_path / "fleet.yaml").write_text('pools: {m: {replicas: [{url: "http://a:1"}]}}')

    commands = typer.Typer()
    commands.command("simulate")(simulate)
    commands.add_typer(plan_app, name="plan")
    load = ["--input", "300", "--output", "100", "--qps", "2", "--ttft", "1s", "--tpot", "50ms", "--json"]
    for options in (
        ["plan", "--profile", str(out), *load],
        ["simulate", str(tmp_path / "fleet.yaml"), "--profile", str(out), "--for", "5s", "--json"],
    ):
        result = CliRunner().invoke(commands, options)
        assert result.exit_code == 0, result.output
        assert "extrapolated up to 99 sequences (measured: 1 to " in result.stderr, options
        json.loads(result.stdout)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "calibrate one of --url, --records and --scrapes; none was given"),
        (["--url", "http://a", "--records", "b"], "not --url and --records"),
        (["--records", "b", "--watch"], "--watch scrapes the engine of --url"),
        (["--url", "http://a", "--for", "10"], "--for: '10' is not a duration"),
        (["--url", "http://a", "--for", "10ms"], "--for 10ms: is too short to measure anything"),
        (
            ["--url", "http://a", "--out", "profile.json"],
            "--out profile.json: is not the name of a YAML file",
        ),
        (["--records", "b", "--out", "/none/p.yaml"], "--out /none/p.yaml: No such file"),
        (["--url", "ftp://a"], "'ftp://a' is not the URL of a server"),
    ],
)
def test_options_that_cannot_be(tmp_path: Path, options: list[str], said: str) -> None:
    """A sentence on stderr, exit code 2, and nothing written."""
    out = [] if "--out" in options else ["--out", str(tmp_path / "p.yaml")]
    code, stdout, stderr = called(*options, *out)

    assert (code, stdout) == (2, "")
    assert said in stderr
    assert [*tmp_path.iterdir()] == []


def test_a_file_that_was_there_stays(tmp_path: Path) -> None:
    """A calibration that fails leaves the profile of the last one alone."""
    out = tmp_path / "p.yaml"
    out.write_text("curve: old\n")
    code, _, _ = called("--records", tmp_path / "none", "--out", out)

    assert (code, out.read_text()) == (2, "curve: old\n")


def test_an_engine_that_is_not_there(tmp_path: Path) -> None:
    """It is said before anything is measured."""
    url = f"http://127.0.0.1:{free_port()}"
    code, _, stderr = called("--url", url, "--out", tmp_path / "p.yaml")

    assert code == 2
    assert f"{url}: no list of models" in stderr


async def measuring(url: str, model: str | None = None, watch: bool = False) -> str:
    """What is wrong with measuring that engine."""
    asked = Asked(url=url, model=model, api_key="", for_s=1.0, seed=1, watch=watch)
    with pytest.raises(ConfigurationError) as caught:
        await of_engine(asked, Told())
    return "\n".join(caught.value.problems)


def test_an_engine_that_cannot_be_measured() -> None:
    """A model that it lacks, refusals, answers in one piece, no metrics: each has its sentence."""

    async def main() -> None:
        async with serving(complete) as server:
            said = await measuring(server.url, "tny")
            assert '--model "tny": ' in said
            assert 'does not serve it; did you mean "tiny"?' in said

        async with serving(whole(429, {"error": {"message": "slow down", "code": "busy"}})) as server:
            assert f"{server.url}: http_429_busy: slow down" in await measuring(server.url)

        async with serving(whole(404, {}), stream(delta(content="x"), usage(10, 1), DONE)) as server:
            said = await measuring(server.url)
            assert f"{server.url}: answered 1 of 24 tokens in a stream" in said

        async with serving(whole(404, {})) as server:
            said = await measuring(server.url, watch=True)
            assert "has no /metrics as vLLM writes them, or SGLang with --enable-metrics" in said
            assert "without --watch, load measures it" in said

    run(main())
