"""What kind of attention does each layer of a config.json have?

One function for each family of models: it takes the fields and the number of layers, and returns one
attention for each layer. The meaning of the fields is that of the families' code in Hugging Face
transformers, as remembered and not copied; what vouches for it is that parameters come out as published
(`tests/catalog/test_huggingface.py`). Others are in `latents` and `hybrids`.
"""

from __future__ import annotations

from tidegate.catalog.fields import Fields
from tidegate.catalog.models import (
    Attention,
    GroupedAttention,
    NoAttention,
)

_ALL, _WINDOW, _CHUNK = "full_attention", "sliding_attention", "chunked_attention"


def grouped(fields: Fields, layers: int) -> list[Attention]:
    """One attention for all layers, with a window where `layer_types` or `sliding_window` say so."""
    windows = _windows(fields, layers)
    kinds: dict[int | None, Attention] = {
        window: grouped_attention(fields, window_tokens=window) for window in dict.fromkeys(windows)
    }
    return [kinds[window] for window in windows]


def grouped_attention(
    fields: Fields, *, window_tokens: int | None = None, gated: bool = False
) -> GroupedAttention:
    """The attention that the common fields describe."""
    heads = fields.size("num_attention_heads")
    return GroupedAttention(
        heads=heads,
        kv_heads=_kv_heads(fields, "num_key_value_heads", heads),
        head_dim=head_dim(fields, heads),
        window_tokens=window_tokens,
        gated=gated,
    )


def head_dim(fields: Fields, heads: int) -> int:
    """As stated, else what the heads share of the hidden size."""
    stated = fields.maybe("head_dim") or fields.maybe("attention_head_dim")
    if stated is not None:
        return stated
    hidden = fields.size("hidden_size")
    if hidden % heads:
        fields.wrong("num_attention_heads", f"must divide hidden_size ({hidden}), or head_dim must be set")
    return hidden // heads


def _kv_heads(fields: Fields, name: str, heads: int) -> int:
    kv_heads = fields.size(name, heads)
    if heads % kv_heads:
        fields.wrong(name, f"must divide the {heads} attention heads")
    return kv_heads


def _windows(fields: Fields, layers: int) -> list[int | None]:
    """What each layer attends to at most; None: all."""
    types = layer_types(fields, layers)
    if types:
        sizes = {_WINDOW: "sliding_window", _CHUNK: "attention_chunk_size"}
        for kind in types:
            if kind not in (_ALL, *sizes):
                fields.wrong("layer_types", f"must be of {_ALL}, {', '.join(sizes)} here")
        fields.ignore(["sliding_window", "attention_chunk_size"])
        return [fields.size(sizes[kind]) if kind in sizes else None for kind in types]
    window = fields.maybe("sliding_window")
    if not fields.flag("use_sliding_window", default=True):
        return [None] * layers
    # Qwen2: the first `max_window_layers` see everything, the others have the window.
    whole = fields.size("max_window_layers", 0, least=0) if fields.has("use_sliding_window") else 0
    return [None if i < whole else window for i in range(layers)]


def layer_types(fields: Fields, layers: int, name: str = "layer_types") -> list[str]:
    """A word for each layer, or nothing where the field is absent."""
    types = fields.texts(name)
    if types and len(types) != layers:
        fields.wrong(name, f"must have one item for each of the {layers} layers, not {len(types)}")
    return types


def gemma(fields: Fields, layers: int) -> list[Attention]:
    """Gemma 2 and 3: without `layer_types`, the last of every 2 or 6 layers sees everything."""
    if fields.has("layer_types") or not fields.has("sliding_window"):
        return grouped(fields, layers)
    period = fields.size("sliding_window_pattern", 2 if fields.text("model_type") == "gemma2" else 6)
    window = fields.maybe("sliding_window")
    narrow, wide = grouped_attention(fields, window_tokens=window), grouped_attention(fields)
    return [wide if (i + 1) % period == 0 else narrow for i in range(layers)]


