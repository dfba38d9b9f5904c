"""A small config.json of each kind of family, as the hub would have it: for tests that break them."""

from __future__ import annotations

COMMON: dict[str, object] = {
    "hidden_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "vocab_size": 1000,
    "max_position_embeddings": 4096,
}
LLAMA = COMMON | {"model_type": "llama", "num_key_value_heads": 2, "intermediate_size": 512}
QWEN2 = LLAMA | {
    "model_type": "qwen2",
    "sliding_window": 128,
    "use_sliding_window": True,
    "max_window_layers": 3,
}
QWEN_MOE = LLAMA | {
    "model_type": "qwen3_moe",
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 64,
    "mlp_only_layers": [0],
}
MIXTRAL = LLAMA | {"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}
GPT_OSS = MIXTRAL | {
    "model_type": "gpt_oss",
    "head_dim": 64,
    "sliding_window": 128,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
    "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]},
}
LLAMA4: dict[str, object] = {
    "model_type": "llama4",
    "vision_config": {"hidden_size": 64},
    "text_config": MIXTRAL
    | {
        "model_type": "llama4_text",
        "attention_chunk_size": 512,
        "interleave_moe_layer_step": 2,
        "intermediate_size_mlp": 1024,
    },
}
GEMMA3: dict[str, object] = {
    "model_type": "gemma3",
    "text_config": LLAMA
    | {"model_type": "gemma3_text", "num_hidden_layers": 7, "sliding_window": 128, "head_dim": 32},
}
GEMMA4: dict[str, object] = {
    "model_type": "gemma4",
    "text_config": LLAMA
    | {
        "model_type": "gemma4_text",
        "layer_types": ["sliding_attention"] * 3 + ["full_attention"],
        "sliding_window": 128,
        "head_dim": 32,
        "global_head_dim": 64,
        "num_global_key_value_heads": 1,
        "attention_k_eq_v": True,
        "enable_moe_block": True,
        "num_experts": 8,
        "top_k_experts": 2,
        "moe_intermediate_size": 64,
    },
}
DEEPSEEK = COMMON | {
    "model_type": "deepseek_v3",
    "q_lora_rank": 64,
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 16,
    "intermediate_size": 512,
    "first_k_dense_replace": 1,
    "n_routed_experts": 8,
    "n_shared_experts": 2,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 64,
}
GLM = DEEPSEEK | {
    "model_type": "glm_moe_dsa",
    "index_topk": 256,
    "index_n_heads": 4,
    "index_head_dim": 16,
    "indexer_types": ["full", "shared", "full", "shared"],
}
DEEPSEEK_V4 = COMMON | {
    "model_type": "deepseek_v4",
    "head_dim": 64,
    "q_lora_rank": 64,
    "o_lora_rank": 32,
    "o_groups": 2,
    "sliding_window": 128,
    "compress_ratios": [0, 4, 128, 4, 0],
    "index_topk": 256,
    "index_n_heads": 4,
    "index_head_dim": 16,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 64,
}
QWEN_NEXT = QWEN_MOE | {
    "model_type": "qwen3_next",
    "mlp_only_layers": [],
    "full_attention_interval": 4,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 16,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_value_head_dim": 16,
    "shared_expert_intermediate_size": 64,
}
NEMOTRON_H = LLAMA | {
    "model_type": "nemotron_h",
    "hybrid_override_pattern": "M*-E",
    "head_dim": 32,
    "mamba_num_heads": 4,
    "mamba_head_dim": 32,
    "ssm_state_size": 16,
    "n_groups": 2,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 64,
    "moe_shared_expert_intermediate_size": 128,
    "moe_latent_size": 32,
}
NEMOTRON_NAS = COMMON | {
    "model_type": "nemotron-nas",
    "block_configs": [
        {"attention": {"n_heads_in_group": 4}, "ffn": {"ffn_mult": 3.0}},
        {"attention": {"n_heads_in_group": 4}, "ffn": {"ffn_mult": 3.0}},
        {"attention": {"no_op": True}, "ffn": {"ffn_mult": 1.5}},
        {"attention": {"n_heads_in_group": 8, "window_length": 128}, "ffn": {"no_op": True}},
    ],
}
KIMI_LINEAR: dict[str, object] = {
    "model_type": "kimi_linear",
    "text_config": DEEPSEEK
    | {
        "model_type": "kimi_linear",
        "linear_attn_config": {
            "full_attn_layers": [4],
            "kda_layers": [1, 2, 3],
            "head_dim": 16,
            "num_heads": 8,
            "short_conv_kernel_size": 4,
        },
        "n_routed_experts": None,
        "n_shared_experts": None,
        "num_experts_per_tok": None,
        "num_experts": 8,
        "num_experts_per_token": 2,
        "num_shared_experts": 1,
    },
}
MINIMAX_M3 = MIXTRAL | {
    "model_type": "minimax_m3",
    "dense_intermediate_size": 1024,
    "moe_layer_freq": [0, 1, 1, 1],
    "sparse_attention_config": {
        "use_sparse_attention": True,
        "sparse_attention_freq": [0, 1, 1, 1],
        "sparse_topk_blocks": 2,
        "sparse_block_size": 64,
        "sparse_num_index_heads": 2,
        "sparse_index_dim": 16,
    },
}
MIMO_V2 = LLAMA | {
    "model_type": "mimo_v2_flash",
    "head_dim": 48,
    "v_head_dim": 32,
    "swa_num_attention_heads": 8,
    "swa_num_key_value_heads": 4,
    "swa_head_dim": 48,
    "swa_v_head_dim": 32,
    "sliding_window": 128,
    "hybrid_layer_pattern": [0, 1, 1, 1],
    "moe_layer_freq": [0, 1, 1, 1],
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 64,
}

ALL: dict[str, dict[str, object]] = {
    name.lower(): value for name, value in list(globals().items()) if name.isupper() and name != "COMMON"
}
