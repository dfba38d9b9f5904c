"""How do we get a model small enough for any machine, and real enough for a real engine?

`python tiny_llama.py FOLDER` writes the configuration, tokenizer and chat template of a Llama with about
a million parameters, as the Hugging Face libraries read them. Weights are not written: vLLM makes dummy
ones, `tiny_gguf.py` draws random ones. The tokenizer is byte-pair encoding trained in a second on the
standard library's sources. Needs `tokenizers`; runs inside an engine's environment.
"""

from __future__ import annotations

import json
import sys
import sysconfig
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers  # type: ignore[import-not-found]

VOCABULARY = 4096
CONTEXT_TOKENS = 8192
SPECIAL = ["<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>"]
BOS, PAD, EOS = 1, 2, 4
CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def train_tokenizer(path: Path) -> None:
    """Byte-level BPE: every text has tokens, and common words have few."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    sources = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    tokenizer.train([str(source) for source in sources], trainer)
    assert tokenizer.get_vocab_size() == VOCABULARY, "the sources hold too few different words"
    tokenizer.save(str(path))


TOKENIZER_CONFIG = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "bos_token": SPECIAL[BOS],
    "eos_token": SPECIAL[EOS],
    "pad_token": SPECIAL[PAD],
    "unk_token": SPECIAL[0],
    "model_max_length": CONTEXT_TOKENS,
    "clean_up_tokenization_spaces": False,
    "chat_template": CHAT_TEMPLATE,
}
MODEL_CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": VOCABULARY,
    "max_position_embeddings": CONTEXT_TOKENS,
    "num_hidden_layers": 2,
    "hidden_size": 128,
    "intermediate_size": 384,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "initializer_range": 0.02,
    "attention_bias": False,
    "mlp_bias": False,
    "tie_word_embeddings": True,
    "dtype": "float32",
    "bos_token_id": BOS,
    "eos_token_id": EOS,
    "pad_token_id": PAD,
}


def main() -> None:
    """Write the three files."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    train_tokenizer(folder / "tokenizer.json")
    (folder / "tokenizer_config.json").write_text(json.dumps(TOKENIZER_CONFIG, indent=1))
    (folder / "config.json").write_text(json.dumps(MODEL_CONFIG, indent=1))


if __name__ == "__main__":
    main()
