"""Cases of later sparse families (see configs.py)."""

import re

from configs import BASE

SMALL = {"vocab_size": 97, "max_position_embeddings": 128, "torch_dtype": "float32", **BASE}

QWEN3_VL_MOE_TEXT = {
    "model_type": "qwen3_vl_moe_text", "hidden_act": "silu", "hidden_size": 56, "intermediate_size": 84,
    "moe_intermediate_size": 36, "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 3,
    "head_dim": 16, "num_experts": 6, "num_experts_per_tok": 2, "norm_topk_prob": True, "decoder_sparse_step": 1,
    "mlp_only_layers": [], "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "rope_scaling":
    {"rope_type": "default", "mrope_section": [4, 2, 2], "mrope_interleaved": True}, "attention_bias": False,
    "tie_word_embeddings": False, **SMALL,
}

QWEN3_VL_MOE = {
    "architectures": ["Qwen3VLMoeForConditionalGeneration"], "model_type": "qwen3_vl_moe",
    "tie_word_embeddings": False, "text_config": QWEN3_VL_MOE_TEXT, "vision_config": {
        "model_type": "qwen3_vl_moe_vision", "depth": 1, "hidden_size": 16, "intermediate_size": 24, "num_heads": 2,
        "in_channels": 3, "patch_size": 4, "spatial_merge_size": 2, "temporal_patch_size": 2, "out_hidden_size": 56,
        "num_position_embeddings": 16, "deepstack_visual_indexes": [0]},
    "image_token_id": 90, "video_token_id": 91, "vision_start_token_id": 92, "vision_end_token_id": 93,
}

def turned_experts(saved, config):
    """Experts as [experts, in, out], which is how the models are published."""
    layout = {}
    for name, shape in saved.items():
        turns = name.endswith((".experts.gate_up_proj", ".experts.down_proj"))
        layout[name] = ([shape[0], shape[2], shape[1]] if turns else shape,
                        {name: (lambda x: x.transpose(0, 2, 1)) if turns else (lambda x: x)})
    return layout


HUNYUAN_MOE = {
    "architectures": ["HunYuanMoEV1ForCausalLM"], "model_type": "hunyuan_v1_moe", "hidden_act": "silu",
    "hidden_size": 56, "intermediate_size": 44, "num_hidden_layers": 3, "num_attention_heads": 6,
    "num_key_value_heads": 2, "head_dim": 18, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "attention_bias": False,
    "num_experts": 6, "moe_topk": 2, "tie_word_embeddings": True, **SMALL,
}

MIMO_V2 = {
    "architectures": ["MiMoV2FlashForCausalLM"], "model_type": "mimo_v2_flash", "hidden_act": "silu", "hidden_size": 56,
    "intermediate_size": 84, "num_hidden_layers": 4, "num_attention_heads": 6, "num_key_value_heads": 1, "head_dim": 24,
    "v_head_dim": 14, "rms_norm_eps": 1e-5, "attention_bias": False, "sliding_window": 7, "layer_types":
    ["full_attention", "sliding_attention", "sliding_attention", "full_attention"], "rope_parameters": {
        "full_attention": {"rope_type": "default", "rope_theta": 100000.0, "partial_rotary_factor": 0.334},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1000.0, "partial_rotary_factor": 0.334}},
    "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"], "attention_value_scale": 0.707, "n_routed_experts": 8,
    "num_experts_per_tok": 2, "moe_intermediate_size": 28, "n_group": 1, "topk_group": 1, "norm_topk_prob": True,
    "routed_scaling_factor": 1.0, "tie_word_embeddings": False, **SMALL,
}

