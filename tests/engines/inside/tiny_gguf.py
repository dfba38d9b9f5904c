"""What weights does a model need whose answers nobody reads? Random ones, always the same.

`python tiny_gguf.py FOLDER OUT.gguf` packs what `tiny_llama.py` wrote, with weights drawn from one
seed, into the file that llama.cpp loads. Needs `gguf` and `numpy`; runs inside an engine's environment.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import gguf  # type: ignore[import-not-found]
import numpy as np

SEED = 0
SPREAD = 0.05
EMBEDDING_SPREAD = 0.5
"""Large enough that tokens differ: else every prompt would get the same answer."""


def write_shape(writer: Any, config: dict[str, Any]) -> None:
    """The model's dimensions."""
    writer.add_name("tiny-llama")
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_vocab_size(config["vocab_size"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])


def write_tokenizer(writer: Any, config: dict[str, Any], folder: Path) -> None:
    """The same tokens and template that the other engine gets."""
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    special = {token["id"] for token in tokenizer["added_tokens"]}
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(
        [gguf.TokenType.CONTROL if i in special else gguf.TokenType.NORMAL for i in range(len(tokens))]
    )
    writer.add_token_merges(
        [merge if isinstance(merge, str) else " ".join(merge) for merge in tokenizer["model"]["merges"]]
    )
    writer.add_bos_token_id(config["bos_token_id"])
    writer.add_eos_token_id(config["eos_token_id"])
    writer.add_pad_token_id(config["pad_token_id"])
    writer.add_add_bos_token(False)
    writer.add_chat_template(settings["chat_template"])


def tensor_shapes(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor that llama.cpp asks a Llama for."""
    hidden, inner, vocabulary = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    queries = config["num_attention_heads"] * config["head_dim"]
    keys = config["num_key_value_heads"] * config["head_dim"]
    layer = {
        "attn_norm": (hidden,),
        "attn_q": (queries, hidden),
        "attn_k": (keys, hidden),
        "attn_v": (keys, hidden),
        "attn_output": (hidden, queries),
        "ffn_norm": (hidden,),
        "ffn_gate": (inner, hidden),
        "ffn_up": (inner, hidden),
        "ffn_down": (hidden, inner),
    }
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (vocabulary, hidden),
        "output_norm.weight": (hidden,),
        "output.weight": (vocabulary, hidden),
    }
    for i in range(config["num_hidden_layers"]):
        shapes |= {f"blk.{i}.{name}.weight": shape for name, shape in layer.items()}
    return shapes


def write_weights(writer: Any, config: dict[str, Any]) -> None:
    """Norms are ones, matrices are normal."""
    rng = np.random.default_rng(SEED)
    for name, shape in tensor_shapes(config).items():
        spread = EMBEDDING_SPREAD if name == "token_embd.weight" else SPREAD
        values = np.ones(shape) if len(shape) == 1 else rng.normal(0, spread, shape)
        writer.add_tensor(name, values.astype(np.float32))


def main() -> None:
    """Write the file."""
    folder, out = Path(sys.argv[1]), Path(sys.argv[2])
    config = json.loads((folder / "config.json").read_text())
    writer = gguf.GGUFWriter(out, "llama")
    write_shape(writer, config)
    write_tokenizer(writer, config, folder)
    write_weights(writer, config)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
