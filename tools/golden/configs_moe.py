"""Decoders with experts and latent attention; see configs.py for what a case says."""

from configs import BASE, quantized, rope



def numbered_experts(saved):
    """Banks of experts as numbered tensors; the reference takes them back."""
    layout = {}
    for name, shape in saved.items():
        if ".experts." in name:
            stem, leaf = name.split(".experts.")
            for i in range(shape[0]):
                own = f"{stem}.experts.{i}.{leaf}"
                layout[own] = (shape[1:], {own: lambda x: x})
        else:
            layout[name] = (shape, {name: lambda x: x})
    return layout


SMALL = {
    "hidden_act": "silu", "hidden_size": 56, "intermediate_size": 76, "num_hidden_layers": 3,
    "num_attention_heads": 6, "num_key_value_heads": 2, "vocab_size": 97, "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "torch_dtype": "float32", "tie_word_embeddings": False, **BASE,
}


def like(model_type, architecture, **changes):
    return {"architectures": [architecture], "model_type": model_type, **SMALL, **changes}


GPT_OSS = like("gpt_oss", "GptOssForCausalLM", head_dim=20, rope_theta=150000.0, sliding_window=9,
               num_local_experts=5, num_experts_per_tok=2, swiglu_limit=0.6, num_hidden_layers=4,
               rope_scaling={"rope_type": "yarn", "factor": 4.0, "beta_fast": 32.0, "beta_slow": 1.0,
                             "truncate": False, "original_max_position_embeddings": 32})

MIXTRAL = like("mixtral", "MixtralForCausalLM", head_dim=18, num_local_experts=5, num_experts_per_tok=2,
               sliding_window=None, rope_theta=1000000.0)

QWEN2_MOE = like("qwen2_moe", "Qwen2MoeForCausalLM", hidden_size=60, num_experts=7, num_experts_per_tok=3,
                 moe_intermediate_size=28, shared_expert_intermediate_size=44, norm_topk_prob=False,
                 decoder_sparse_step=1, mlp_only_layers=[], use_sliding_window=False, sliding_window=8,
                 max_window_layers=2, rms_norm_eps=1e-6)

MLA = {"q_lora_rank": 28, "kv_lora_rank": 22, "qk_nope_head_dim": 14, "qk_rope_head_dim": 10, "v_head_dim": 18,
       "num_key_value_heads": 6, "hidden_size": 60}

YARN = {"type": "yarn", "factor": 4.0, "mscale": 0.8, "mscale_all_dim": 1.1, "beta_fast": 32, "beta_slow": 1,
        "original_max_position_embeddings": 32}

DEEPSEEK_V2 = like("deepseek_v2", "DeepseekV2ForCausalLM", **MLA, first_k_dense_replace=1, moe_intermediate_size=26,
                   n_routed_experts=8, n_shared_experts=2, num_experts_per_tok=3, topk_method="group_limited_greedy",
                   n_group=4, topk_group=2, norm_topk_prob=False, routed_scaling_factor=2.0, rope_scaling=YARN,
                   rms_norm_eps=1e-6)

DEEPSEEK_V3 = like("deepseek_v3", "DeepseekV3ForCausalLM", **MLA, first_k_dense_replace=1, moe_intermediate_size=26,
                   n_routed_experts=12, n_shared_experts=1, num_experts_per_tok=3, n_group=4, topk_group=2,
                   norm_topk_prob=True, routed_scaling_factor=2.5, rope_scaling=YARN, rms_norm_eps=1e-6,
                   num_nextn_predict_layers=1)

GLM4_MOE = like("glm4_moe", "Glm4MoeForCausalLM", head_dim=20, partial_rotary_factor=0.5, attention_bias=True,
                use_qk_norm=True, first_k_dense_replace=1, moe_intermediate_size=26, n_routed_experts=9,
                n_shared_experts=1, num_experts_per_tok=3, n_group=3, topk_group=2, norm_topk_prob=True,
                routed_scaling_factor=1.5)

GLM4_LITE = like("glm4_moe_lite", "Glm4MoeLiteForCausalLM", **MLA, moe_intermediate_size=26, n_routed_experts=8,
                 n_shared_experts=2, num_experts_per_tok=3, n_group=1, topk_group=1, norm_topk_prob=True,
                 routed_scaling_factor=1.8)