MISTRAL4 = {
    "architectures": ["Mistral4ForCausalLM"], "model_type": "mistral4", "hidden_act": "silu", "hidden_size": 60,
    "intermediate_size": 76, "moe_intermediate_size": 26, "num_hidden_layers": 2, "num_attention_heads": 6,
    "num_key_value_heads": 6, "n_shared_experts": 1, "n_routed_experts": 8, "num_experts_per_tok": 3,
    "routed_scaling_factor": 1.0, "kv_lora_rank": 22, "q_lora_rank": 28, "qk_rope_head_dim": 10, "v_head_dim": 18,
    "qk_nope_head_dim": 14, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 0, "norm_topk_prob": True,
    "rms_norm_eps": 1e-6, "rope_interleave": True, "attention_bias": False, "rope_parameters": {
        "rope_type": "yarn", "type": "yarn", "rope_theta": 10000.0, "factor": 4.0,
        "original_max_position_embeddings": 12, "beta_fast": 32.0, "beta_slow": 1.0, "mscale_all_dim": 1.0,
        "mscale": 1.0, "llama_4_scaling_beta": 0.5, "partial_rotary_factor": 10 / 24},
    "tie_word_embeddings": False, **SMALL,
}

COHERE2_MOE = {
    "architectures": ["Cohere2MoeForCausalLM"], "model_type": "cohere2_moe", "hidden_act": "silu", "hidden_size": 60,
    "intermediate_size": 28, "prefix_dense_intermediate_size": 76, "num_hidden_layers": 4, "num_attention_heads": 6,
    "num_key_value_heads": 2, "head_dim": 14, "layer_norm_eps": 1e-5, "rope_theta": 10000.0, "sliding_window": 7,
    "sliding_window_pattern": 3, "prefix_dense_sliding_window_pattern": 1, "first_k_dense_replace": 1,
    "attention_bias": False, "logit_scale": 0.25, "num_experts": 6, "num_experts_per_tok": 2, "num_shared_experts": 2,
    "shared_expert_combination_strategy": "average", "expert_selection_fn": "softmax", "norm_topk_prob": True,
    "tie_word_embeddings": True, **SMALL,
}

CASES = {
    "qwen3_vl_moe-published": {
        "config": QWEN3_VL_MOE, "below": 88, "layout": turned_experts,
        "mutants": [{"text_config": {"num_experts_per_tok": 3}}],
    },
    "qwen3_vl_moe-dense-first": {
        "config": {**QWEN3_VL_MOE, "text_config": {**QWEN3_VL_MOE_TEXT, "mlp_only_layers": [0], "attention_bias": True,
                                                   "num_key_value_heads": 1, "norm_topk_prob": False}},
        "below": 88,
        "mutants": [{"text_config": {"rope_theta": 1000.0}}, {"text_config": {"num_experts_per_tok": 1}}],
    },
    "hunyuan_v1_moe-alpha": {
        "config": {**HUNYUAN_MOE, "rope_scaling": {"type": "dynamic", "rope_type": "dynamic", "alpha": 50.0,
                                                   "factor": 1.0}},
        "mutants": [{"moe_topk": 3}, {"rope_scaling": {"alpha": 2.0}}],
    },
    "hunyuan_v1_moe-bias": {
        "config": {**HUNYUAN_MOE, "attention_bias": True, "tie_word_embeddings": False, "num_key_value_heads": 6,
                   "moe_topk": 4, "rms_norm_eps": 1e-2},
        "mutants": [{"rms_norm_eps": 1e-5}, {"rope_theta": 100.0}],
    },
    "mimo_v2_flash-saved": {
        "config": MIMO_V2,
        "mutants": [{"sliding_window": 9}, {"attention_value_scale": 1.0}, {"num_experts_per_tok": 3},
                    {"rope_parameters": {"sliding_attention": {"rope_theta": 100000.0}}}],
    },
    "mimo_v2_flash-groups": {
        "config": {**MIMO_V2, "attention_bias": True, "num_key_value_heads": 3, "n_group": 4, "topk_group": 2,
                   "norm_topk_prob": False, "routed_scaling_factor": 1.5, "num_hidden_layers": 3, "layer_types":
                   ["sliding_attention", "full_attention", "sliding_attention"], "mlp_layer_types":
                   ["sparse", "dense", "sparse"]},
        "mutants": [{"topk_group": 4}, {"routed_scaling_factor": 1.0}],
    },
    "mistral4-temperature": {
        "config": MISTRAL4,
        "mutants": [{"rope_parameters": {"llama_4_scaling_beta": 0.1}}, {"rope_parameters": {"mscale_all_dim": 0.5}},
                    {"num_experts_per_tok": 2}],
    },
    "mistral4-groups": {
        "config": {**MISTRAL4, "q_lora_rank": None, "attention_bias": True, "n_group": 4, "topk_group": 2,
                   "first_k_dense_replace": 1, "norm_topk_prob": False, "routed_scaling_factor": 2.0,
                   "num_hidden_layers": 3, "n_shared_experts": 2},
        "also_saved": False,
        "mutants": [{"topk_group": 4}, {"routed_scaling_factor": 1.0}],
    },
    "cohere2_moe-average": {
        "config": COHERE2_MOE,
        "mutants": [{"shared_expert_combination_strategy": "sum"}, {"sliding_window": 9}, {"num_experts_per_tok": 3},
                    {"logit_scale": 0.5}],
    },
    "cohere2_moe-sigmoid": {
        "config": {**COHERE2_MOE, "expert_selection_fn": "sigmoid", "shared_expert_combination_strategy": "sum",
                   "num_shared_experts": 1, "attention_bias": True, "rms_norm_eps": 1e-3, "first_k_dense_replace": 0,
                   "num_hidden_layers": 3, "sliding_window_pattern": 2},
        "mutants": [{"norm_topk_prob": False}, {"rms_norm_eps": 1e-1}],
    },
}

