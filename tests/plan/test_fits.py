"""How many requests fit, and what binds?"""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.core.errors import ConfigurationError
from tidegate.plan.fits import Seen, fits

POOL = Seen(kv_tokens=163_840, request_tokens=600, reserved_tokens=8192)


def test_a_pool_of_163_840_tokens() -> None:
    """20 reservations of 8,192, 269 paged at 608; at 30 % with 20, compute binds at 66."""
    alone, busy = fits(POOL), fits(msgspec.structs.replace(POOL, busy_ratio=0.3, busy_at=20))

    assert (alone.reserved, alone.paged, alone.paged_tokens) == (20, 269, 608)
    assert (alone.concurrency, alone.binding) == (269, "kv_memory")
    assert (busy.concurrency, busy.binding, busy.compute) == (66, "compute", 66)
    assert "Compute binds at 66: it is at 30% with 20." in busy.because


def test_compute_that_would_serve_more() -> None:
    """What binds is the lesser, and the other is told."""
    found = fits(msgspec.structs.replace(POOL, busy_ratio=0.01, busy_at=20))

    assert (found.concurrency, found.binding) == (269, "kv_memory")
    assert "Compute would serve 2,000." in found.because


def test_the_batch_binds() -> None:
    """An engine that takes fewer sequences than its cache holds; what it holds is told beside it."""
    found = fits(msgspec.structs.replace(POOL, batch_limit=256))

    assert (found.concurrency, found.binding, found.batch, found.paged) == (256, "batch", 256, 269)
    assert found.because.startswith("The batch binds: the engine takes 256 sequences at once. 163,840 tokens")
    assert fits(msgspec.structs.replace(POOL, batch_limit=270)).binding == "kv_memory"


@pytest.mark.parametrize(
    "wrong, problem",
    [
        ({"request_tokens": 200_000}, "does not fit into 163,840"),
        ({"reserved_tokens": 50}, "outgrows 50 reserved"),
        ({"busy_ratio": 0.0}, "above 0"),
        ({"busy_ratio": 1.5}, "at most 1"),
    ],
)
def test_what_cannot_be(wrong: dict[str, object], problem: str) -> None:
    """A request larger than the pool or than what is reserved for it, and compute that is no share."""
    with pytest.raises(ConfigurationError, match=problem):
        fits(msgspec.structs.replace(POOL, **wrong))


@given(kv=st.integers(1000, 10**7), tokens=st.integers(1, 1000), block=st.sampled_from([1, 16, 64]))
def test_blocks_are_never_more_than_there_are(kv: int, tokens: int, block: int) -> None:
    """All that fit do, and one more does not."""
    found = fits(Seen(kv_tokens=kv - kv % block + block, request_tokens=tokens, block_tokens=block))

    assert found.paged * found.paged_tokens <= kv - kv % block + block
    assert (found.paged + 1) * found.paged_tokens > kv - kv % block + block