DOTS1 = like("dots1", "Dots1ForCausalLM", head_dim=18, first_k_dense_replace=1, moe_intermediate_size=26,
             n_routed_experts=10, n_shared_experts=2, num_experts_per_tok=3, n_group=2, topk_group=1, norm_topk_prob=True,
             routed_scaling_factor=2.5, attention_bias=False, sliding_window=None, max_window_layers=62)

SOLAR = like("solar_open", "SolarOpenForCausalLM", head_dim=20, moe_intermediate_size=26, n_routed_experts=9,
             n_shared_experts=1, num_experts_per_tok=3, n_group=3, topk_group=2, norm_topk_prob=True,
             routed_scaling_factor=1.5, attention_bias=False, rope_theta=1000000.0)

ERNIE = like("ernie4_5_moe", "Ernie4_5_MoeForCausalLM", head_dim=18, use_bias=False, moe_num_experts=7, moe_k=3,
             moe_intermediate_size=28, moe_num_shared_experts=2, moe_layer_start_index=1, moe_layer_end_index=2,
             moe_layer_interval=1, moe_norm_min=1e-12, rope_theta=500000.0, num_hidden_layers=4)

EXAONE = like("exaone_moe", "ExaoneMoeForCausalLM", head_dim=18, sliding_window=7, sliding_window_pattern=3,
              first_k_dense_replace=1, num_experts=8, num_shared_experts=1, num_experts_per_tok=3, moe_intermediate_size=26,
              n_group=2, topk_group=1, norm_topk_prob=True, routed_scaling_factor=2.5, num_hidden_layers=4)

YOUTU = like("youtu_llm", "YoutuForCausalLM", **MLA, tie_word_embeddings=True, rms_norm_eps=1e-6)

DEEPSEEK = {**like("deepseek", "DeepseekForCausalLM"), "hidden_size": 60, "first_k_dense_replace": 1, "moe_layer_freq": 1,
            "n_routed_experts": 7, "n_shared_experts": 2, "num_experts_per_tok": 3, "moe_intermediate_size": 28,
            "norm_topk_prob": False, "attention_bias": False}

BAILING = {**like("bailing_moe", "BailingMoeForCausalLM"), "hidden_size": 60, "num_attention_heads": 3,
           "num_key_value_heads": 1, "first_k_dense_replace": 1, "num_experts": 8, "num_shared_experts": 1,
           "num_experts_per_tok": 3, "moe_intermediate_size": 28, "norm_topk_prob": True, "use_bias": False,
           "use_qkv_bias": False, "n_group": 1, "topk_group": 1, "rms_norm_eps": 1e-6}

