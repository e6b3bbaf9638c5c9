"""Cases of families with recurrent layers, and of Gemma's later ones (see configs.py)."""

from configs import BASE, BERT, quantized

SMALL = {"vocab_size": 97, "max_position_embeddings": 128, "torch_dtype": "float32", **BASE}

QWEN3_NEXT = {
    "architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next", "hidden_act": "silu",
    "hidden_size": 52, "intermediate_size": 92, "moe_intermediate_size": 36, "shared_expert_intermediate_size": 44,
    "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 20,
    "num_experts": 6, "num_experts_per_tok": 2, "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": [],
    "full_attention_interval": 3, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 12,
    "linear_value_head_dim": 20, "linear_conv_kernel_dim": 4, "partial_rotary_factor": 0.5, "rope_theta": 10000.0,
    "rms_norm_eps": 1e-6, "attention_bias": False, "tie_word_embeddings": False, **SMALL,
}

QWEN3_5_TEXT = {
    "hidden_act": "silu", "hidden_size": 56, "intermediate_size": 84, "num_hidden_layers": 3,
    "num_attention_heads": 6, "num_key_value_heads": 3, "head_dim": 16, "layer_types":
    ["linear_attention", "full_attention", "linear_attention"], "linear_num_key_heads": 3,
    "linear_num_value_heads": 3, "linear_key_head_dim": 20, "linear_value_head_dim": 12, "linear_conv_kernel_dim": 3,
    "rms_norm_eps": 1e-6, "attention_bias": False, "rope_parameters":
    {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5, "mrope_section": [2, 1, 1]},
    "vocab_size": 101, "max_position_embeddings": 128, **BASE,
}

QWEN3_5 = {"architectures": ["Qwen3_5ForCausalLM"], "model_type": "qwen3_5_text", **QWEN3_5_TEXT, "dtype": "float32",
           "tie_word_embeddings": True}

QWEN3_5_MOE = {
    **QWEN3_5, "architectures": ["Qwen3_5MoeForCausalLM"], "model_type": "qwen3_5_moe_text", "num_experts": 6,
    "num_experts_per_tok": 2, "moe_intermediate_size": 28, "shared_expert_intermediate_size": 36,
}

QWEN3_5_VISION = {
    "model_type": "qwen3_5_vision", "depth": 1, "hidden_size": 16, "intermediate_size": 24, "num_heads": 2, "in_channels": 3,
    "patch_size": 4, "spatial_merge_size": 2, "temporal_patch_size": 2, "out_hidden_size": 56,
    "num_position_embeddings": 16,
}

LFM2 = {
    "architectures": ["Lfm2ForCausalLM"], "model_type": "lfm2", "hidden_size": 48, "intermediate_size": 130,
    "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "norm_eps": 1e-5,
    "conv_bias": False, "conv_L_cache": 3, "block_multiple_of": 16, "block_ffn_dim_multiplier": 1.0,
    "block_auto_adjust_ff_dim": True, "full_attn_idxs": [1], "rope_theta": 10000.0, "tie_word_embeddings": True, **SMALL,
}

LFM2_MOE = {
    "architectures": ["Lfm2MoeForCausalLM"], "model_type": "lfm2_moe", "hidden_size": 56, "intermediate_size": 76,
    "moe_intermediate_size": 40, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 1,
    "norm_eps": 1e-5, "conv_bias": False, "conv_L_cache": 4, "num_dense_layers": 1, "num_experts": 6,
    "num_experts_per_tok": 2, "norm_topk_prob": True, "use_expert_bias": True, "routed_scaling_factor": 1.0,
    "layer_types": ["conv", "full_attention", "conv", "conv"], "rope_theta": 10000.0, "tie_word_embeddings": True, **SMALL,
}

