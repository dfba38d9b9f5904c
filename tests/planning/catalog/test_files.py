"""A user's file adds to the catalogue or replaces what is in it, or every mistake in it is told at once."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.catalog import configs
from tidegate.catalog.catalog import Catalog
from tidegate.catalog.models import Dense, GroupedAttention, Layers
from tidegate.core.errors import ConfigurationError
from tidegate.planning.catalog.files import load_catalog, model_from, parse_catalog
from tidegate.planning.catalog.lookup import catalog_with, model_named

SHIPPED = Catalog.shipped()
YAML = """\
accelerators:
  ours:
    like: h100
    usable_bytes: 84_000_000_000
    price: {per_hour_usd: 2.2, source: contract, dated: 2026-10-01}
    source: measured
    dated: 2026-09-30
models:
  acme/tiny:
    hidden: 256
    vocabulary: 1000
    context_tokens: 4096
    layers:
      - count: 4
        attention: {type: grouped, heads: 8, kv_heads: 2, head_dim: 32}
        feed_forward: {type: dense, size: 512}
prices:
  h200: {per_hour_usd: 1.99}
"""
TOML = """\
[accelerators.ours]
like = "h100"
usable_bytes = 84_000_000_000
price = {per_hour_usd = 2.2, source = "contract", dated = 2026-10-01}
source = "measured"
dated = 2026-09-30

[models."acme/tiny"]
hidden = 256
vocabulary = 1000
context_tokens = 4096

[[models."acme/tiny".layers]]
count = 4
attention = {type = "grouped", heads = 8, kv_heads = 2, head_dim = 32}
feed_forward = {type = "dense", size = 512}

[prices.h200]
per_hour_usd = 1.99
"""


def problems(text: str, source: str = "my.yaml", base: Path = Path()) -> list[str]:
    """What is wrong with it."""
    with pytest.raises(ConfigurationError) as error:
        parse_catalog(text, source, SHIPPED, base=base)
    return error.value.problems


@pytest.mark.parametrize("text, source", [(YAML, "my.yaml"), (TOML, "my.toml")])
def test_either_language(text: str, source: str) -> None:
    """YAML and TOML say the same; what is not said is as in what an entry is like."""
    catalog = parse_catalog(text, source, SHIPPED)
    ours, h100 = catalog.accelerator("ours"), SHIPPED.accelerator("h100")

    assert ours.usable_bytes == 84_000_000_000
    assert ours.bandwidth_bytes_per_s == h100.bandwidth_bytes_per_s
    assert ours.source == h100.source
    assert (ours.sources["usable_bytes"], ours.dates["usable_bytes"]) == ("measured", "2026-09-30")
    assert ours.price is not None
    assert (ours.price.per_hour_usd, ours.price.source, ours.price.dated) == (2.2, "contract", "2026-10-01")
    assert catalog.accelerator("h100") == h100

    tiny = catalog.model("tiny")
    assert (tiny.hidden, tiny.source, tiny.precision) == (256, source, "bf16")
    assert tiny.layers == (
        Layers(
            count=4,
            attention=GroupedAttention(heads=8, kv_heads=2, head_dim=32),
            feed_forward=Dense(size=512),
        ),
    )

    price = catalog.accelerator("h200").price
    assert price is not None
    assert (price.per_hour_usd, price.source, price.dated) == (1.99, source, "")


def test_a_known_name_needs_no_like() -> None:
    """An entry of the name of another replaces only what it says."""
    text = "accelerators: {l40s: {bandwidth_bytes_per_s: 8e11}}\n"
    text += "models: {Qwen/Qwen3-8B: {context_tokens: 131072}}"
    catalog = parse_catalog(text, "my.yaml", SHIPPED)

    assert catalog.accelerator("l40s").bandwidth_bytes_per_s == 8e11
    assert catalog.accelerator("l40s").usable_bytes == SHIPPED.accelerator("l40s").usable_bytes
    assert catalog.accelerator("l40s-48gb").bandwidth_bytes_per_s == 8e11
    assert catalog.model("qwen3-8b").context_tokens == 131_072
    assert catalog.model("qwen3-8b").layers == SHIPPED.model("qwen3-8b").layers


def test_one_may_be_like_an_earlier_one() -> None:
    """Entries are read in their order, and files in theirs."""
    text = "accelerators: {a: {like: h100, per_node: 4}, b: {like: a, power_w: 1}}"
    b = parse_catalog(text, "my.yaml", SHIPPED).accelerator("b")

    assert (b.per_node, b.power_w) == (4, 1)


def test_files_upon_each_other(tmp_path: Path) -> None:
    """A later file sees what an earlier one added; paths in it start at its folder."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps(configs.LLAMA))
    (tmp_path / "first.yaml").write_text("models: {acme/a: {config: model/config.json}}")
    (tmp_path / "second.toml").write_text('[models."acme/b"]\nlike = "acme/a"\nprecision = "fp8"\n')
    catalog = catalog_with([tmp_path / "first.yaml", tmp_path / "second.toml"])

    assert catalog.model("acme/a").hidden == 256
    assert (catalog.model("b").hidden, catalog.model("b").precision) == (256, "fp8")
    assert catalog_with() is SHIPPED


