"""What prompts move through memory besides weights and caches."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.perf.shapes import DEEPSEEK, GPT_OSS, LLAMA_8B, LLAMA_70B, STATES, device
from tidegate.catalog.models import Model
from tidegate.perf.activations import STORED, activations_of
from tidegate.perf.deployment import Deployment
from tidegate.perf.roofline import roofline_of

MODELS = st.sampled_from([LLAMA_8B, LLAMA_70B, DEEPSEEK, GPT_OSS, STATES])


def on(model: Model, **settings: object) -> Deployment:
    """That model on devices with ample memory."""
    return Deployment(model=model, accelerator=device(640), **settings)  # type: ignore[arg-type]


def test_a_dense_layer_has_four_products() -> None:
    """70B: queries, keys and values; outputs; gate and up; down. 16 bits an element, in and out."""
    found = activations_of(on(LLAMA_70B))
    hidden, query, both, size = 8192, 64 * 128, 8 * 2 * 128, 28672
    elements = 80 * (2 * hidden + 4 * query + both + 2 * hidden + 3 * size)

    assert found.products == (320, 0, 0, 0)
    assert found.product_bytes == (2 * elements, 0, 0, 0)
    assert found.between_bytes == 80 * 8 * 2 * hidden
    assert found.expert_bytes == 0


def test_tensor_parallelism_shares_out_what_is_inside_a_layer() -> None:
    """Between layers every device has all of a token's vector."""
    one, eight = (activations_of(on(LLAMA_70B, tp=tp)) for tp in (1, 8))

    assert eight.between_bytes == one.between_bytes
    assert eight.products == one.products
    whole = 2 * 80 * 4 * 8192
    assert 8 * (eight.product_bytes[0] - whole) == one.product_bytes[0] - whole


def test_products_are_of_what_their_weights_are_stored_in() -> None:
    """gpt-oss in four bits: attention and router in 16; a token's four experts are moved to apart."""
    found = activations_of(on(GPT_OSS, tp=2))

    assert dict(zip(STORED, found.products, strict=True)) == {"bf16": 36 * 3, "fp8": 0, "int4": 0, "fp4": 0}
    assert found.expert_bytes == 36 * 4 * (2 * 2880 + 3 * 2880) * 2 / 2


@given(MODELS, st.sampled_from([1, 2, 4]), st.floats(1, 1e5))
def test_what_is_moved_grows_with_tokens_and_shrinks_with_devices(
    model: Model, tp: int, tokens: float
) -> None:
    """Never faster with more tokens, never slower with more devices."""
    roof, more = roofline_of(on(model, tp=tp)), roofline_of(on(model, tp=2 * tp))

    assert roof.moving_s(0) == 0
    assert 0 < roof.moving_s(tokens) < roof.moving_s(2 * tokens)
    assert more.moving_s(tokens) <= roof.moving_s(tokens) * (1 + 1e-9)