MAMBA = {
    "architectures": ["MambaForCausalLM"], "model_type": "mamba", "hidden_act": "silu", "hidden_size": 40, "expand": 2,
    "state_size": 6, "conv_kernel": 4, "num_hidden_layers": 3, "vocab_size": 94, "use_bias": False,
    "use_conv_bias": True, "layer_norm_epsilon": 1e-5, "residual_in_fp32": True, "time_step_rank": "auto",
    "tie_word_embeddings": True, "torch_dtype": "float32", "pad_token_id": 0, **BASE,
}

FALCON_MAMBA = {**MAMBA, "architectures": ["FalconMambaForCausalLM"], "model_type": "falcon_mamba",
                "mixer_rms_eps": 1e-6, "use_mambapy": False}

JAMBA = {
    "architectures": ["JambaForCausalLM"], "model_type": "jamba", "hidden_act": "silu", "hidden_size": 48,
    "intermediate_size": 60, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
    "rms_norm_eps": 1e-6, "num_experts": 6, "num_experts_per_tok": 2, "expert_layer_period": 2,
    "expert_layer_offset": 1, "attn_layer_period": 4, "attn_layer_offset": 2, "mamba_d_state": 6, "mamba_d_conv": 4,
    "mamba_expand": 2, "mamba_dt_rank": 7, "mamba_conv_bias": True, "mamba_proj_bias": False,
    "use_mamba_kernels": False, "tie_word_embeddings": False, **SMALL,
}

FALCON_H1 = {
    "architectures": ["FalconH1ForCausalLM"], "model_type": "falcon_h1", "hidden_act": "silu", "hidden_size": 48,
    "intermediate_size": 68, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "attention_bias": False, "mlp_bias": False, "projectors_bias": False,
    "mamba_d_ssm": 60, "mamba_n_heads": 6, "mamba_d_head": 10, "mamba_n_groups": 2, "mamba_d_state": 12,
    "mamba_d_conv": 4, "mamba_expand": 2, "mamba_chunk_size": 16, "mamba_conv_bias": True, "mamba_proj_bias": False,
    "mamba_norm_before_gate": False, "mamba_rms_norm": True, "embedding_multiplier": 2.5, "lm_head_multiplier": 0.6,
    "key_multiplier": 0.7, "attention_in_multiplier": 1.3, "attention_out_multiplier": 0.8, "ssm_in_multiplier": 1.2,
    "ssm_out_multiplier": 0.6, "ssm_multipliers": [0.8, 1.2, 0.9, 1.1, 0.7], "mlp_multipliers": [0.8, 0.6],
    "tie_word_embeddings": False, **SMALL,
}

GRANITE_HYBRID = {
    "architectures": ["GraniteMoeHybridForCausalLM"], "model_type": "granitemoehybrid", "hidden_act": "silu",
    "hidden_size": 48, "intermediate_size": 36, "shared_intermediate_size": 52, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
    "layer_types": ["mamba", "attention", "mamba"], "position_embedding_type": "nope", "attention_bias": False,
    "attention_multiplier": 0.4, "embedding_multiplier": 3.0, "residual_multiplier": 0.6, "logits_scaling": 1.5,
    "num_local_experts": 6, "num_experts_per_tok": 2, "mamba_expand": 2, "mamba_n_heads": 6, "mamba_d_head": 16,
    "mamba_n_groups": 2, "mamba_d_state": 12, "mamba_d_conv": 4, "mamba_chunk_size": 16, "mamba_conv_bias": True,
    "mamba_proj_bias": False, "tie_word_embeddings": True, **SMALL,
}

NEMOTRON_H = {
    "architectures": ["NemotronHForCausalLM"], "model_type": "nemotron_h", "hidden_size": 48, "intermediate_size": 76,
    "hybrid_override_pattern": "M-M*", "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 14,
    "layer_norm_epsilon": 1e-5, "mlp_hidden_act": "relu2", "mlp_bias": False, "attention_bias": False,
    "mamba_num_heads": 6, "mamba_head_dim": 10, "ssm_state_size": 12, "n_groups": 2, "conv_kernel": 4,
    "mamba_hidden_act": "silu", "use_bias": False, "use_conv_bias": True, "chunk_size": 16, "mamba_proj_bias": False,
    "tie_word_embeddings": False, **SMALL,
}