def gemma4(fields: Fields, layers: int) -> list[Attention]:
    """Layers with a window, and wider ones that see everything and may make value and key of one matrix."""
    fields.without("num_kv_shared_layers")
    types = layer_types(fields, layers) or fields.lacking("layer_types", "a list")
    narrow = grouped_attention(fields, window_tokens=fields.size("sliding_window"))
    shared = fields.flag("attention_k_eq_v")
    kv_name = "num_global_key_value_heads" if shared else "num_key_value_heads"
    fields.ignore(["num_global_key_value_heads"])
    wide = GroupedAttention(
        heads=narrow.heads,
        kv_heads=_kv_heads(fields, kv_name, narrow.heads)
        if fields.has(kv_name)
        else _kv_heads(fields, "num_key_value_heads", narrow.heads),
        head_dim=fields.size("global_head_dim", narrow.head_dim),
        shared_kv=shared,
    )
    kinds = {_WINDOW: narrow, _ALL: wide}
    if not kinds.keys() >= set(types):
        fields.wrong("layer_types", f"must be of {', '.join(kinds)} here")
    return [kinds[kind] for kind in types]


def llama4(fields: Fields, layers: int) -> list[Attention]:
    """Three layers in four attend within chunks; `no_rope_layers` has a 0 for the fourth."""
    if fields.has("layer_types"):
        return grouped(fields, layers)
    marks = fields.sizes("no_rope_layers")
    if marks and len(marks) != layers:
        fields.wrong("no_rope_layers", f"must have one item for each of the {layers} layers")
    chunk = fields.maybe("attention_chunk_size")
    narrow, wide = grouped_attention(fields, window_tokens=chunk), grouped_attention(fields)
    return [narrow if (marks[i] if marks else (i + 1) % 4) else wide for i in range(layers)]


def mimo_v2(fields: Fields, layers: int) -> list[Attention]:
    """Two shapes: with a window where `hybrid_layer_pattern` is 1."""
    pattern = fields.sizes("hybrid_layer_pattern", most=1)
    if len(pattern) != layers:
        fields.wrong("hybrid_layer_pattern", f"must have one item for each of the {layers} layers")
    fields.ignore(["attention_chunk_size", "sliding_window_size"])

    def of(prefix: str, window: int | None) -> GroupedAttention:
        heads = fields.size(f"{prefix}num_attention_heads")
        return GroupedAttention(
            heads=heads,
            kv_heads=_kv_heads(fields, f"{prefix}num_key_value_heads", heads),
            head_dim=fields.size(f"{prefix}head_dim"),
            value_dim=fields.maybe(f"{prefix}v_head_dim"),
            window_tokens=window,
        )

    wide, narrow = of("", None), of("swa_", fields.size("sliding_window"))
    return [narrow if mark else wide for mark in pattern]


def minimax_m3(fields: Fields, layers: int) -> list[Attention]:
    """Sparse layers attend to blocks that an indexer chooses."""
    plain = grouped_attention(fields, gated=fields.flag("attention_output_gate"))
    sparse = fields.section("sparse_attention_config")
    if not sparse.flag("use_sparse_attention"):
        return [plain] * layers
    marks = sparse.sizes("sparse_attention_freq", most=1)
    if len(marks) != layers:
        sparse.wrong("sparse_attention_freq", f"must have one item for each of the {layers} layers")
    chosen = GroupedAttention(
        heads=plain.heads,
        kv_heads=plain.kv_heads,
        head_dim=plain.head_dim,
        gated=plain.gated,
        top_tokens=sparse.size("sparse_topk_blocks") * sparse.size("sparse_block_size"),
        indexer_heads=sparse.size("sparse_num_index_heads"),
        indexer_dim=sparse.size("sparse_index_dim"),
    )
    return [chosen if mark else plain for mark in marks]


def nemotron_nas(fields: Fields, layers: int) -> list[Attention]:
    """Each layer has a shape of its own, or no attention at all."""
    fields.ignore(["num_key_value_heads"])
    return [_block_attention(fields, block) for block in blocks(fields, layers)]


def blocks(fields: Fields, layers: int) -> list[Fields]:
    """`block_configs`, one for each layer."""
    found = fields.section_list("block_configs")
    if len(found) != layers:
        fields.wrong("block_configs", f"must have one item for each of the {layers} layers")
    return found


def _block_attention(fields: Fields, block: Fields) -> Attention:
    attention = block.section("attention")
    if attention.flag("no_op"):
        return NoAttention()
    attention.without("replace_with_linear")
    attention.without("sparsify")
    heads = fields.size("num_attention_heads")
    group = attention.size("n_heads_in_group")
    if heads % group:
        attention.wrong("n_heads_in_group", f"must divide the {heads} attention heads")
    return GroupedAttention(
        heads=heads,
        kv_heads=heads // group,
        head_dim=head_dim(fields, heads),
        window_tokens=attention.maybe("window_length"),
    )
