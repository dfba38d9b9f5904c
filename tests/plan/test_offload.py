"""What does memory of the host buy, and what not?"""

from __future__ import annotations

from math import inf

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.catalog.catalog import Catalog
from tidegate.core.curve import Linear
from tidegate.core.errors import ConfigurationError
from tidegate.perf.deployment import GIB, Deployment
from tidegate.plan.deployed import deployed
from tidegate.plan.fits import fits, seen_of
from tidegate.plan.keeping import fleet_for
from tidegate.plan.laws.engine import Engine
from tidegate.plan.offload import Host, Sessions, host_of, offload, recompute_s, sessions_of

CATALOG = Catalog.shipped()
TEN_GIB = Sessions(kv_bytes=10 * GIB, resident=42, at_once=42, recompute_s=1.952, step_s=0.030)
"""A 70B in fp16 on 8 x 79.1 GiB, of which 42 sessions of 32K fit; each 10 GiB."""
ONE_LINK = Host(memory_bytes=1000 * GIB, link_bytes_per_s=55e9)


def by_model(name: str, gpu: str, **values: object) -> Deployment:
    """Of the catalogue."""
    model, accelerator = CATALOG.model(name), CATALOG.accelerator(gpu)
    return Deployment(model=model, accelerator=accelerator, **values)  # type: ignore[arg-type]


def test_ten_gib_over_one_link() -> None:
    """0.195 s at 55 GB/s: 6.5 steps of 30 ms, a tenth of computing it again; 100 more are kept."""
    found = offload(TEN_GIB, ONE_LINK)

    assert (found.parked, found.kept, found.at_once) == (100, 142, 42)
    assert found.restore_s == pytest.approx(0.1952, abs=1e-4)
    assert found.restores_per_s == pytest.approx(5.12, abs=0.01)
    assert found.steps_per_restore == pytest.approx(6.51, abs=0.01)
    assert found.quicker == "restore"
    assert found.times_as_quick == pytest.approx(10.0, abs=0.01)
    assert "No more decode at once than before, 42" in found.because
    assert "195ms for each token, beside a step of 30ms for all 42" in found.because


def test_over_eight_links_at_once() -> None:
    """Each accelerator has its part of a session and a link of its own: 24 ms, less than a step."""
    host = host_of(by_model("Llama-3.1-70B", "h100", tp=8), 1000 * GIB, None)
    found = offload(TEN_GIB, host)

    assert (host.links, host.link_bytes_per_s) == (8, 8 * 55e9)
    assert host.link_source == CATALOG.accelerator("h100").sources["host_link_bytes_per_s"]
    assert found.restore_s == pytest.approx(0.0244, abs=1e-4)
    assert "440 GB/s (8 x 55 GB/s)" in found.because


def test_copies_of_attention_have_links_of_their_own() -> None:
    """With dp 8 a session comes back over one link, and eight do at once."""
    apart = host_of(by_model("DeepSeek-V3", "h200", tp=1, attention_dp=8), 100 * GIB, None)
    together = host_of(by_model("DeepSeek-V3", "h200", tp=8), 100 * GIB, None)
    alone, shared = offload(TEN_GIB, apart), offload(TEN_GIB, together)

    assert (apart.links, apart.copies, together.links, together.copies) == (1, 8, 8, 1)
    assert alone.restore_s == pytest.approx(8 * shared.restore_s)
    assert alone.restores_per_s == pytest.approx(shared.restores_per_s)


@pytest.mark.parametrize(
    "link_bytes_per_s, quicker, times",
    [(55e9, "restore", 10.0), (5.502e9, "restore", 1.0), (0.55e9, "recompute", 10.0)],
)
def test_a_slow_link_is_not_worth_it(link_bytes_per_s: float, quicker: str, times: float) -> None:
    """Over a hundredth of the link it is quicker to compute a session again."""
    found = offload(TEN_GIB, Host(memory_bytes=100 * GIB, link_bytes_per_s=link_bytes_per_s))

    assert found.quicker == quicker
    assert found.times_as_quick == pytest.approx(times, rel=0.01)
    assert ("computing it again is" in found.because) == (quicker == "recompute")


def test_what_is_not_known_is_not_told() -> None:
    """Without a speed of prompts and of steps there is only the time of the link."""
    found = offload(msgspec.structs.replace(TEN_GIB, recompute_s=None, step_s=None), ONE_LINK)

    assert (found.quicker, found.times_as_quick, found.steps_per_restore) == (None, None, None)
    assert "again" not in found.because
    assert "step" not in found.because


@pytest.mark.parametrize(
    "at_once, resident, bytes_each, replicas, on_one_gib",
    [
        (42, 42, 10 * GIB, 7, 2140),  # 6 x 42 are 252
        (85, 85, 5 * GIB, 4, 855),  # 3 x 85 are 255
        (64, 85, 5 * GIB, 4, 855),  # the batch binds, and what waits is held all the same
        (256, 300, GIB, 1, 0),
    ],
)
def test_256_sessions(
    at_once: int, resident: int, bytes_each: float, replicas: int, on_one_gib: float
) -> None:
    """In bf16 42 of 256 fit, and 7 nodes hold all; in fp8 85, and 4. Host memory of 2,140 or 855 GiB keeps
    them all on one, and as many decode as before.
    """
    each = Sessions(kv_bytes=bytes_each, resident=resident, at_once=at_once)
    alone = fleet_for(256, each, deployment=by_model("Llama-3.1-70B", "h100", tp=8))
    kept = fleet_for(256, each, offload(each, Host(memory_bytes=2140 * GIB, link_bytes_per_s=1e9)))

    assert (alone.replicas, alone.accelerators, alone.nodes) == (replicas, 8 * replicas, replicas)
    assert alone.host_memory_bytes == on_one_gib * GIB
    assert (kept.replicas, kept.replicas_offloaded, kept.decode_at_once) == (replicas, 1, min(256, at_once))