NEMOTRON_3 = {
    **NEMOTRON_H, "hybrid_override_pattern": "MEM*E", "n_routed_experts": 6, "num_experts_per_tok": 2,
    "moe_intermediate_size": 28, "moe_shared_expert_intermediate_size": 44, "n_shared_experts": 1, "n_group": 1,
    "topk_group": 1, "norm_topk_prob": True, "routed_scaling_factor": 1.5,
}

GEMMA4 = {
    "architectures": ["Gemma4ForCausalLM"], "model_type": "gemma4_text", "hidden_activation": "gelu_pytorch_tanh",
    "hidden_size": 56, "intermediate_size": 44, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "global_head_dim": 24, "attention_k_eq_v": False,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
    "sliding_window": 7, "rms_norm_eps": 1e-6, "rope_parameters": {
        "full_attention": {"rope_type": "proportional", "rope_theta": 10000.0, "partial_rotary_factor": 0.5},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1000.0}},
    "num_kv_shared_layers": 0, "use_double_wide_mlp": False, "hidden_size_per_layer_input": 0,
    "vocab_size_per_layer_input": 97, "enable_moe_block": False, "attention_bias": False,
    "final_logit_softcapping": None, "tie_word_embeddings": True, "vocab_size": 97, "max_position_embeddings": 128,
    "dtype": "float32", "pad_token_id": 0, **BASE,
}

GEMMA3N = {
    "architectures": ["Gemma3nForCausalLM"], "model_type": "gemma3n_text", "hidden_activation": "gelu_pytorch_tanh",
    "hidden_size": 56, "intermediate_size": [44, 52, 44, 36], "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "sliding_window": 7, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
    "rope_local_base_freq": 1000.0, "rope_scaling": None, "layer_types":
    ["sliding_attention", "full_attention", "sliding_attention", "full_attention"], "num_kv_shared_layers": 2,
    "hidden_size_per_layer_input": 20, "vocab_size_per_layer_input": 90, "altup_num_inputs": 4, "altup_active_idx": 0,
    "altup_correct_scale": True, "altup_coef_clip": 120.0, "laurel_rank": 12, "activation_sparsity_pattern":
    [0.9, 0.0, 0.7, 0.0], "attention_bias": False, "final_logit_softcapping": 30.0, "pad_token_id": 0,
    "vocab_size": 97, "max_position_embeddings": 128, "torch_dtype": "float32", **BASE,
}

KIMI_LINEAR = {
    "architectures": ["KimiLinearForCausalLM"], "model_type": "kimi_linear", "hidden_act": "silu", "hidden_size": 52,
    "intermediate_size": 68, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 4,
    "rms_norm_eps": 1e-5, "kv_lora_rank": 28, "q_lora_rank": None, "qk_nope_head_dim": 12, "qk_rope_head_dim": 8,
    "v_head_dim": 10, "first_k_dense_replace": 1, "num_experts": 6, "num_experts_per_token": 2,
    "moe_intermediate_size": 28, "moe_renormalize": True, "routed_scaling_factor": 1.5, "num_expert_group": 1,
    "topk_group": 1, "num_shared_experts": 1, "tie_word_embeddings": False, "model_max_length": 128,
    "linear_attn_config": {"num_heads": 3, "head_dim": 14, "short_conv_kernel_size": 4, "full_attn_layers": [2],
                           "kda_layers": [1, 3]},
    "vocab_size": 97, "torch_dtype": "float32", "pad_token_id": 0, **BASE,
}

RECURRENT_GEMMA = {
    "architectures": ["RecurrentGemmaForCausalLM"], "model_type": "recurrent_gemma",
    "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 48, "intermediate_size": 88, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 1, "lru_width": 60, "conv1d_width": 4,
    "attention_window_size": 7, "block_types": ["recurrent", "recurrent", "attention"], "logits_soft_cap": 30.0,
    "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "partial_rotary_factor": 0.5, "attention_bias": False,
    "vocab_size": 97, "torch_dtype": "float32", "pad_token_id": 0, **BASE,
}

