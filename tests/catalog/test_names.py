"""A name means one entry of the catalogue, or is refused with the nearest."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.catalog.catalog import Catalog
from tidegate.catalog.names import plain, without_owner, without_tuning
from tidegate.core.errors import ConfigurationError

CATALOG = Catalog.shipped()


@pytest.mark.parametrize(
    "name, found",
    [
        ("meta-llama/Llama-3.1-70B", "meta-llama/Llama-3.1-70B"),
        ("Llama-3.1-70B", "meta-llama/Llama-3.1-70B"),
        ("llama-3.1-70b", "meta-llama/Llama-3.1-70B"),
        (" Llama 3.1 70B ", "meta-llama/Llama-3.1-70B"),
        ("meta-llama/Llama-3.1-70B-Instruct", "meta-llama/Llama-3.1-70B-Instruct"),
        ("meta-llama/Meta-Llama-3.1-70B-Instruct", "meta-llama/Meta-Llama-3.1-70B"),
        ("somebody/Llama-3.1-8B-Chat", "meta-llama/Meta-Llama-3.1-8B"),
        ("Llama-3.1-70B-Instruct-FP8", "nvidia/Llama-3.1-70B-Instruct-FP8"),
        ("Llama-3.1-70B-FP8", "nvidia/Llama-3.1-70B-Instruct-FP8"),
        ("qwen3-14b", "Qwen/Qwen3-14B"),
        ("Qwen3-30B-A3B-Instruct-2507", "Qwen/Qwen3-30B-A3B-Instruct-2507"),
        ("gpt-oss-120b", "openai/gpt-oss-120b"),
        ("gpt_oss_120b", "openai/gpt-oss-120b"),
        ("yi-34b", "01-ai/Yi-34B"),
    ],
)
def test_models(name: str, found: str) -> None:
    """Case, owner and words that do not change the shape do not matter; what does change it does."""
    assert CATALOG.model(name).name == found


@pytest.mark.parametrize(
    "name, found",
    [
        ("h100-sxm", "h100-sxm"),
        ("h100", "h100-sxm"),
        ("H100 SXM", "h100-sxm"),
        ("h100_sxm", "h100-sxm"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm"),  # as nvidia-smi has it
        ("NVIDIA A100-SXM4-80GB", "a100-sxm"),
        ("Tesla T4", "t4"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("AMD Instinct MI300X", "mi300x"),
        ("rtx_pro_6000_server", "rtx-pro-6000"),
    ],
)
def test_accelerators(name: str, found: str) -> None:
    """Makers in front, blanks and underscores do not matter, and aliases are names."""
    assert CATALOG.accelerator(name).name == found


@pytest.mark.parametrize(
    "name, remedy",
    [
        ("Llama-3.1-71B", "did you mean meta-llama/Llama-3.1-70B"),
        ("Qwen3.5-397B", "did you mean Qwen/Qwen3.5-397B-A17B or "),
        ("mixtral", "did you mean mistralai/Mixtral-8x"),
        ("", "`tidegate catalog list` shows what is"),
        ("\x1b[31m", "`tidegate catalog list` shows what is"),
        ("x" * 100_000, 'model "xxxxx'),
    ],
)
def test_what_is_not_there(name: str, remedy: str) -> None:
    """One line that a terminal can show, with what is nearest."""
    with pytest.raises(ConfigurationError) as error:
        CATALOG.model(name)

    (line,) = error.value.problems
    assert remedy in line
    assert line.isprintable()
    assert len(line) < 300


def test_one_name_of_several_that_differ() -> None:
    """It is refused, for either could be meant; of several that are equal the first is taken."""
    model = CATALOG.model("qwen3-8b")
    other = [type(model)(**{f: getattr(model, f) for f in model.__struct_fields__} | {"name": "me/Qwen3-8B"})]
    assert CATALOG.extended(models=tuple(other)).model("qwen3-8b").name == "me/Qwen3-8B"

    longer = type(model)(
        **{f: getattr(model, f) for f in model.__struct_fields__}
        | {"name": "me/Qwen3-8B", "context_tokens": 131_072}
    )
    with pytest.raises(ConfigurationError, match="may be any of me/Qwen3-8B, Qwen/Qwen3-8B; write one"):
        CATALOG.extended(models=(longer,)).model("qwen3-8b")


def test_every_entry_is_found_by_its_own_name() -> None:
    """No alias hides another entry, and none is that of two."""
    for model in CATALOG.models.values():
        assert CATALOG.model(model.name) is model
    aliases = [plain(name) for each in CATALOG.accelerators.values() for name in (each.name, *each.aliases)]
    assert len(aliases) == len(set(aliases))
    for accelerator in CATALOG.accelerators.values():
        for name in (accelerator.name, *accelerator.aliases):
            assert CATALOG.accelerator(name) is accelerator


@given(st.text())
def test_rules_are_stable(name: str) -> None:
    """What a rule has made of a name it leaves as it is."""
    for rule in (plain, without_owner, without_tuning):
        assert rule(rule(name)) == rule(name)
