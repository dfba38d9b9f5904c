"""What the generator sends, and what it makes of every way in which an answer can end; over real sockets."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.bench.scripted import (
    DONE,
    Script,
    Scripted,
    complete,
    delta,
    event,
    run,
    serving,
    silent,
    stream,
    until,
    usage,
    whole,
)
from tidegate.bench.load import LoadLimits, LoadRecord, Progress, most_open, run_load
from tidegate.bench.target import Target
from tidegate.core.errors import ConfigurationError
from tidegate.core.reasons import Reason
from tidegate.net.exchange import Exchange
from tidegate.workload.requests import PlannedRequest

PATIENT = LoadLimits()
QUICK = LoadLimits(stall_timeout_s=0.3, drain_timeout_s=5.0)


def planned(at_s: float = 0.0, tenant: str = "default", prompt: int = 16, output: int = 3) -> PlannedRequest:
    return PlannedRequest(at_s=at_s, tenant=tenant, prompt_tokens=prompt, output_tokens=output)


async def load_one(script: Script, **target: Any) -> LoadRecord:
    """One request to a server that plays `script`."""
    async with serving(script) as server:
        (record,) = await run_load(Target(url=server.url, model="tiny", **target), [planned()], limits=QUICK)
    return record


def test_an_answer_that_is_sound() -> None:
    """The record holds the engine's own counts, and its instants are in order."""

    async def main() -> None:
        record = await load_one(
            stream(delta(role="assistant"), delta(content="a b"), delta(content="c"), usage(21, 3, 16), DONE)
        )

        assert record.ok
        assert (record.status, record.error, record.reason, record.attempts) == (200, "", None, 1)
        assert (record.prompt_tokens, record.output_tokens, record.cached_tokens) == (21, 3, 16)
        assert (record.pool, record.tenant, record.short) == ("tiny", "default", False)
        assert record.dispatched_at is not None
        assert record.first_token_at is not None
        assert record.arrived_at <= record.dispatched_at <= record.first_token_at <= record.ended_at

    run(main())


@pytest.mark.parametrize(
    "events, output_tokens, has_first",
    [
        ((delta(content="a"), delta(content="b"), DONE), 2, True),
        ((delta(role="assistant"), delta(content=""), DONE), 0, False),
        ((delta(reasoning_content="hm"), DONE), 1, True),
        ((delta(reasoning="hm"), DONE), 1, True),
        ((delta(tool_calls=[{"index": 0}]), DONE), 1, True),
        ((b": ping\n\n", delta(content="a"), DONE), 1, True),
        ((delta(content="a").replace(b"\n", b"\r\n"), DONE.replace(b"\n", b"\r\n")), 1, True),
        ((DONE,), 0, False),
        ((delta(content="a"), usage(5, 7), DONE, b"data: after\n\n"), 7, True),
    ],
)
def test_answers_that_engines_differ_in(
    events: tuple[bytes, ...], output_tokens: int, has_first: bool
) -> None:
    """Without usage deltas are counted; a role, a comment or an empty delta is no first token."""

    async def main() -> None:
        record = await load_one(stream(*events))

        assert record.ok, record.detail
        assert record.output_tokens == output_tokens
        assert (record.first_token_at is not None) is has_first

    run(main())


def cut(exchange: Exchange, body: dict[str, Any]) -> None:
    exchange.start(200, [(b"content-type", b"text/event-stream")])
    exchange.write(delta(content="a"))
    exchange.abort()


def stall(exchange: Exchange, body: dict[str, Any]) -> None:
    exchange.start(200, [(b"content-type", b"text/event-stream")])
    exchange.write(delta(content="a"))


QUOTA = {"error": {"message": "slow down", "type": "rate_limit_error", "code": "token_quota_exceeded"}}


@pytest.mark.parametrize(
    "script, error, status, reason",
    [
        (cut, "reset", 0, None),
        (stall, "timeout", 0, None),
        (silent, "timeout", 0, None),
        (lambda exchange, body: exchange.abort(), "reset", 0, None),
        (stream(delta(content="a")), "bad_stream", 0, None),
        (stream(delta(content="a"), b"data: [DO"), "bad_stream", 0, None),
        (stream(delta(content="a"), b"data: {oops\n\n", DONE), "bad_stream", 0, None),
        (stream(event([1])), "bad_stream", 0, None),
        (whole(200, {"choices": []}), "bad_stream", 0, None),
        (stream(delta(content="a"), event({"error": {"message": "no"}}), DONE), "error_event", 0, None),
        (
            stream(event({"error": {"code": "total_timeout"}})),
            "error_event_total_timeout",
            0,
            Reason.TOTAL_TIMEOUT,
        ),
        (stream(event({"error": "out of memory"})), "error_event", 0, None),
        (whole(429, QUOTA), "http_429_token_quota_exceeded", 429, Reason.TOKEN_QUOTA),
        (
            whole(400, {"error": {"code": 400, "type": "BadRequestError"}}),
            "http_400_BadRequestError",
            400,
            None,
        ),
        (whole(500, {"error": {"code": None, "type": None}}), "http_500", 500, None),
        (whole(502, "not an object"), "http_502", 502, None),
        (whole(307, {}, (b"location", b"/elsewhere")), "http_307", 307, None),
    ],
)
def test_answers_that_are_none(script: Script, error: str, status: int, reason: Reason | None) -> None:
    """Each way to fail has its own kind; without a complete answer there is no status."""

    async def main() -> None:
        record = await load_one(script)

        assert (record.error, record.status, record.reason) == (error, status, reason), record.detail
        assert not record.ok

    run(main())