PHIMOE = {
    "architectures": ["PhimoeForCausalLM"], "model_type": "phimoe", "hidden_act": "silu", "hidden_size": 60,
    "intermediate_size": 44, "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 2,
    "num_local_experts": 6, "num_experts_per_tok": 2, "router_jitter_noise": 0.3, "input_jitter_noise": 0.01,
    "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "attention_bias": True, "lm_head_bias": True,
    "tie_word_embeddings": False, "sliding_window": None, **SMALL,
}

CASES |= {
    "phimoe-plain": {
        "config": PHIMOE,
        "mutants": [{"rope_theta": 100.0}, {"rms_norm_eps": 0.5}],
    },
    "phimoe-long": {
        "config": {**PHIMOE, "attention_bias": False, "lm_head_bias": False, "num_key_value_heads": 6,
                   "router_jitter_noise": 0.05, "num_hidden_layers": 3, "rope_scaling": {
                       "type": "longrope", "rope_type": "longrope", "short_factor": [1.0, 1.1, 1.2, 1.3, 1.5],
                       "long_factor": [1.0, 1.3, 1.9, 3.0, 5.0], "short_mscale": 1.2, "long_mscale": 1.2,
                       "original_max_position_embeddings": 24}, "original_max_position_embeddings": 24},
        # transformers takes the short factors at every length; the publisher's model the long ones past the original.
        "reference_config": lambda c: {**c, "rope_scaling": {**c["rope_scaling"],
                                                             "short_factor": c["rope_scaling"]["long_factor"]}},
        "also_saved": False,
        "mutants": [{"rope_scaling": {"long_mscale": 1.0, "short_mscale": 1.0}}, {"router_jitter_noise": 0.4}],
    },
}

STEP3P5 = {
    "architectures": ["Step3p5ForCausalLM"], "model_type": "step3p5", "hidden_size": 60, "intermediate_size": 76,
    "num_hidden_layers": 4, "num_attention_heads": 6, "num_attention_groups": 2, "head_dim": 16, "rms_norm_eps": 1e-5,
    "rope_theta": [100000.0, 1000.0, 1000.0, 100000.0], "partial_rotary_factors": [0.5, 1.0, 1.0, 0.5],
    "rope_scaling": {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                     "original_max_position_embeddings": 32},
    "yarn_only_types": ["full_attention"], "sliding_window": 7, "layer_types":
    ["full_attention", "sliding_attention", "sliding_attention", "full_attention"], "attention_other_setting":
    {"num_attention_heads": 4, "num_attention_groups": 1}, "use_head_wise_attn_gate": True, "moe_layers_enum": "1,2,3",
    "moe_num_experts": 7, "moe_top_k": 3, "moe_intermediate_size": 26, "share_expert_dim": 30,
    "moe_router_scaling_factor": 1.5, "norm_expert_weight": True, "swiglu_limits": [0.0, 0.5, 0.0, 0.5],
    "swiglu_limits_shared": [0.5, 0.0, 0.5, 0.0], "tie_word_embeddings": False, **SMALL,
}