@pytest.mark.parametrize("tp, pp, nodes", [(8, 1, 7), (4, 1, 4), (2, 1, 2), (1, 1, 1), (1, 3, 4), (8, 2, 14)])
def test_nodes_hold_whole_replicas(tp: int, pp: int, nodes: int) -> None:
    """Seven replicas on nodes of 8, as many as fit into each: of 3 accelerators two, of 16 half of one."""
    deployment = by_model("Llama-3.1-8B", "h100", tp=tp, pp=pp)
    fleet = fleet_for(256, TEN_GIB, deployment=deployment)

    assert (fleet.replicas, fleet.accelerators, fleet.nodes) == (7, 7 * tp * pp, nodes)


def test_the_question_of_the_issue() -> None:
    """70B, fp16, 8 H100, 256 sessions of 32K: 42 fit, 1,000 GiB keep 100 more, and none more decodes."""
    replica = deployed(by_model("Llama-3.1-70B", "h100", tp=8, weights="bf16"))
    assert replica.deployment is not None
    found = fits(seen_of(replica, 32_768), host_of(replica.deployment, 1000 * GIB, None), 256)

    assert (found.concurrency, found.binding, found.session_bytes) == (42, "kv_memory", 10 * GIB)
    assert found.offload is not None
    assert found.fleet is not None
    assert (found.offload.parked, found.offload.kept, found.offload.at_once) == (100, 142, 42)
    assert (found.fleet.replicas, found.fleet.replicas_offloaded, found.fleet.decode_at_once) == (7, 2, 84)
    assert found.offload.quicker == "restore"
    assert found.offload.times_as_quick is not None
    assert found.offload.times_as_quick > 20


def test_computing_again_is_chunk_by_chunk() -> None:
    """5 tokens in steps of 2: three steps, and the attention of a square."""
    curve = Linear(a_s=1.0, d_s_per_prefill_token=0.1, e_s_per_prefill_token_squared=0.01)
    engine = Engine(curve=curve, max_num_seqs=1, max_batched_tokens=2, kv_tokens=100, context_tokens=100)

    assert recompute_s(engine, 5) == pytest.approx(3 * 1.0 + 5 * 0.1 + 25 * 0.01)


def test_what_accelerators_repeat_is_copied_as_often() -> None:
    """MLA is whole on each of 8: they copy 8 times what one does; a copy of attention copies its own."""
    sizes = {}
    for name, values in {"tp": {"tp": 8}, "dp": {"tp": 1, "attention_dp": 8}}.items():
        replica = deployed(by_model("DeepSeek-V3", "h200", **values))
        sizes[name] = sessions_of(replica, 32_768, resident=1, at_once=1).kv_bytes
    assert sizes["dp"] is not None

    assert sizes["tp"] == pytest.approx(8 * sizes["dp"])


@pytest.mark.parametrize(
    "sessions, host, problem",
    [
        (TEN_GIB, Host(memory_bytes=9 * GIB, link_bytes_per_s=1e9), "9 GiB hold no session of 10 GiB; more"),
        (Sessions(kv_bytes=None, resident=1, at_once=1), ONE_LINK, "write --token-bytes BYTES, or --model"),
    ],
)
def test_what_cannot_be(sessions: Sessions, host: Host, problem: str) -> None:
    """A host that holds none of them, and sessions of unknown size."""
    with pytest.raises(ConfigurationError, match=problem):
        offload(sessions, host)


def test_a_link_that_the_catalogue_does_not_know() -> None:
    """It is asked for, not guessed."""
    deployment = by_model("Llama-3.1-8B", "tpu-v6e")
    with pytest.raises(ConfigurationError, match="no link to the host of Google TPU v6e; write what it"):
        host_of(deployment, GIB, None)

    assert host_of(deployment, GIB, 10e9).link_bytes_per_s == 10e9


SESSIONS = st.builds(
    Sessions,
    kv_bytes=st.floats(1e6, 1e11),
    resident=st.integers(50, 1000),
    at_once=st.integers(1, 50),
    recompute_s=st.floats(1e-3, 100),
    step_s=st.floats(1e-3, 1),
)


@given(each=SESSIONS, room=st.floats(1, 1e4), link=st.floats(1e8, 1e12), many=st.integers(1, 10_000))
def test_laws(each: Sessions, room: float, link: float, many: int) -> None:
    """What is parked fits and one more does not; as many decode as before; no fleet grows by offloading; what
    is called quicker is; a faster link brings more back.
    """
    size = each.kv_bytes or inf
    found = offload(each, Host(memory_bytes=room * size, link_bytes_per_s=link))
    faster = offload(each, Host(memory_bytes=room * size, link_bytes_per_s=2 * link))
    fleet = fleet_for(many, each, found)

    assert found.parked * size <= room * size * (1 + 1e-12) < (found.parked + 1) * size * (1 + 1e-9)
    assert (found.at_once, found.kept) == (each.at_once, each.resident + found.parked)
    assert fleet.replicas_offloaded is not None
    assert fleet.decode_at_once is not None
    assert fleet.replicas_offloaded <= fleet.replicas
    assert fleet.decode_at_once <= many <= fleet.replicas_offloaded * found.kept
    assert (found.restore_s <= (each.recompute_s or 0)) == (found.quicker == "restore")
    assert (found.times_as_quick or 0) >= 1
    assert faster.restores_per_s > found.restores_per_s
