"""The noisy neighbour simulated: by the same configuration and requests, in a second, always alike."""

from __future__ import annotations

import msgspec
import pytest

from tidegate.bench.target import Target, Template
from tidegate.demo.neighbours import scenario
from tidegate.demo.neighbours.comparison import Comparison
from tidegate.demo.neighbours.scenario import BASELINE, BY_REQUESTS, BY_TOKENS, Contest
from tidegate.demo.neighbours.seen import Seen
from tidegate.demo.neighbours.simulating import as_computed, simulated, simulated_again
from tidegate.demo.stage import shipped
from tidegate.emulator.jobs import ChatBody, Job, chat_job
from tidegate.gateway.apis import CHAT
from tidegate.gateway.bodies import Body, open_body
from tidegate.sim.network import Network
from tidegate.simulate.fleet import scenario_of
from tidegate.workload.requests import PlannedRequest

SPANS = Contest(for_s=60.0)


@pytest.mark.parametrize("seed", range(3))
def test_what_the_demo_promises_holds_simulated(seed: int) -> None:
    """Token limits protect the others and give the noisy one its quota; request limits plainly do not."""
    found = simulated(msgspec.structs.replace(SPANS, seed=seed))
    by_p95 = sorted(
        (found.by_requests, found.by_tokens, found.baseline), key=lambda run: run.others.ttft_s.p95
    )

    assert [run.rule for run in by_p95] == [BASELINE.name, BY_TOKENS.name, BY_REQUESTS.name]
    assert found.held
    assert found.slowdown_by_tokens <= 1.2
    assert found.slowdown_by_requests > 3
    assert found.quota_ratio >= 0.95


def test_it_is_always_the_same() -> None:
    """To the byte."""
    first, second = (msgspec.json.encode(simulated(SPANS)) for _ in range(2))

    assert first == second
    assert first != msgspec.json.encode(simulated(msgspec.structs.replace(SPANS, seed=1)))


def test_every_request_is_accounted_for() -> None:
    """Who is still served when clients stop waiting counts as a client counts: unfinished."""
    contest = Contest(for_s=120.0)
    requests = scenario.traffic(contest.seed, contest.for_s, contest.speed)
    noisy = sum(each.tenant == scenario.NOISY for each in requests)
    found = simulated(contest)

    for run in (found.baseline, found.by_requests, found.by_tokens):
        assert run.others.requests == len(requests) - noisy
        assert run.lag_s.max == 0
        assert run.noisy.requests in (0, noisy)
        assert run.noisy.requests == run.noisy.served + sum(run.noisy.failed.values())
    assert found.baseline.others.failed == found.by_tokens.others.failed == {}
    assert found.by_requests.noisy.failed["unfinished"] > 0
    assert list(found.by_tokens.noisy.failed) == ["token_quota_exceeded"]


def test_pace_matters_to_the_wire_alone() -> None:
    """On a wire without length the scenario at eight times its pace is the scenario."""
    paces = [Contest(for_s=30.0, speed=speed) for speed in (1.0, 8.0)]
    slow, fast = (
        simulated_again(
            Seen(
                rule=BASELINE,
                requests=scenario.under(BASELINE, scenario.traffic(0, 30.0, pace.speed)),
                ttfts_s=[],
            ),
            pace,
            Network(delay_s=0.0),
            times=1,
        ).others.ttft_s
        for pace in paces
    )

    for name in slow.__struct_fields__:
        assert getattr(fast, name) == pytest.approx(getattr(slow, name), rel=1e-6), name


def test_a_live_run_is_simulated_several_times() -> None:
    """With dice that no other contest uses; all requests together, over all of their time."""
    contest = Contest(for_s=30.0)
    requests = scenario.under(BY_TOKENS, scenario.traffic(0, contest.for_s, contest.speed))
    seen = Seen(rule=BY_TOKENS, requests=requests, ttfts_s=[])
    wire = Network(delay_s=0.0, jitter_s=0.01)
    once, twice = (simulated_again(seen, contest, wire, times) for times in (1, 2))
    following = simulated_again(seen, msgspec.structs.replace(contest, seed=1), wire, 1)

    assert twice.others.requests == 2 * once.others.requests
    assert twice.sent_s == 2 * contest.for_s
    assert twice.noisy_tokens_per_minute == once.noisy_tokens_per_minute
    both_s = (once.others.ttft_s.mean, following.others.ttft_s.mean)
    assert twice.others.ttft_s.mean == pytest.approx(sum(both_s) / 2)
    assert len(set(both_s)) == 2


def test_the_file_names_the_engines_that_are_emulated() -> None:
    """`tidegate simulate` with the demo's file simulates the demo's fleet, whose clients come back never."""
    config = shipped(scenario.CONFIG)

    for speed in (1.0, 2.0):
        found = scenario_of(scenario.ruled(config, BY_TOKENS, speed))
        (replicas,) = found.pools.values()
        assert [replica.profile for replica in replicas] == [scenario.profile(speed)] * 4
        assert found.clients.max_retries == 0


def test_a_figure_for_programs_says_what_it_is() -> None:
    """Simulated figures read back as such."""
    read = msgspec.json.decode(msgspec.json.encode(simulated(SPANS)))

    assert read["simulated"]
    assert read["complete"]
    assert set(read) == set(Comparison.__struct_fields__)


def test_a_simulated_gateway_counts_the_bytes_that_a_live_one_does() -> None:
    """What `tidegate bench` sends, measured by the gateway and computed by the emulated engine."""
    planned = PlannedRequest(at_s=0.0, prompt_tokens=100, output_tokens=7)
    _, sent = Template(Target(url="http://localhost", model="demo")).message(planned, b"x" * 400)
    job = chat_job(msgspec.json.decode(sent, type=ChatBody))
    body = open_body(CHAT, sent)

    computed = as_computed(planned)

    assert isinstance(body, Body)
    assert computed.prompt_bytes == body.prompt_bytes
    assert isinstance(job, Job)
    assert [prompt.tokens for prompt in job.prompts] == [computed.prompt_tokens]
    assert job.max_tokens == computed.max_tokens == 7
