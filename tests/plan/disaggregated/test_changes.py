"""Is what changes a disaggregated plan told of load, link and both kinds of replicas?"""

from __future__ import annotations

import pytest

from tests.plan.disaggregated.cases import WIRE, ask_of, front, replica
from tidegate.plan.answer import Change
from tidegate.plan.disaggregated.changes import changes_apart
from tidegate.plan.disaggregated.front import Front
from tidegate.plan.disaggregated.link import Link

ONE = replica()


def changes(rate: float | None, **there: int) -> dict[str, Change]:
    """By name, of the worked case."""
    found = changes_apart(ask_of(rate, ONE), Front(prefill=ONE, link=Link(bytes_per_s=14e9), **there))
    return {each.what: each for each in found}


def test_everything_that_could_differ_is_there() -> None:
    """What comes, how it travels, in how many bits, on what, and each side's own shape."""
    assert list(changes(2.0)) == [
        "prompts 2 x as long",
        "outputs 2 x as long",
        "2 x the rate",
        "bursts of 1.54 x, as Azure chat",
        "half of the prompts cached",
        "0.5 x the link",
        "2 x the link",
        "weights in fp8",
        "KV cache in fp8",
        "1.5 x the bandwidth",
        "1.5 x the FLOPS",
        "tp 8 for prompts",
        "tp 8 to decode",
    ]


def test_each_change_is_felt_where_it_should_be() -> None:
    """Compute is of prompts, bits are of decoding, and the link carries what is sent or says so."""
    found = changes(3.0)
    assert "a link of 11.5 GB/s" in found["0.5 x the link"].impossible
    assert "a link of" in found["prompts 2 x as long"].impossible
    here = found["2 x the link"]  # it is fast enough: nothing else is different
    assert here.prefill_replicas is not None
    for name in ("1.5 x the FLOPS", "half of the prompts cached"):
        assert (found[name].prefill_replicas or 0) < here.prefill_replicas, name
    assert found["bursts of 1.54 x, as Azure chat"].impossible
    assert found["2 x the rate"].impossible
    fp8 = found["KV cache in fp8"]
    assert fp8.concurrency_per_replica == pytest.approx(2 * (here.concurrency_per_replica or 0), abs=1)


def test_of_what_there_is_the_rate_changes() -> None:
    """As many replicas, shared out otherwise."""
    found = changes(None, replicas=8)

    assert {each.replicas for each in found.values() if not each.impossible} == {8}
    rates = {name: each.requests_per_s or 0.0 for name, each in found.items()}
    assert rates["0.5 x the link"] < rates["2 x the link"]
    assert rates["half of the prompts cached"] > rates["prompts 2 x as long"] > 0
    splits = {each.prefill_replicas for each in found.values() if not each.impossible}
    assert len(splits) > 1


def test_another_kind_for_prompts_stays_another_kind() -> None:
    """Each side changes its own deployment."""
    found = changes_apart(ask_of(2.0, ONE), front(replica(tp=2, gpu="h200-sxm"), WIRE))

    assert "tp 4 for prompts" in {each.what for each in found}
    assert "tp 8 to decode" in {each.what for each in found}