PUBLISHED_STEP = [(r"\.mlp\.switch_mlp\.", ".moe."), (r"\.mlp\.gate\.gate\.", ".moe.gate."),
                  (r"\.mlp\.gate\.router_bias", ".moe.router_bias"), (r"\.mlp\.share_expert\.", ".share_expert.")]

CASES |= {
    "step3p5-published": {
        "oracle": "mlx", "config": STEP3P5, "rename": PUBLISHED_STEP,
        "mutants": [{"sliding_window": 9}, {"swiglu_limits": [0.0, 0.0, 0.0, 0.0]}, {"moe_top_k": 2},
                    {"rope_theta": [1000.0, 1000.0, 1000.0, 1000.0]}, {"yarn_only_types": ["sliding_attention"]}],
    },
    "step3p5-converted": {
        "oracle": "mlx",
        "config": {**STEP3P5, "use_head_wise_attn_gate": False, "norm_expert_weight": False, "moe_layers_enum": "2",
                   "attention_other_setting": None, "num_hidden_layers": 3, "layer_types": None, "rope_theta": 10000.0,
                   "rope_scaling": None, "yarn_only_types": None, "partial_rotary_factors": None,
                   "swiglu_limits": None},
        "drop": ["attention_other_setting", "layer_types", "rope_scaling", "yarn_only_types", "partial_rotary_factors",
                 "swiglu_limits"],
        "mutants": [{"moe_router_scaling_factor": 3.0}, {"swiglu_limits_shared": [0.0, 0.0, 0.0]}],
    },
}

DBRX = {
    "architectures": ["DbrxForCausalLM"], "model_type": "dbrx", "d_model": 60, "n_layers": 2, "n_heads": 6,
    "max_seq_len": 128, "vocab_size": 97, "attn_config": {"kv_n_heads": 2, "clip_qkv": 0.8, "rope_theta": 10000.0},
    "ffn_config": {"ffn_hidden_size": 28, "moe_num_experts": 6, "moe_top_k": 2}, **BASE,
}


def published_dbrx(saved, config):
    """Experts one after another: w1 and v1 [experts * width, hidden], w2 turned to the same."""
    layout, count = {}, config["ffn_config"]["moe_num_experts"]
    for name, shape in saved.items():
        found = re.fullmatch(r"(.*\.ffn\.experts)\.(\d+)\.(w1|v1|w2)\.weight", name)
        if not found:
            layout[name] = (shape, {name: lambda x: x})
        elif found[2] == "0":
            width, hidden = shape[::-1] if found[3] == "w2" else shape
            own = f"{found[1]}.mlp.{found[3]}"
            layout[own] = ([count * width, hidden], {own: lambda x: x})
    return layout


CASES |= {
    "dbrx-published": {
        "oracle": "mlx", "config": DBRX, "layout": published_dbrx,
        "mutants": [{"attn_config": {"clip_qkv": 2.0}}, {"ffn_config": {"moe_top_k": 3}},
                    {"attn_config": {"rope_theta": 100.0}}],
    },
    "dbrx-numbered": {
        "oracle": "mlx",
        "config": {**DBRX, "n_layers": 3, "attn_config": {"kv_n_heads": 6, "clip_qkv": 8.0, "rope_theta": 500000.0},
                   "ffn_config": {"ffn_hidden_size": 44, "moe_num_experts": 5, "moe_top_k": 4}},
        "mutants": [{"attn_config": {"clip_qkv": 0.3}}, {"ffn_config": {"moe_top_k": 2}}],
    },
}