MELLUM = like("mellum", "MellumForCausalLM", head_dim=18, num_experts=7, num_experts_per_tok=3, moe_intermediate_size=28,
              norm_topk_prob=True, sliding_window=7, attention_bias=False, rms_norm_eps=1e-6,
              layer_types=["sliding_attention", "full_attention", "sliding_attention"],
              rope_parameters={"full_attention": {"rope_type": "yarn", "rope_theta": 50000.0, "factor": 4.0,
                                                  "original_max_position_embeddings": 32},
                               "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}})

KLEAR = {**like("Klear", "KlearForCausalLM"), "hidden_size": 60, "num_experts": 7, "num_experts_per_tok": 3,
         "n_shared_experts": 2, "moe_intermediate_size": 28, "norm_topk_prob": True, "decoder_sparse_step": 1,
         "mlp_only_layers": [1], "attention_bias": True}

LONGCAT = {**{k: v for k, v in like("longcat_flash", "LongcatFlashForCausalLM").items()
              if k not in ("num_hidden_layers", "num_key_value_heads", "intermediate_size")}, **MLA, "num_layers": 2,
           "ffn_hidden_size": 76, "moe_topk": 4, "expert_ffn_hidden_size": 26, "n_routed_experts": 6, "zero_expert_num": 3,
           "routed_scaling_factor": 3.0, "mla_scale_q_lora": True, "mla_scale_kv_lora": True, "attention_bias": False,
           "attention_method": "MLA", "zero_expert_type": "identity"}
LONGCAT.pop("num_key_value_heads")

CASES = {
    # gpt_oss --------------------------------------------------------------------------------------------
    "gpt_oss-windows": {
        "config": {**GPT_OSS},
        "mutants": [{"sliding_window": 8}, {"sliding_window": 10}, {"swiglu_limit": 7.0}, {"num_experts_per_tok": 1},
                    {"rope_scaling": {"truncate": True}}, {"rope_scaling": {"factor": 2.0}}],
    },
    "gpt_oss-types": {
        "config": {**GPT_OSS, "num_hidden_layers": 3, "num_key_value_heads": 6, "head_dim": 12, "num_experts_per_tok": 5,
                   "layer_types": ["full_attention", "sliding_attention", "full_attention"], "sliding_window": 5,
                   "tie_word_embeddings": True, "rms_norm_eps": 0.02,
                   **rope(rope_type="yarn", rope_theta=5000.0, factor=8.0, beta_fast=16.0, beta_slow=2.0, truncate=False,
                          original_max_position_embeddings=24)},
        "drop": ["rope_theta", "rope_scaling", "torch_dtype"],
        "mutants": [{"sliding_window": 4}, {"num_experts_per_tok": 4}, {"rms_norm_eps": 1e-6}],
    },
    # mixtral --------------------------------------------------------------------------------------------
    "mixtral-plain": {
        "config": {**MIXTRAL},
        "mutants": [{"num_experts_per_tok": 3}, {"sliding_window": 12}, {"rope_theta": 10000.0}],
    },
    "mixtral-window": {
        "config": {**MIXTRAL, "head_dim": None, "hidden_size": 60, "num_attention_heads": 5, "num_key_value_heads": 5,
                   "sliding_window": 7, "num_local_experts": 8, "num_experts_per_tok": 3, "tie_word_embeddings": True,
                   "num_hidden_layers": 2, "rms_norm_eps": 0.02},
        "mutants": [{"sliding_window": 6}, {"sliding_window": 8}, {"num_experts_per_tok": 2}, {"rms_norm_eps": 1e-6}],
    },
    # qwen2_moe ------------------------------------------------------------------------------------------
    "qwen2_moe-shared": {
        "config": {**QWEN2_MOE},
        "mutants": [{"norm_topk_prob": True}, {"num_experts_per_tok": 2}, {"rope_theta": 1000.0}],
    },
    "qwen2_moe-mixed": {
        "config": {**QWEN2_MOE, "num_hidden_layers": 5, "decoder_sparse_step": 2, "mlp_only_layers": [3],
                   "norm_topk_prob": True, "use_sliding_window": True, "max_window_layers": 3, "qkv_bias": False,
                   "num_key_value_heads": 6, "tie_word_embeddings": True},
        "mutants": [{"norm_topk_prob": False}, {"sliding_window": 7}, {"max_window_layers": 1}, {"sliding_window": 9}],
    },
    # deepseek_v2 ----------------------------------------------------------------------------------------
    "deepseek_v2-groups": {
        "config": {**DEEPSEEK_V2},
        "mutants": [{"topk_method": "greedy"}, {"topk_group": 1, "num_experts_per_tok": 2}, {"routed_scaling_factor": 1.0},
                    {"rope_scaling": {"mscale_all_dim": 0.5}}, {"rope_scaling": {"factor": 2.0}}],
    },
    "deepseek_v2-lite": {
        "config": {**DEEPSEEK_V2, "q_lora_rank": None, "topk_method": "greedy", "n_group": 1, "topk_group": 1,
                   "num_attention_heads": 4, "num_key_value_heads": 4, "v_head_dim": 12, "rope_scaling": None,
                   "attention_bias": True, "n_shared_experts": 1, "rms_norm_eps": 0.01, "num_hidden_layers": 2},
        "mutants": [{"num_experts_per_tok": 2}, {"rope_theta": 100.0}, {"rms_norm_eps": 1e-6}],
    },
    # deepseek_v3 ----------------------------------------------------------------------------------------
    "deepseek_v3-groups": {
        "config": {**DEEPSEEK_V3},
        "mutants": [{"norm_topk_prob": False}, {"topk_group": 1, "num_experts_per_tok": 2}, {"routed_scaling_factor": 1.0},
                    {"rope_scaling": {"mscale_all_dim": 0.5}}, {"rope_interleave": False}, {"n_group": 1, "topk_group": 1}],
    },
    "deepseek_v3-halves": {
        "config": {**DEEPSEEK_V3, "q_lora_rank": None, "rope_interleave": False, "num_attention_heads": 5,
                   "num_key_value_heads": 5, "qk_nope_head_dim": 20, "v_head_dim": 10, "attention_bias": True,
                   "norm_topk_prob": False, "first_k_dense_replace": 2, "n_shared_experts": 2, "tie_word_embeddings": True,
                   "rope_scaling": None},
        "also": [rope(rope_type="default", rope_theta=10000.0)],
        "mutants": [{"norm_topk_prob": True}, {"rope_theta": 100.0}, {"rope_interleave": True}],
    },
    "deepseek_v3-kimi": {
        "config": {**DEEPSEEK_V3, "model_type": "kimi_k2", "n_group": 1, "topk_group": 1, "num_hidden_layers": 2,
                   "rope_theta": 50000.0, "num_nextn_predict_layers": 0},
        "reference_type": "deepseek_v3", "also_saved": False,
        "mutants": [{"num_experts_per_tok": 2}],
    },
    # kimi_k25: mlx-lm, where the wrapper's text model needs no tower ----------------------------------------
    "kimi_k25-text": {
        "config": {"model_type": "kimi_k25", "vocab_size": 97,
                   "text_config": {**{k: v for k, v in DEEPSEEK_V3.items() if k not in ("architectures", "torch_dtype")},
                                   "model_type": "kimi_k2", "n_group": 1, "topk_group": 1, "moe_layer_freq": 1,
                                   "num_hidden_layers": 2, "num_nextn_predict_layers": 0}},
        "oracle": "mlx", "unstack": True,
        "mutants": [{"text_config": {"num_experts_per_tok": 2}}, {"text_config": {"rope_theta": 100.0}}],
    },
    "kimi_k25-whole": {
        "config": {"architectures": ["KimiK25ForConditionalGeneration"], "model_type": "kimi_k25", "vocab_size": 97,
                   "text_config": {**{k: v for k, v in DEEPSEEK_V3.items()
                                      if k not in ("architectures", "torch_dtype", "q_lora_rank")},
                                   "model_type": "kimi_k2", "q_lora_rank": None, "n_group": 1, "topk_group": 1,
                                   "moe_layer_freq": 1, "first_k_dense_replace": 0, "n_shared_experts": 2,
                                   "num_hidden_layers": 2, "num_nextn_predict_layers": 0}},
        "oracle": "mlx", "mutants": [{"text_config": {"num_experts_per_tok": 2}}, {"text_config": {"rope_theta": 100.0}}],
    },
    "kimi_vl-text": {
        "config": {"model_type": "kimi_vl", "vocab_size": 97,
                   "text_config": {**{k: v for k, v in DEEPSEEK_V3.items() if k not in ("architectures", "torch_dtype")},
                                   "n_group": 1, "topk_group": 1, "moe_layer_freq": 1,
                                   "num_hidden_layers": 2, "rope_scaling": None, "num_nextn_predict_layers": 0}},
        "oracle": "mlx", "mutants": [{"text_config": {"routed_scaling_factor": 1.0}}],
    },
    # glm4_moe -------------------------------------------------------------------------------------------
    "glm4_moe-groups": {
        "config": {**GLM4_MOE},
        "mutants": [{"partial_rotary_factor": 1.0}, {"topk_group": 1}, {"routed_scaling_factor": 1.0},
                    {"norm_topk_prob": False}],
    },
    "glm4_moe-plain": {
        "config": {**{k: v for k, v in GLM4_MOE.items() if k != "partial_rotary_factor"}, "attention_bias": False,
                   "use_qk_norm": False, "first_k_dense_replace": 2, "n_group": 1, "topk_group": 1, "n_shared_experts": 2,
                   "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 24, "norm_topk_prob": False},
        "mutants": [{"norm_topk_prob": True}, {"partial_rotary_factor": 0.25}, {"num_experts_per_tok": 2}],
    },
    # glm4_moe_lite --------------------------------------------------------------------------------------
    "glm4_moe_lite-plain": {
        "config": {**GLM4_LITE},
        "mutants": [{"rope_interleave": False}, {"routed_scaling_factor": 1.0}, {"num_experts_per_tok": 2}],
    },
    "glm4_moe_lite-types": {
        "config": {**GLM4_LITE, "mlp_layer_types": ["sparse", "dense", "sparse"], "rope_interleave": False,
                   "q_lora_rank": None, "n_group": 2, "topk_group": 1, "norm_topk_prob": False, "rms_norm_eps": 0.01,
                   "num_attention_heads": 4, "num_key_value_heads": 4},
        "mutants": [{"rope_interleave": True}, {"norm_topk_prob": True}, {"n_group": 1}, {"rms_norm_eps": 1e-6}],
    },
    # dots1 ----------------------------------------------------------------------------------------------
    "dots1-groups": {
        "config": {**DOTS1},
        "mutants": [{"norm_topk_prob": False}, {"n_group": 1}, {"routed_scaling_factor": 1.0}, {"rope_theta": 100.0}],
    },
    "dots1-window": {
        "config": {**DOTS1, "attention_bias": True, "sliding_window": 6, "max_window_layers": 1, "n_group": 1,
                   "first_k_dense_replace": 0, "norm_topk_prob": False, "num_key_value_heads": 6, "n_shared_experts": 1,
                   "tie_word_embeddings": True, "rms_norm_eps": 0.02},
        "mutants": [{"sliding_window": 5}, {"sliding_window": 7}, {"norm_topk_prob": True}, {"max_window_layers": 2},
                    {"rms_norm_eps": 1e-6}],
    },
    # solar_open -----------------------------------------------------------------------------------------
    "solar_open-groups": {
        "config": {**SOLAR},
        "mutants": [{"topk_group": 1}, {"routed_scaling_factor": 1.0}, {"rope_theta": 10000.0}],
    },
    "solar_open-bias": {
        "config": {**{k: v for k, v in SOLAR.items() if k != "rope_theta"}, "attention_bias": True, "n_group": 1, "topk_group": 1,
                   "norm_topk_prob": False, "num_key_value_heads": 3, "n_shared_experts": 2, "num_hidden_layers": 2},
        "mutants": [{"norm_topk_prob": True}, {"rope_theta": 100.0}, {"num_experts_per_tok": 2}],
    },
    # ernie4_5_moe ---------------------------------------------------------------------------------------
    "ernie4_5_moe-range": {
        "config": {**ERNIE, "tie_word_embeddings": True},
        "mutants": [{"moe_k": 2}, {"rope_theta": 100.0}],
    },
    "ernie4_5_moe-bias": {
        "config": {**ERNIE, "use_bias": True, "moe_layer_start_index": 0, "moe_layer_end_index": 3, "moe_layer_interval": 2,
                   "moe_num_shared_experts": 1, "moe_k": 2, "num_key_value_heads": 6,
                   "rms_norm_eps": 0.02},
        "also": [{"moe_layer_end_index": -1}],
        "mutants": [{"moe_k": 3}, {"rms_norm_eps": 1e-6}],
    },
    # exaone_moe -----------------------------------------------------------------------------------------
    "exaone_moe-pattern": {
        "config": {**EXAONE},
        "also": [{"layer_types": ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"]}],
        "mutants": [{"sliding_window": 6}, {"sliding_window": 8}, {"sliding_window_pattern": 2}, {"n_group": 1},
                    {"routed_scaling_factor": 1.0}],
    },
    "exaone_moe-types": {
        "config": {**EXAONE, "num_hidden_layers": 3, "n_group": 1, "num_shared_experts": 2, "norm_topk_prob": False,
                   "mlp_layer_types": ["sparse", "dense", "sparse"], "tie_word_embeddings": True, "num_key_value_heads": 3,
                   "layer_types": ["full_attention", "sliding_attention", "full_attention"]},
        "mutants": [{"norm_topk_prob": True}, {"sliding_window": 6}, {"num_experts_per_tok": 2}],
    },
    # youtu_llm ------------------------------------------------------------------------------------------
    "youtu_llm-lora": {
        "config": {**YOUTU}, "reference_type": "youtu", "also_saved": False,
        "mutants": [{"rope_interleave": False}, {"rope_theta": 100.0}],
    },
    "youtu_llm-plain": {
        "config": {**YOUTU, "q_lora_rank": None, "rope_interleave": False, "attention_bias": True,
                   "tie_word_embeddings": False, "num_attention_heads": 4, "num_key_value_heads": 4, "rms_norm_eps": 0.01,
                   "rope_scaling": YARN},
        "reference_type": "youtu", "also_saved": False,
        "mutants": [{"rope_interleave": True}, {"rms_norm_eps": 1e-6}, {"rope_scaling": {"mscale_all_dim": 0.3}}],
    },
    # deepseek -------------------------------------------------------------------------------------------
    "deepseek-dense-first": {
        "config": {**DEEPSEEK}, "oracle": "mlx", "unstack": True,
        "mutants": [{"num_experts_per_tok": 2}, {"rope_theta": 100.0}],
    },
    "deepseek-bias": {
        "config": {**DEEPSEEK, "num_hidden_layers": 4, "attention_bias": True, "moe_layer_freq": 2, "n_shared_experts": 1,
                   "num_attention_heads": 5, "num_key_value_heads": 5, "rms_norm_eps": 0.02,
                   "rope_scaling": {"type": "linear", "factor": 2.0}},
        "oracle": "mlx",
        "mutants": [{"num_experts_per_tok": 2}, {"rope_scaling": {"factor": 4.0}}, {"rms_norm_eps": 1e-6}],
    },
    # bailing_moe ----------------------------------------------------------------------------------------
    "bailing_moe-softmax": {
        "config": {**BAILING}, "oracle": "mlx", "unstack": True, "rename": [(r"gate\.gate_proj", "gate")],
        "mutants": [{"norm_topk_prob": False}, {"num_experts_per_tok": 2}, {"rope_theta": 100.0}],
    },
    "bailing_moe-sigmoid": {
        # Groups are left out: mlx-lm gives those that are not chosen a zero where publishers give minus infinity.
        "config": {**BAILING, "score_function": "sigmoid", "moe_router_enable_expert_bias": True, "use_qk_norm": True,
                   "use_qkv_bias": True, "norm_head": True, "partial_rotary_factor": 0.5, "routed_scaling_factor": 2.5,
                   "num_key_value_heads": 3, "num_shared_experts": 2, "moe_shared_expert_intermediate_size": 20},
        "oracle": "mlx",
        "mutants": [{"routed_scaling_factor": 1.0}, {"norm_head": False}, {"partial_rotary_factor": 1.0}],
    },
    # mellum ---------------------------------------------------------------------------------------------
    "mellum-layers": {
        "config": {**{k: v for k, v in MELLUM.items() if k != "rope_theta"}},
        "mutants": [{"sliding_window": 6}, {"sliding_window": 8}, {"norm_topk_prob": False},
                    {"rope_parameters": {"full_attention": {"factor": 2.0}}}],
    },
    "mellum-dense": {
        "config": {**{k: v for k, v in MELLUM.items() if k not in ("rope_theta", "rope_parameters")}, "attention_bias": True,
                   "norm_topk_prob": False, "mlp_layer_types": ["dense", "sparse", "sparse"], "num_key_value_heads": 6,
                   "tie_word_embeddings": True, "sliding_window": 5,
                   "layer_types": ["sliding_attention", "sliding_attention", "full_attention"]},
        "mutants": [{"norm_topk_prob": True}, {"sliding_window": 4}, {"num_experts_per_tok": 2}],
    },
    # Klear ----------------------------------------------------------------------------------------------
    "Klear-published": {
        "config": {**KLEAR}, "oracle": "mlx",
        "layout": lambda saved, config: numbered_experts(saved),
        "mutants": [{"norm_topk_prob": False}, {"num_experts_per_tok": 2}, {"rope_theta": 100.0}],
    },
    "Klear-stacked": {
        "config": {**KLEAR, "norm_topk_prob": False, "decoder_sparse_step": 2, "mlp_only_layers": [], "n_shared_experts": 1,
                   "attention_bias": False, "num_key_value_heads": 6, "num_hidden_layers": 4, "rms_norm_eps": 0.02},
        "oracle": "mlx",
        "mutants": [{"norm_topk_prob": True}, {"num_experts_per_tok": 2}, {"rms_norm_eps": 1e-6}],
    },
    # longcat_flash --------------------------------------------------------------------------------------
    "longcat_flash-published": {
        "config": {**LONGCAT}, "oracle": "mlx", "unstack": True,
        "mutants": [{"moe_topk": 3}, {"routed_scaling_factor": 1.0}, {"rope_theta": 100.0}],
    },
    "longcat_flash-renormalised": {
        "config": {**LONGCAT, "norm_topk_prob": True, "router_bias": True, "attention_bias": True, "zero_expert_num": 5,
                   "num_layers": 1, "num_attention_heads": 4,
                   "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "mscale": 1,
                                    "mscale_all_dim": 1}},
        "oracle": "mlx",
        "mutants": [{"norm_topk_prob": False}, {"rope_scaling": {"factor": 2.0}}],
    },
}