RWKV7 = {
    "architectures": ["Rwkv7ForCausalLM"], "model_type": "rwkv7", "hidden_size": 60, "intermediate_size": 92,
    "num_hidden_layers": 3, "head_dim": 20, "norm_eps": 1e-5, "a_low_rank_dim": 12, "v_low_rank_dim": 8,
    "gate_low_rank_dim": 16, "decay_low_rank_dim": 10, "tie_word_embeddings": False, "vocab_size": 97, **BASE,
}

BAILING_LINEAR = {
    "architectures": ["BailingMoeLinearForCausalLM"], "model_type": "bailing_moe_linear", "hidden_size": 72,
    "intermediate_size": 68, "num_hidden_layers": 4, "num_attention_heads": 6, "num_key_value_heads": 2,
    "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "partial_rotary_factor": 0.5, "use_bias": False,
    "use_qkv_bias": False, "use_qk_norm": True, "layer_group_size": 3, "group_norm_size": 4,
    "first_k_dense_replace": 1, "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 28,
    "norm_topk_prob": True, "score_function": "sigmoid", "moe_router_enable_expert_bias": True,
    "routed_scaling_factor": 1.5, "n_group": 1, "topk_group": 1, "num_shared_experts": 1, "norm_head": False,
    "tie_word_embeddings": False, "vocab_size": 97, "max_position_embeddings": 128, **BASE,
}