def test_nobody_listens() -> None:
    """A refused connection is a failure of its own kind, and ends no run."""

    async def main() -> None:
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            target = Target(url=f"http://127.0.0.1:{unused.getsockname()[1]}", model="tiny")
            records = await run_load(target, [planned(), planned(0.01)], limits=QUICK)

        assert [(record.error, record.status) for record in records] == [("connect", 0)] * 2

    run(main())


def test_whole_answers() -> None:
    """Without streams there are counts and an end, but no first token."""

    async def main() -> None:
        record = await load_one(complete, stream=False)
        assert (record.ok, record.output_tokens, record.prompt_tokens) == (True, 3, 16)
        assert (record.first_token_at, record.tpot_s) == (None, None)

        record = await load_one(whole(200, {"unexpected": 1}), stream=False)
        assert (record.ok, record.error, record.status) == (False, "bad_answer", 0)

        record = await load_one(whole(503, QUOTA), stream=False)
        assert record.error == "http_503_token_quota_exceeded"

    run(main())


def test_what_is_sent() -> None:
    """Lengths as planned, the tenant's key, the model, and prompts that begin differently."""

    async def main() -> None:
        plan = [planned(0.0, "gold", 40, 5), planned(0.01, "free", 41, 6), planned(0.02, "none", 6_000, 7)]
        async with serving(complete) as server:
            target = Target(
                url=server.url + "/v1/", model='a "b" 50%', keys={"gold": "sk-1", "free": "sk-%2"}
            )
            records = await run_load(target, plan, limits=QUICK, seed=3)

        assert all(record.ok for record in records)
        heads = [exchange for exchange, _ in server.seen]
        assert [head.header(b"authorization") for head in heads] == [b"Bearer sk-1", b"Bearer sk-%2", None]
        assert {(head.method, head.path) for head in heads} == {("POST", "/v1/chat/completions")}
        bodies = [body for _, body in server.seen]
        assert [body["max_tokens"] for body in bodies] == [5, 6, 7]
        prompts = [body.pop("messages")[0]["content"] for body in bodies]
        assert [len(prompt) for prompt in prompts] == [160, 164, 24_000]
        assert len({prompt[:4] for prompt in prompts}) == 3
        assert bodies[0] == {
            "model": 'a "b" 50%',
            "stream": True,
            "stream_options": {"include_usage": True},
            "ignore_eos": True,
            "max_tokens": 5,
        }

    run(main())


async def load_until(
    condition: Callable[[Scripted, list[LoadRecord]], bool],
    plan: list[PlannedRequest],
    *scripts: Script,
    limits: LoadLimits = PATIENT,
) -> list[LoadRecord]:
    """Load that is stopped once `condition` holds of the server and the records so far."""
    stop, records = asyncio.Event(), list[LoadRecord]()
    async with serving(*scripts) as server:
        target = Target(url=server.url, model="tiny")
        load = asyncio.create_task(run_load(target, plan, limits=limits, on_record=records.append, stop=stop))
        await until(lambda: condition(server, records))
        stop.set()
        return await load


def test_a_server_that_stalls_delays_nobody() -> None:
    """Open loop: while the first request is never answered, all others are sent and answered."""

    async def main() -> None:
        plan = [planned(number * 0.005) for number in range(20)]
        records = await load_until(lambda server, records: len(records) == 19, plan, silent, complete)

        assert [record.request_id for record in records if record.ok] == list(range(1, 20))
        assert (records[-1].request_id, records[-1].error) == (0, "unfinished")

    run(main())


def test_a_server_that_answers_nobody_still_gets_all() -> None:
    """Open loop: what is sent does not depend on what is answered."""

    async def main() -> None:
        plan = [planned(number * 0.005) for number in range(40)]
        records = await load_until(lambda server, records: len(server.seen) == 40, plan, silent)

        assert len(records) == 40
        assert {(record.error, record.status, record.attempts) for record in records} == {
            ("unfinished", 0, 1)
        }

    run(main())


def test_the_drain_ends() -> None:
    """A run waits for answers only so long after its last request."""

    async def main() -> None:
        async with serving(silent) as server:
            target = Target(url=server.url, model="tiny")
            (record,) = await run_load(target, [planned()], limits=LoadLimits(drain_timeout_s=0.1))

        assert (record.error, record.detail) == ("unfinished", "still open when the run ended")

    run(main())