@pytest.mark.parametrize(
    "quantization, precisions",
    [
        ({"quant_algo": "FP8", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]}, ("fp8", "fp8")),
        ({"quant_algo": "NVFP4", "group_size": 16, "exclude_modules": ["lm_head"]}, ("fp4", "fp4")),
        (
            {"quant_algo": "NVFP4", "exclude_modules": ["lm_head", "model.layers.*.self_attn*"]},
            ("fp4", "bf16"),
        ),
    ],
)
def test_what_a_quantiser_says_beside_a_config_json(
    tmp_path: Path, quantization: dict[str, object], precisions: tuple[str, str]
) -> None:
    """hf_quant_config.json counts where config.json says nothing of quantisation: a quarter of the bytes."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps(configs.LLAMA))
    assert model_named(str(path), SHIPPED).precision == "bf16"

    beside = {"producer": {"name": "modelopt"}, "quantization": quantization}
    (tmp_path / "hf_quant_config.json").write_text(json.dumps(beside))
    model = model_named(str(path), SHIPPED)
    assert (model.precision, model.attention_precision or model.precision) == precisions

    (tmp_path / "hf_quant_config.json").write_text("{}")
    with pytest.raises(ConfigurationError, match=r"hf_quant_config\.json: quantization: must be an object"):
        model_named(str(path), SHIPPED)


def test_a_config_json_is_a_name(tmp_path: Path) -> None:
    """By its path, and called as its folder is."""
    folder = tmp_path / "acme-70b"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(configs.DEEPSEEK))
    model = model_named(str(folder / "config.json"), SHIPPED)

    assert (model.name, model.source) == ("acme-70b", str(folder / "config.json"))


@pytest.mark.parametrize(
    "text, problem",
    [
        (b"", "is not JSON: "),
        (b"[" * 100_000, "is not JSON: "),
        (b"[]", "is not an object; a config.json is one"),
        (b'{"model_type": "llama"}', "lacks num_hidden_layers"),
        (b'{"hidden_size": ' + b"9" * 5_000 + b"}", "is not JSON: "),
        (b"\xff\xfe", "is not UTF-8 at byte 0"),
        (b" " * (2**23 + 1), "is larger than 8,388,608 bytes; no config.json is"),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_a_config_json_that_is_none(tmp_path: Path, text: bytes, problem: str) -> None:
    """One line that begins with its path."""
    path = tmp_path / "config.json"
    path.write_bytes(text)
    with pytest.raises(ConfigurationError) as error:
        model_from(path, "it")

    (line,) = error.value.problems
    assert line.startswith(f"{path}: ")
    assert problem in line


@pytest.mark.parametrize(
    "text, expected",
    [
        ("", "my.yaml: is empty; it needs accelerators, models or prices"),
        ("7", "my.yaml:1:1: needs a mapping of keys to values, not a number"),
        (
            "accelerators: {new: {title: it}}",
            "lacks memory_bytes, usable_bytes, bandwidth_bytes_per_s",
        ),
        (
            "accelerators: {h10: {like: h10}}",
            'accelerators.h10: accelerator "h10" is not in',
        ),
        (
            "prices: {l5: {per_hour_usd: 1}}",
            'prices.l5: accelerator "l5" is not in the catalogue; did you mean',
        ),
        ("prices: {l4: {per_hour_usd: -1}}", "per_hour_usd: is -1; it must be at least 0"),
        (
            "prices: {l4: {per_hour_usd: 1, low_usd: 3, high_usd: 2}}",
            "low_usd: is 3; it must be at most",
        ),
    ],
)
def test_what_cannot_be(text: str, expected: str) -> None:
    """A mistake is placed, and told with its remedy."""
    (line,) = problems(text)

    assert expected in line


@pytest.mark.parametrize(
    "figures, expected",
    [
        ("memory_byte: 5", 'memory_byte: is not a setting; did you mean "memory_bytes"?'),
        ("usable_bytes: 99e9", "usable_bytes: needs a whole number, not a number"),
        ("usable_bytes: 99_000_000_000", "usable_bytes: is 99,000,000,000; the memory has 25,769,803,776"),
        ("power_w: -1", "power_w: is -1; it must be above 0"),
        ("power_w: .nan", "power_w: is nan; it must be above 0"),
        ("flops_per_s: {fp8: 1e14}", "flops_per_s: lacks bf16"),
        ("flops_per_s: {bf16: 1, fp9: 1}", 'flops_per_s.fp9: is not known; did you mean "fp8"?'),
    ],
)
def test_figures_of_an_accelerator_that_cannot_be(figures: str, expected: str) -> None:
    """By themselves, or beside those of what it is like."""
    (line,) = problems(f"accelerators: {{l4: {{{figures}}}}}")

    assert f"accelerators.l4.{expected}" in line


@pytest.mark.parametrize(
    "figures, expected",
    [
        ("hidden: 5", "lacks vocabulary, layers, context_tokens; write them, or config: "),
        ("config: x.json, like: qwen3-8b", "has config and like; it can be one of them"),
        ("config: nowhere.json", "nowhere.json: cannot be read: No such file or directory"),
        ("like: qwen3-8b, precision: fp9", 'precision: is not known; did you mean "fp8"?'),
        ("layers: [{attention: {type: group}}]", 'type: is not known; did you mean "grouped"?'),
    ],
)
def test_a_model_that_cannot_be(figures: str, expected: str) -> None:
    """Each in the words of its own mistake."""
    assert expected in "\n".join(problems(f"models: {{a: {{{figures}}}}}"))


def test_layers_that_cannot_be() -> None:
    """Parts of a layer are judged beside each other."""
    attention = "{type: grouped, heads: 8, kv_heads: 3, head_dim: 1}"
    experts = "{type: experts, count: 2, chosen: 3, size: 5}"
    text = f"models: {{a: {{layers: [{{count: 5000, attention: {attention}, feed_forward: {experts}}}]}}}}"

    assert [line.partition("layers[0].")[2] for line in problems(text)][:3] == [
        "count: is 5,000; it must be at least 1 and at most 4,096",
        "attention.kv_heads: is 3; it must divide the 8 heads",
        "feed_forward.chosen: is 3; there are only 2 experts",
    ]


def test_mistakes_are_told_together_in_the_order_of_the_file() -> None:
    """One run tells all that can be told."""
    text = "accelerators:\n  l4: {power_w: x}\n  l40s: {per_node: 0}\nprices:\n  l4: {per_hour: 1}\n"

    places = [line.split(": ")[0] for line in problems(text)]

    assert places == [
        "my.yaml:2:17",
        "my.yaml:3:20",
        "my.yaml:5:7",
        "my.yaml:5:8",
    ]


def test_toml_has_no_places() -> None:
    """Its problems name the path alone; a text is no number."""
    assert problems("a = ", "my.toml") == ["my.toml: is not TOML: Invalid value (at end of document)"]
    assert problems('[accelerators.l4]\npower_w = "7"', "my.toml") == [
        "my.toml: accelerators.l4.power_w: needs a number, not text in quotes"
    ]


@settings(max_examples=100, deadline=None)
@given(
    st.text(max_size=60) | st.sampled_from(YAML.split()).map(lambda word: YAML.replace(word, "{x: [1]}", 1))
)
def test_whatever_it_says(text: str) -> None:
    """A file is a catalogue or a list of problems; nothing else escapes."""
    for source in ("my.yaml", "my.toml"):
        with suppress(ConfigurationError):
            assert len(parse_catalog(text, source, SHIPPED).models) >= 103


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    """It is named."""
    with pytest.raises(ConfigurationError, match=r"none\.yaml: cannot be read"):
        load_catalog(tmp_path / "none.yaml", SHIPPED)