CASES = {
    # qwen3_next -----------------------------------------------------------------------------------------
    "qwen3_next-sparse": {
        "config": {**QWEN3_NEXT},
        "mutants": [{"norm_topk_prob": False}, {"num_experts_per_tok": 3}, {"partial_rotary_factor": 1.0},
                    {"rope_theta": 100.0}, {"rms_norm_eps": 0.1}, {"hidden_act": "gelu"}],
    },
    "qwen3_next-mixed": {
        "config": {**QWEN3_NEXT, "num_hidden_layers": 4, "layer_types": ["linear_attention", "full_attention",
                   "linear_attention", "full_attention"], "mlp_only_layers": [0], "decoder_sparse_step": 2,
                   "norm_topk_prob": False, "attention_bias": True, "tie_word_embeddings": True,
                   "linear_num_key_heads": 3, "linear_num_value_heads": 3, "linear_conv_kernel_dim": 2,
                   "head_dim": 32}, "drop": ["partial_rotary_factor"],
        "mutants": [{"norm_topk_prob": True}, {"partial_rotary_factor": 0.5}],
    },
    "qwen3_next-q4": {
        **quantized(QWEN3_NEXT, head_dim=32, moe_intermediate_size=32, shared_expert_intermediate_size=64,
                    linear_value_head_dim=16, num_experts=4, mlp_only_layers=[1], num_hidden_layers=2,
                    full_attention_interval=2),
        "mutants": [{"norm_topk_prob": False}, {"partial_rotary_factor": 1.0}],
    },
    # qwen3_5 --------------------------------------------------------------------------------------------
    "qwen3_5-text": {
        "config": {**QWEN3_5},
        "mutants": [{"rope_parameters": {"rope_theta": 100.0}}, {"rope_parameters": {"partial_rotary_factor": 1.0}},
                    {"rms_norm_eps": 0.1}],
    },
    "qwen3_5-groups": {
        "config": {**QWEN3_5, "num_hidden_layers": 5, "layer_types": None, "full_attention_interval": 4,
                   "linear_num_value_heads": 6, "linear_conv_kernel_dim": 4, "attention_bias": True,
                   "tie_word_embeddings": False, "head_dim": 32, "rope_parameters":
                   {"rope_type": "default", "rope_theta": 500.0, "mrope_section": [2, 1, 1]}},
        "mutants": [{"rope_parameters": {"partial_rotary_factor": 0.5}}, {"rope_parameters": {"rope_theta": 100.0}}],
    },
    "qwen3_5-wrapper": {
        "config": {"architectures": ["Qwen3_5ForConditionalGeneration"], "model_type": "qwen3_5", "dtype": "float32",
                   "tie_word_embeddings": False, "text_config": {"model_type": "qwen3_5_text", **QWEN3_5_TEXT},
                   "vision_config": QWEN3_5_VISION, "image_token_id": 91, "video_token_id": 92,
                   "vision_start_token_id": 93, "vision_end_token_id": 94},
        "below": 90, "no_positions": True,
        "mutants": [{"text_config": {"rope_parameters": {"rope_theta": 100.0}}}],
    },
    "qwen3_5_moe-text": {
        "config": {**QWEN3_5_MOE},
        "mutants": [{"num_experts_per_tok": 3}, {"rms_norm_eps": 0.1}],
    },
    # lfm2 -----------------------------------------------------------------------------------------------
    "lfm2-published": {
        "config": {**LFM2},
        "also": [{"full_attn_idxs": None, "layer_types": ["conv", "full_attention", "conv"]},
                 {"intermediate_size": None, "block_ff_dim": 130}],
        "mutants": [{"rope_theta": 100.0}, {"norm_eps": 0.1}],
    },
    "lfm2-plain-width": {
        "config": {**LFM2, "num_hidden_layers": 4, "block_auto_adjust_ff_dim": False, "intermediate_size": 76,
                   "conv_bias": True, "conv_L_cache": 4, "tie_word_embeddings": False, "full_attn_idxs": None,
                   "layer_types": ["full_attention", "conv", "conv", "full_attention"], "num_key_value_heads": 4},
        "mutants": [{"rope_theta": 100.0}],
    },
    "lfm2-multiplier": {
        "config": {**LFM2, "num_hidden_layers": 2, "block_ffn_dim_multiplier": 1.3, "block_multiple_of": 10,
                   "full_attn_idxs": [0]},
        "mutants": [{"norm_eps": 0.1}],
    },
    "lfm2_moe-published": {
        "config": {**LFM2_MOE},
        "mutants": [{"norm_topk_prob": False}, {"routed_scaling_factor": 1.5}, {"num_experts_per_tok": 3}],
    },
    "lfm2_moe-unbiased": {
        "config": {**LFM2_MOE, "num_hidden_layers": 3, "layer_types": ["full_attention", "conv", "conv"],
                   "use_expert_bias": False, "norm_topk_prob": False, "routed_scaling_factor": 2.0, "conv_bias": True,
                   "num_dense_layers": 0, "tie_word_embeddings": False},
        "mutants": [{"norm_topk_prob": True}, {"routed_scaling_factor": 1.0}],
    },
    # mamba, falcon_mamba ---------------------------------------------------------------------------------
    "mamba-published": {
        "config": {**MAMBA}, "no_positions": True,
        "mutants": [{"layer_norm_epsilon": 0.5}],
    },
    "mamba-untied": {
        "config": {**MAMBA, "hidden_size": 36, "expand": 3, "state_size": 17, "conv_kernel": 3, "use_bias": True,
                   "use_conv_bias": False, "time_step_rank": 5, "tie_word_embeddings": False, "num_hidden_layers": 2},
        "no_positions": True,
        "mutants": [{"layer_norm_epsilon": 0.5}],
    },
    "falcon_mamba-published": {
        "config": {**FALCON_MAMBA, "num_hidden_layers": 2}, "no_positions": True,
        "mutants": [{"mixer_rms_eps": 0.1}, {"layer_norm_epsilon": 0.5}],
    },
    # jamba ----------------------------------------------------------------------------------------------
    "jamba-published": {
        "config": {**JAMBA}, "no_positions": True,
        "mutants": [{"num_experts_per_tok": 3}, {"rms_norm_eps": 0.1}],
    },
    "jamba-dense": {
        "config": {**JAMBA, "num_hidden_layers": 3, "num_experts": 1, "num_experts_per_tok": 1, "attn_layer_period": 2,
                   "attn_layer_offset": 0, "mamba_expand": 3, "mamba_conv_bias": False, "mamba_proj_bias": True,
                   "mamba_dt_rank": "auto", "num_key_value_heads": 4, "tie_word_embeddings": True},
        "no_positions": True,
        "mutants": [{"rms_norm_eps": 0.1}],
    },
    # falcon_h1 ------------------------------------------------------------------------------------------
    "falcon_h1-multipliers": {
        "config": {**FALCON_H1},
        "mutants": [{"key_multiplier": 1.0}, {"attention_in_multiplier": 1.0}, {"attention_out_multiplier": 1.0},
                    {"ssm_in_multiplier": 1.0}, {"ssm_out_multiplier": 1.0}, {"embedding_multiplier": 1.0},
                    {"lm_head_multiplier": 1.0}, {"mlp_multipliers": [1.0, 1.0]}, {"mamba_norm_before_gate": True},
                    {"ssm_multipliers": [0.8, 1.2, 0.9, 1.1, 1.0]}, {"rope_theta": 100.0}],
    },
    "falcon_h1-ungrouped": {
        "config": {**FALCON_H1, "mamba_rms_norm": False, "mamba_d_ssm": None, "mamba_n_heads": 8, "mamba_d_head": 12,
                   "mamba_n_groups": 1, "attention_bias": True, "mlp_bias": True, "projectors_bias": True,
                   "mamba_proj_bias": True, "mamba_conv_bias": False, "tie_word_embeddings": True,
                   "time_step_limit": [0.1, 0.9]},
        "also_saved": False,  # an absent mamba_d_ssm is saved as its default
        "mutants": [{"time_step_limit": [0.0, 10.0]}, {"ssm_in_multiplier": 1.0}, {"mlp_multipliers": [1.0, 0.6]}],
    },
    "falcon_h1-gate-last": {
        "config": {**FALCON_H1, "mamba_norm_before_gate": True, "num_hidden_layers": 1, "mamba_n_groups": 3},
        "mutants": [{"mamba_norm_before_gate": False}, {"mamba_rms_norm": True, "ssm_out_multiplier": 1.0}],
    },
    # granitemoehybrid -----------------------------------------------------------------------------------
    "granitemoehybrid-experts": {
        "config": {**GRANITE_HYBRID}, "no_positions": True,
        "also": [{"layer_types": ["linear_attention", "full_attention", "linear_attention"]}],
        "mutants": [{"num_experts_per_tok": 3}, {"attention_multiplier": 0.2}, {"embedding_multiplier": 1.0},
                    {"residual_multiplier": 1.0}, {"logits_scaling": 1.0}, {"position_embedding_type": "rope"}],
    },
    "granitemoehybrid-dense": {
        "config": {**GRANITE_HYBRID, "num_local_experts": 0, "num_experts_per_tok": 0, "position_embedding_type": "rope",
                   "attention_bias": True, "mamba_conv_bias": False, "mamba_proj_bias": True, "mamba_n_groups": 1,
                   "tie_word_embeddings": False, "layer_types": ["attention", "mamba", "attention"]},
        "mutants": [{"rope_theta": 100.0}, {"residual_multiplier": 1.0}],
    },
    "granitemoehybrid-nope": {
        "config": {**GRANITE_HYBRID, "num_local_experts": 0, "num_experts_per_tok": 0}, "no_positions": True,
        "mutants": [{"attention_multiplier": 0.2}, {"embedding_multiplier": 1.0}, {"logits_scaling": 1.0}],
    },
    # nemotron_h -----------------------------------------------------------------------------------------
    "nemotron_h-biased": {
        "config": {**NEMOTRON_H, "hybrid_override_pattern": "*M-M-", "use_bias": True, "use_conv_bias": False,
                   "mlp_bias": True, "attention_bias": True, "n_groups": 1, "num_key_value_heads": 4},
        "no_positions": True,
        "mutants": [{"layer_norm_epsilon": 0.1}],
    },
    "nemotron_h-dense": {
        "config": {**NEMOTRON_H}, "no_positions": True,
        "mutants": [{"layer_norm_epsilon": 0.1}, {"time_step_min": 0.5}, {"mlp_hidden_act": "silu"}],
    },
    "nemotron_h-experts": {
        "config": {**NEMOTRON_3}, "no_positions": True,
        "mutants": [{"num_experts_per_tok": 3}, {"norm_topk_prob": False}, {"routed_scaling_factor": 1.0}],
    },
    "nemotron_h-latent": {
        "config": {**NEMOTRON_3, "hybrid_override_pattern": "ME*", "moe_latent_size": 20, "n_group": 2, "topk_group": 1,
                   "use_bias": True, "use_conv_bias": False, "mlp_bias": True, "norm_topk_prob": False},
        "no_positions": True,
        "mutants": [{"norm_topk_prob": True}, {"n_group": 1}],
    },
    # gemma4_text ----------------------------------------------------------------------------------------
    "gemma4_text-dense": {
        "config": {**GEMMA4, "attention_k_eq_v": True, "num_global_key_value_heads": 1, "num_key_value_heads": 4,
                   "final_logit_softcapping": 6.0},
        "mutants": [{"sliding_window": 6}, {"final_logit_softcapping": None},
                    {"rope_parameters": {"full_attention": {"partial_rotary_factor": 0.25}}},
                    {"rope_parameters": {"sliding_attention": {"rope_theta": 100.0}}}],
    },
    "gemma4_text-shared": {
        "config": {**GEMMA4, "num_hidden_layers": 5, "num_kv_shared_layers": 2, "use_double_wide_mlp": True,
                   "hidden_size_per_layer_input": 20, "attention_bias": True, "tie_word_embeddings": False,
                   "layer_types": ["full_attention", "sliding_attention", "sliding_attention", "sliding_attention",
                                   "full_attention"]},
        "mutants": [{"sliding_window": 8}, {"rms_norm_eps": 0.1}],
    },
    "gemma4_text-experts": {
        "config": {**GEMMA4, "num_hidden_layers": 3, "enable_moe_block": True, "num_experts": 6, "top_k_experts": 2,
                   "moe_intermediate_size": 28, "layer_types": None, "head_dim": 24, "global_head_dim": 16,
                   "rope_parameters": None},
        "mutants": [{"top_k_experts": 3}, {"sliding_window": 6}],
    },
    # gemma3n --------------------------------------------------------------------------------------------
    "gemma3n-published": {
        "config": {**GEMMA3N},
        "mutants": [{"sliding_window": 6}, {"rope_theta": 100.0}, {"rope_local_base_freq": 10.0},
                    {"activation_sparsity_pattern": [0.9, 0.0, 0.0, 0.0]}, {"altup_correct_scale": False}],
    },
    "gemma3n-streams": {
        "config": {**GEMMA3N, "num_hidden_layers": 3, "intermediate_size": 40, "activation_sparsity_pattern": None,
                   "num_kv_shared_layers": 0, "altup_num_inputs": 3, "altup_active_idx": 1, "altup_correct_scale": False,
                   "attention_bias": True, "final_logit_softcapping": 4.0, "num_key_value_heads": 1,
                   "layer_types": ["full_attention", "sliding_attention", "full_attention"]},
        "mutants": [{"sliding_window": 6}, {"altup_active_idx": 0}, {"final_logit_softcapping": 30.0}],
    },
    # kimi_linear ----------------------------------------------------------------------------------------
    "kimi_linear-published": {
        "config": {**KIMI_LINEAR}, "no_positions": True,
        "mutants": [{"num_experts_per_token": 3}, {"moe_renormalize": False}, {"routed_scaling_factor": 1.0}],
    },
    "kimi_linear-low-rank": {
        "config": {**KIMI_LINEAR, "q_lora_rank": 20, "num_hidden_layers": 2, "first_k_dense_replace": 0,
                   "num_expert_group": 2, "num_shared_experts": 2, "moe_renormalize": False,
                   "linear_attn_config": {"num_heads": 2, "head_dim": 18, "short_conv_kernel_size": 3,
                                          "full_attn_layers": [1], "kda_layers": [2]}},
        "no_positions": True,
        "mutants": [{"moe_renormalize": True}, {"num_expert_group": 1}],
    },
    # recurrent_gemma ------------------------------------------------------------------------------------
    "recurrent_gemma-published": {
        "config": {**RECURRENT_GEMMA},
        "mutants": [{"attention_window_size": 6}, {"logits_soft_cap": 3.0}, {"rope_theta": 100.0}],
    },
    "recurrent_gemma-mixed": {
        "config": {**RECURRENT_GEMMA, "num_hidden_layers": 3, "block_types": ["attention", "recurrent"],
                   "lru_width": None, "conv1d_width": 3, "num_key_value_heads": 2, "attention_bias": True,
                   "logits_soft_cap": 4.0, "partial_rotary_factor": None}, "drop": ["partial_rotary_factor"],
        "mutants": [{"attention_window_size": 8}, {"logits_soft_cap": 30.0}],
    },
    # rwkv7 ----------------------------------------------------------------------------------------------
    "rwkv7-published": {
        "config": {**RWKV7}, "oracle": "mlx", "no_positions": True,
        "mutants": [{"norm_eps": 0.5}],
    },
    "rwkv7-tied": {
        "config": {**RWKV7, "hidden_size": 48, "head_dim": 12, "num_hidden_layers": 2, "tie_word_embeddings": True},
        "oracle": "mlx", "no_positions": True,
        "mutants": [{"norm_eps": 0.5}],
    },
    # bailing_moe_linear ---------------------------------------------------------------------------------
    "bailing_moe_linear-published": {
        "config": {**BAILING_LINEAR}, "oracle": "mlx", "unstack": True, "no_positions": True,
        "rename": [(r"\.mlp\.gate\.gate_proj\.", ".mlp.gate.")],
        "mutants": [{"partial_rotary_factor": 1.0}, {"norm_topk_prob": False}, {"routed_scaling_factor": 1.0},
                    {"group_norm_size": 2}],
    },
    "bailing_moe_linear-softmax": {
        "config": {**BAILING_LINEAR, "num_hidden_layers": 3, "layer_group_size": 2, "score_function": "softmax",
                   "moe_router_enable_expert_bias": False, "use_qkv_bias": True, "use_qk_norm": False,
                   "num_attention_heads": 4, "num_shared_experts": 2, "first_k_dense_replace": 0,
                   "partial_rotary_factor": 1.0, "tie_word_embeddings": True},
        "oracle": "mlx", "no_positions": True,
        "mutants": [{"rope_theta": 100.0}, {"group_norm_size": 2}],
    },
    # xlm-roberta ----------------------------------------------------------------------------------------
    "xlm-roberta-published": {
        "config": {**BERT, "architectures": ["XLMRobertaModel"], "model_type": "xlm-roberta", "layer_norm_eps": 1e-5,
                   "max_position_embeddings": 48, "type_vocab_size": 1, "pad_token_id": 1}, "from": 2,
        "mutants": [{"num_attention_heads": 6}, {"hidden_act": "relu"}],
    },
    "xlm-roberta-masked-lm": {
        "config": {**BERT, "architectures": ["XLMRobertaForMaskedLM"], "model_type": "xlm-roberta", "hidden_act": "relu",
                   "max_position_embeddings": 140, "num_hidden_layers": 1, "pad_token_id": 90}, "below": 89,
        "mutants": [{"num_attention_heads": 3}, {"pad_token_id": 89}],
    },
}