def test_a_late_send_counts_as_latency() -> None:
    """Latency counts from the planned instant: a generator that was held up does not hide it."""

    async def main() -> None:
        def slow_plan() -> Iterator[PlannedRequest]:
            yield planned(0.0)
            time.sleep(0.2)
            yield planned(0.05)

        async with serving(complete) as server:
            records = await run_load(Target(url=server.url, model="tiny"), slow_plan(), limits=PATIENT)

        late = next(record for record in records if record.request_id == 1)
        assert late.ttft_s is not None
        assert late.ttft_s > late.queued_s > 0.1

    run(main())


def test_more_open_than_allowed_is_not_sent() -> None:
    """The limit on open requests never makes one wait: what does not fit is recorded as not sent."""

    async def main() -> None:
        plan = [planned(number * 0.005) for number in range(5)]
        records = await load_until(
            lambda server, records: len(server.seen) == 2 and len(records) == 3,
            plan,
            silent,
            limits=LoadLimits(max_open=2),
        )

        not_sent = [record for record in records if record.error == "not_sent"]
        assert [record.request_id for record in not_sent] == [2, 3, 4]
        assert {(r.dispatched_at, r.attempts, r.status) for r in not_sent} == {(None, 0, 0)}
        assert [record.error for record in records[3:]] == ["unfinished"] * 2

    run(main())


def test_stop_ends_a_run_with_what_there_is() -> None:
    """Nothing more is sent, what is open is unfinished, what was answered stays."""

    async def main() -> None:
        plan = [planned(0.0), planned(0.01), planned(600.0)]
        records = await load_until(
            lambda server, records: len(server.seen) == 2 and len(records) == 1, plan, complete, silent
        )

        assert [(record.request_id, record.error) for record in records] == [(0, ""), (1, "unfinished")]

    run(main())


def test_progress_is_told_to_the_end() -> None:
    """The last word counts every request."""

    async def main() -> None:
        seen: list[Progress] = []
        async with serving(complete, whole(500, {})) as server:
            target = Target(url=server.url, model="tiny")
            await run_load(target, [planned(), planned(0.05)], limits=PATIENT, on_progress=seen.append)

        last = seen[-1]
        assert (last.sent, last.open, last.ok, last.failed) == (2, 0, 1, 1)

    run(main())


def test_deltas_are_told_as_they_come() -> None:
    """Who asks for them gets each stream's, counted, at instants in order; roles and usage are none."""
    told: list[tuple[int, float, int]] = []

    async def main() -> None:
        async with serving(complete) as server:
            target = Target(url=server.url, model="tiny")
            records = await run_load(
                target,
                [planned(), planned(output=5)],
                limits=QUICK,
                on_deltas=lambda number, at, deltas: told.append((number, at, deltas)),
            )

        for record in records:
            own = [(at, deltas) for number, at, deltas in told if number == record.request_id]
            assert own[0][0] == record.first_token_at
            assert own == sorted(own)
            assert own[-1][1] == record.output_tokens == record.asked_tokens
            assert own[-1][0] <= record.ended_at

    run(main())


def test_a_cancelled_run_leaves_nothing_open() -> None:
    """Cancelling the caller closes every connection before it returns."""

    async def main() -> None:
        async with serving(silent) as server:
            target = Target(url=server.url, model="tiny")
            task = asyncio.create_task(run_load(target, [planned(0.0), planned(600.0)]))
            await until(lambda: bool(server.seen))
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            (exchange, _) = server.seen[0]
            await until(lambda: exchange.gone)

    run(main())


def test_a_faulty_plan_is_the_callers_to_know() -> None:
    """An error of the plan comes out of the run, after its connections were closed."""

    async def main() -> None:
        def plan() -> Iterator[PlannedRequest]:
            yield planned()
            raise ConfigurationError(["line 7: no"])

        async with serving(silent) as server:
            with pytest.raises(ConfigurationError, match="line 7"):
                await run_load(Target(url=server.url, model="tiny"), plan())

    run(main())


def test_open_files_are_checked_before_anything_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit that open files do not allow is refused, with the remedy; without one, they are the limit."""
    monkeypatch.setattr("resource.getrlimit", lambda which: (256, 256))

    assert most_open(None) == 192
    assert most_open(192) == 192
    with pytest.raises(
        ConfigurationError, match=r"193 open requests need 257 open files.*`ulimit -n`.*to 192"
    ):
        most_open(193)


@pytest.mark.parametrize(
    "url",
    ["", "ftp://a", "http://", "http://a:b", "http://a:70000", "http://a:0", "http://a/b?c", "http://a/ b"],
)
def test_urls_that_lead_nowhere(url: str) -> None:
    """A URL is judged before the run."""

    async def main() -> None:
        with pytest.raises(ConfigurationError, match="is not the URL of a server"):
            await run_load(Target(url=url, model="tiny"), [planned()])

    run(main())
