"""Does a scraper that knows vLLM find what it looks for, and are the figures right?"""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from tests.emulator.inside import ENDLESS, HELLO, Inside, served
from tests.raw_http import eventually, post, posted
from tidegate.emulator.faults import Fault, Kind
from tidegate.emulator.metrics import Histogram, Meter, page
from tidegate.sim.profiles import named
from tidegate.sim.replica import Replica
from tidegate.sim.sequence import Sequence

Samples = dict[tuple[str, str], float]


def scraped(text: bytes) -> Samples:
    """Values by name and by the one label that tells series of the name apart."""
    found: Samples = {}
    for family in text_string_to_metric_families(text.decode()):
        assert family.documentation
        for sample in family.samples:
            own = {k: v for k, v in sample.labels.items() if k in ("le", "finished_reason", "num_gpu_blocks")}
            key = (sample.name, next(iter(own.values()), ""))
            assert key not in found
            found[key] = sample.value
    return found


def test_totals_after_some_work() -> None:
    """Prompts, tokens, endings and latencies of three answers and an embedding, each counted once."""
    with served() as inside:
        for options in ({"max_tokens": 5}, {"max_tokens": 5, "n": 2}):
            post(inside.chat, {**HELLO, **options, "ignore_eos": True})
        post(inside.url + "/v1/embeddings", {"input": [1, 2, 3]})
        samples = scraped(inside.get("/metrics"))

    assert samples["vllm:prompt_tokens_total", ""] == 3 * 11 + 3
    assert samples["vllm:generation_tokens_total", ""] == 15
    assert samples["vllm:request_success_total", "length"] == 3
    assert samples["vllm:request_success_total", "stop"] == 1
    assert samples["vllm:time_to_first_token_seconds_count", ""] == 3
    assert samples["vllm:inter_token_latency_seconds_count", ""] == 12
    assert samples["vllm:inter_token_latency_seconds_bucket", "0.01"] == 12
    assert samples["vllm:e2e_request_latency_seconds_count", ""] == 4
    assert samples["vllm:num_requests_running", ""] == 0
    assert samples["vllm:kv_cache_usage_perc", ""] == 0
    assert samples["vllm:cache_config_info", "256"] == 1


def test_gauges_under_load(quick: Inside) -> None:
    """Six endless answers in four seats: four run, two wait, and the cache is in use."""

    def running_and_waiting() -> tuple[float, float]:
        samples = scraped(quick.get("/metrics"))
        return samples["vllm:num_requests_running", ""], samples["vllm:num_requests_waiting", ""]

    with posted(quick.chat, {**ENDLESS, "n": 6, "max_tokens": 900}) as response:
        response.readline()
        quick.look(lambda emulator: emulator.inject(Fault(kind=Kind.STALL)))  # hold it for the look
        assert running_and_waiting() == (4, 2)
        assert 0 < scraped(quick.get("/metrics"))["vllm:kv_cache_usage_perc", ""] < 1
        quick.look(lambda emulator: emulator.clear())
    eventually(lambda: running_and_waiting() == (0, 0), "all have left")


def test_a_histogram_counts_up_to_its_bounds() -> None:
    """A value on a bound belongs below it; one above all is counted under +Inf only."""
    histogram = Histogram((1.0, 2.0))
    for value, times in [(1.0, 1), (1.5, 3), (9.0, 1)]:
        histogram.observe(value, times)

    lines = "".join(histogram.lines("x", 'a="b"')).splitlines()
    assert lines == [
        'x_bucket{a="b",le="1.0"} 1.0',
        'x_bucket{a="b",le="2.0"} 4.0',
        'x_bucket{a="b",le="+Inf"} 5.0',
        'x_count{a="b"} 5.0',
        'x_sum{a="b"} 14.5',
    ]


def test_preemptions_are_told() -> None:
    """As a total that only grows."""
    replica = Replica(named("demo"))
    for number in range(8):
        replica.submit(0.0, Sequence(number, 8192, 2048))
    replica.advance(300.0)

    assert scraped(page("m", replica, Meter()))["vllm:num_preemptions_total", ""] > 0


def test_any_model_name_makes_a_page_that_parses() -> None:
    """Quotes, backslashes and line ends are escaped."""
    name = 'a"b\\c\nd'
    text = page(name, Replica(named("demo")), Meter()).decode()

    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            assert sample.labels.get("model_name", name) == name
