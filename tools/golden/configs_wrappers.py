"""Cases of later models with towers beside the text, whose text side is served (see configs.py)."""

import numpy as np

from configs_towers import BASE, CLIP, GLM4V_VISION, LLAMA, SIGLIP, TEXT, beside, wrapped

WITHOUT_THETA = {k: v for k, v in TEXT.items() if k != "rope_theta"}
ROPE = {"rope_type": "default", "rope_theta": 10000.0}

MLLAMA_VISION = {"hidden_size": 16, "intermediate_size": 20, "num_hidden_layers": 1, "num_global_layers": 1,
                 "attention_heads": 2, "image_size": 8, "patch_size": 4, "vision_output_dim": 32, "max_num_tiles": 4,
                 "intermediate_layers_indices": [0]}
MLLAMA_TEXT = {"model_type": "mllama_text_model", "tie_word_embeddings": False, "pad_token_id": 0,
               "cross_attention_layers": [1, 3], **TEXT, "num_hidden_layers": 5, "max_position_embeddings": 128,
               "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                "original_max_position_embeddings": 16}}

MOLMO2_TEXT = {"model_type": "molmo2_text", "head_dim": 14, "additional_vocab_size": 7, "qkv_bias": False,
               "qk_norm_type": "qwen3", "layer_norm_eps": 1e-6, "norm_after": False,
               **{k: v for k, v in TEXT.items() if k != "rms_norm_eps"}}
MOLMO2 = {
    "architectures": ["Molmo2ForConditionalGeneration"], "model_type": "molmo2", "dtype": "float32",
    "tie_word_embeddings": False, "text_config": MOLMO2_TEXT, "image_patch_id": 98,
    "vit_config": {"hidden_size": 16, "intermediate_size": 20, "num_hidden_layers": 2, "num_attention_heads": 2,
                   "num_key_value_heads": 2, "head_dim": 8, "image_default_input_size": [8, 8],
                   "image_patch_size": 4, "image_num_pos": 4},
    "adapter_config": {"vit_layers": [-1, -2], "hidden_size": 16, "num_attention_heads": 2, "num_key_value_heads": 2,
                       "head_dim": 8, "intermediate_size": 20, "text_hidden_size": 48},
}
MOLMO = {"architectures": ["MolmoForCausalLM"], "model_type": "molmo", "torch_dtype": "float32",
         "attention_layer_norm": False, "embedding_size": 97, "layer_norm_eps": 1e-6, "layer_norm_type": "rms",
         "norm_after": False, "qkv_bias": True, "weight_tying": False, "use_position_ids": True,
         **{k: v for k, v in TEXT.items() if k not in ("rms_norm_eps", "hidden_act")}, "intermediate_size": 168,
         "tie_word_embeddings": False}

STEP_TEXT = {
    "model_type": "step3p5", "hidden_size": 56, "intermediate_size": 84, "num_hidden_layers": 4, "vocab_size": 97,
    "num_attention_heads": 6, "num_attention_groups": 2, "head_dim": 16, "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5, "sliding_window": 7, "rope_theta": [10000.0, 1000.0, 1000.0, 10000.0],
    "partial_rotary_factors": [0.5, 1.0, 1.0, 0.5], "layer_types":
    ["full_attention", "sliding_attention", "sliding_attention", "full_attention"], "attention_other_setting":
    {"attention_type": "sliding_attention", "num_attention_heads": 4, "num_attention_groups": 2, "head_dim": 16},
    "use_head_wise_attn_gate": True, "moe_layers_enum": "1,2,3", "moe_num_experts": 6, "moe_top_k": 2,
    "moe_intermediate_size": 28, "share_expert_dim": 36, "moe_router_scaling_factor": 1.5, "norm_expert_weight": True,
    "swiglu_limits": [0.0, 0.4, 0.0, 0.4], "swiglu_limits_shared": [0.4, 0.0, 0.4, 0.0],
    "tie_word_embeddings": False, **BASE,
}
STEP_VISION = {"width": 16, "layers": 1, "heads": 2, "mlp_ratio": 1.25, "image_size": 8, "patch_size": 4}

MINICPMO = {"architectures": ["MiniCPMO"], "model_type": "minicpmo", "torch_dtype": "float32", "version": "2.6",
            "use_sliding_window": False, "max_window_layers": 3, "tie_word_embeddings": False, "query_num": 64,
            "vision_config": {"hidden_size": 16, "model_type": "siglip_vision_model"}, **TEXT}
MINICPM_TOWERS = {"vpm.encoder.layers.0.weight": [4, 4], "resampler.query": [4, 16],
                  "apm.conv1.weight": [4, 4, 3], "audio_projection_layer.linear1.weight": [16, 4],
                  "tts.dvae.coef": [1, 4, 1]}

DSV2_TEXT = {"model_type": "deepseek_v2", "hidden_size": 56, "intermediate_size": 84, "moe_intermediate_size": 28,
             "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 4, "n_shared_experts": 2,
             "n_routed_experts": 6, "num_experts_per_tok": 2, "first_k_dense_replace": 1, "moe_layer_freq": 1,
             "max_position_embeddings": 128, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "vocab_size": 97,
             "topk_method": "greedy", "n_group": 1, "topk_group": 1, "scoring_func": "softmax", "hidden_act": "silu",
             "attention_bias": False, "norm_topk_prob": False, "routed_scaling_factor": 1.0,
             "tie_word_embeddings": False, **BASE}
DSVL2 = {"architectures": ["DeepseekVLV2ForCausalLM"], "model_type": "deepseek_vl_v2", "torch_dtype": "float32",
         "tile_tag": "2D", "global_view_pos": "head", "projector_config": {"projector_type": "downsample_mlp_gelu"},
         "vision_config": {"model_type": "vision", "layers": 1, "width": 16}}
LATENT = {"q_lora_rank": None, "kv_lora_rank": 22, "qk_nope_head_dim": 14, "qk_rope_head_dim": 10, "v_head_dim": 18}
OCR_VISION = {"sam_config": {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 32,
                             "patch_size": 4, "output_channels": 8, "downsample_channels": [8, 16], "mlp_dim": 20,
                             "global_attn_indexes": [0], "window_size": 2},
              "encoder_config": {"hidden_size": 16, "intermediate_size": 20, "num_hidden_layers": 1,
                                 "num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 64}}

QWEN3_5_TEXT = {
    "model_type": "qwen3_5_text", "hidden_size": 56, "intermediate_size": 84, "num_hidden_layers": 4, "vocab_size": 97,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 24, "hidden_act": "silu",
    "max_position_embeddings": 128, "rms_norm_eps": 1e-6, "attention_bias": False,
    "rope_parameters": {**ROPE, "partial_rotary_factor": 0.25, "mrope_section": [1, 1, 1], "mrope_interleaved": True},
    "layer_types": ["linear_attention", "full_attention", "linear_attention", "full_attention"],
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 10, "linear_value_head_dim": 12,
    "linear_conv_kernel_dim": 3, "tie_word_embeddings": False, **BASE,
}
YOUTU = {"architectures": ["YoutuVLForConditionalGeneration"], "model_type": "youtu_vl", "torch_dtype": "float32",
         "hidden_size": 56, "intermediate_size": 84, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 4, "q_lora_rank": 28, "kv_lora_rank": 22, "qk_nope_head_dim": 14, "qk_rope_head_dim": 10,
         "v_head_dim": 18, "hidden_act": "silu", "max_position_embeddings": 128, "rms_norm_eps": 1e-6,
         "rope_theta": 10000.0, "rope_interleave": True, "attention_bias": False, "tie_word_embeddings": True,
         "vocab_size": 97, **BASE}
GLM_OCR_TEXT = {"model_type": "glm_ocr_text", "pad_token_id": 0, **WITHOUT_THETA, "head_dim": 12,
                "rope_parameters": {**ROPE, "mrope_section": [2, 2, 2]}}
OCR_TOKENS = {"image_token_id": 92, "video_token_id": 93, "image_start_token_id": 94, "image_end_token_id": 95,
              "video_start_token_id": 95, "video_end_token_id": 96}
HUNYUAN = {
    "architectures": ["HunYuanVLForConditionalGeneration"], "model_type": "hunyuan_vl", "dtype": "float32",
    "head_dim": 16, "attention_bias": False, "pad_token_id": 0, "image_token_id": 96, "image_start_token_id": 95,
    "image_end_token_id": 94, "image_newline_token_id": 93,
    "rope_scaling": {"type": "xdrope", "alpha": 40.0, "factor": 1.0, "xdrope_section": [2, 2, 2, 2],
                     "beta_fast": 32, "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 1.0},
    "vision_config": {"hidden_size": 16, "intermediate_size": 20, "num_hidden_layers": 1, "num_attention_heads": 2,
                      "patch_size": 4, "max_image_size": 16, "out_hidden_size": 48},
    **TEXT, "tie_word_embeddings": True,
}
PADDLE = {
    "architectures": ["PaddleOCRVLForConditionalGeneration"], "model_type": "paddleocr_vl", "dtype": "float32",
    "head_dim": 16, "use_bias": False, "rope_scaling": {"mrope_section": [2, 3, 3], "rope_type": "default",
                                                         "type": "default"},
    "image_token_id": 96, "video_token_id": 95, "vision_start_token_id": 94, "tie_word_embeddings": False,
    "vision_config": {"hidden_size": 16, "intermediate_size": 20, "num_hidden_layers": 1, "num_attention_heads": 2,
                      "image_size": 8, "patch_size": 4}, **TEXT,
}
GRANITE_CLIP = {**CLIP, "hidden_size": 64, "num_attention_heads": 4, "image_size": 16}
GRANITE_TOWER = {"image_token_index": 96, "deepstack_layer_map": [[0, 0]], "downsample_rate": "1/2",
                 "qformer_config": {"model_type": "blip_2_qformer", "intermediate_size": 20, "num_hidden_layers": 1,
                                    "cross_attention_frequency": 1, "use_qformer_text_input": False}}
GRANITE_TEXT = {"model_type": "granite4_vision_text", "attention_bias": False, "mlp_bias": False,
                "embedding_multiplier": 3.0, "attention_multiplier": 0.2, "residual_multiplier": 0.6,
                "logits_scaling": 1.0, "pad_token_id": 0, **TEXT}




def two_tables(saved, config):
    """Rows of images behind the table; the reference joins both."""
    rows = {"embedding": config["text_config"]["vocab_size"], "new_embedding": 7}
    return {name: ([rows.get(name.rpartition(".")[2], shape[0]), *shape[1:]], {name: lambda x: x})
            for name, shape in saved.items()}


def fused(saved, config):
    """Molmo's layout: q, k, v as one, up and gate as one, a second table."""
    out, runs = {"model.transformer.wte.new_embedding": ([5, config["hidden_size"]], {}),
                 "model.vision_backbone.image_vit.class_embedding": ([16], {})}, {}
    for name, shape in saved.items():
        stem, _, leaf = name.rpartition(".")
        where, _, part = stem.rpartition(".")
        own = (name.replace("model.layers.", "model.transformer.blocks.").replace(".self_attn.", ".")
               .replace(".mlp.", ".").replace(".o_proj.", ".attn_out.").replace(".down_proj.", ".ff_out.")
               .replace(".input_layernorm.", ".attn_norm.").replace(".post_feedforward_layernorm.", ".ff_norm.")
               .replace("model.norm.", "model.transformer.ln_f.").replace("lm_head.", "model.transformer.ff_out."))
        own = own.replace(".post_attention_layernorm.",
                          ".attn_norm." if config["norm_after"] else ".ff_norm.")
        if "embed_tokens" in name:
            out["model.transformer.wte.embedding"] = (shape, {name: lambda x: x})
        elif part in ("q_proj", "k_proj", "v_proj", "up_proj", "gate_proj"):
            into = own.replace(part, "att_proj" if "self_attn" in where else "ff_proj")
            runs.setdefault(into, {})[part] = (name, shape)
        else:
            out[own] = (shape, {name: lambda x: x})
    for into, parts in runs.items():
        order = [parts[key] for key in ("q_proj", "k_proj", "v_proj", "up_proj", "gate_proj") if key in parts]
        ends = np.cumsum([shape[0] for _, shape in order]).tolist()
        cuts = {name: (end - shape[0], end) for (name, shape), end in zip(order, ends)}
        out[into] = ([ends[-1], *order[0][1][1:]],
                     {name: lambda x, a=a, b=b: x[a:b] for name, (a, b) in cuts.items()})
    return out


def molmo_text(c):
    """As the reference's text that computes the same counts its width once."""
    return {**c, "intermediate_size": c["intermediate_size"] // 2, "rms_norm_eps": c["layer_norm_eps"],
            "hidden_act": "silu"}


def under(prefix, extra):
    """Names behind a prefix, and tensors that are left out."""
    def layout(saved, config):
        return {**{prefix + name: (shape, {name: lambda x: x}) for name, shape in saved.items()},
                **{name: (shape, {}) for name, shape in extra.items()}}
    return layout


def language(c):
    return {**c["language_config"], "architectures": c["architectures"]}


def nested_paddle(c):
    """Text keys inside, for transformers leaves the tie of a flat config to its default."""
    if "text_config" in c:
        return c
    text = {k: v for k, v in c.items() if k in TEXT or k in ("head_dim", "use_bias", "rope_scaling")}
    rest = {k: v for k, v in c.items() if k not in text}
    return {**rest, "text_config": {**text, "tie_word_embeddings": c["tie_word_embeddings"]}}


CASES = {
    "mllama-crossing": {
        "config": wrapped("MllamaForConditionalGeneration", "mllama", MLLAMA_TEXT, MLLAMA_VISION, image_token_index=97),
        "below": 97,
        "mutants": [{"text_config": {"rope_scaling": {"factor": 2.0}}}, {"text_config": {"rms_norm_eps": 0.1}}],
    },
    "mllama-first": {
        "config": wrapped("MllamaForConditionalGeneration", "mllama",
                          {**MLLAMA_TEXT, "cross_attention_layers": [0], "num_hidden_layers": 3, "rope_theta": 1000.0,
                           "num_key_value_heads": 6, "rope_scaling": {"rope_type": "default"}},
                          MLLAMA_VISION, image_token_index=97),
        "below": 97, "mutants": [{"text_config": {"rope_theta": 100000.0}}],
    },
    "molmo2-heads": {
        "config": MOLMO2, "layout": two_tables,
        "mutants": [{"text_config": {"layer_norm_eps": 0.1}}, {"text_config": {"rope_theta": 100.0}}],
    },
    "molmo2-behind": {
        "config": {**MOLMO2, "text_config": {**MOLMO2_TEXT, "norm_after": True, "qk_norm_type": "olmo", "qkv_bias": True,
                                             "rope_scaling": {"rope_type": "linear", "factor": 4.0},
                                             "rope_scaling_layers": [0, 2]}},
        "layout": two_tables, "mutants": [{"text_config": {"rope_scaling_layers": [0]}},
                                          {"text_config": {"norm_after": False}}],
    },
    "molmo-before": {
        "config": MOLMO, "reference_type": "qwen2", "reference_class": "Qwen2ForCausalLM", "also_saved": False,
        "reference_config": molmo_text, "layout": fused,
        "mutants": [{"rope_theta": 100.0}, {"layer_norm_eps": 0.1}],
    },
    "molmo-behind": {
        "config": {**MOLMO, "attention_layer_norm": True, "norm_after": True, "qkv_bias": False},
        "reference_type": "olmo2", "reference_class": "Olmo2ForCausalLM", "also_saved": False,
        "reference_config": molmo_text, "layout": fused, "mutants": [{"rope_theta": 100.0}],
    },
    "step3p7-windows": {
        "config": {**wrapped("Step3p7ForConditionalGeneration", "step3p7", STEP_TEXT, STEP_VISION), "image_token_id": 96},
        "below": 96, "also_saved": False,
        "mutants": [{"text_config": {"sliding_window": 9}}, {"text_config": {"moe_top_k": 3}},
                    {"text_config": {"swiglu_limits": [0.0, 0.0, 0.0, 0.0]}}],
    },
    "step3p7-scaled": {
        "config": {**wrapped("Step3p7ForConditionalGeneration", "step3p7",
                             {**STEP_TEXT, "num_hidden_layers": 3, "moe_layers_enum": "2", "rope_theta": 500.0,
                              "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
                              "partial_rotary_factors": [1.0, 0.5, 1.0], "yarn_only_types": ["full_attention"],
                              "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                                               "high_freq_factor": 4.0, "original_max_position_embeddings": 16},
                              "swiglu_limits": [0.0, 0.0, 0.3], "swiglu_limits_shared": [0.3, 0.0, 0.3]}, STEP_VISION),
                   "image_token_id": 96}, "below": 96, "also_saved": False,
        "mutants": [{"text_config": {"moe_router_scaling_factor": 1.0}}, {"text_config": {"rope_theta": 5000.0}}],
    },
    "minicpmo-qwen2": {
        "config": MINICPMO, "reference_type": "qwen2", "reference_class": "Qwen2ForCausalLM", "also_saved": False,
        "layout": under("llm.", MINICPM_TOWERS), "also": [{"version": 2.6}],
        "mutants": [{"rope_theta": 100.0}, {"rms_norm_eps": 0.1}],
    },
    "minicpmo-qwen3": {
        "config": {**MINICPMO, "version": "4.5", "head_dim": 14, "attention_bias": False, "num_key_value_heads": 6},
        "reference_type": "qwen3", "reference_class": "Qwen3ForCausalLM", "also_saved": False,
        "layout": under("llm.", MINICPM_TOWERS), "mutants": [{"rope_theta": 100.0}, {"rms_norm_eps": 0.1}],
    },
    "minicpmv-llama": {
        "config": {**{k: v for k, v in MINICPMO.items() if k not in ("use_sliding_window", "max_window_layers")},
                   "architectures": ["MiniCPMV"], "model_type": "minicpmv", "version": 4.0, "head_dim": 12},
        "reference_type": "llama", "reference_class": "LlamaForCausalLM", "also_saved": False,
        "layout": under("llm.", {"vpm.encoder.layers.0.weight": [4, 4], "resampler.query": [4, 16]}),
        "mutants": [{"rope_theta": 100.0}],
    },
    "minicpmv4_6-hybrid": {
        "config": {**wrapped("MiniCPMV4_6ForConditionalGeneration", "minicpmv4_6", QWEN3_5_TEXT, SIGLIP),
                   "image_token_id": 96, "insert_layer_id": 0}, "below": 90,
        "mutants": [{"text_config": {"rms_norm_eps": 0.1}}],
    },
    "minicpmv4_6-tied": {
        "config": {**wrapped("MiniCPMV4_6ForConditionalGeneration", "minicpmv4_6",
                             {**QWEN3_5_TEXT, "num_hidden_layers": 3, "layer_types":
                              ["full_attention", "linear_attention", "full_attention"], "num_key_value_heads": 4,
                              "tie_word_embeddings": True, "attention_bias": True}, SIGLIP),
                   "image_token_id": 96, "insert_layer_id": 0, "tie_word_embeddings": True}, "below": 90,
        "mutants": [{"text_config": {"rope_parameters": {"rope_theta": 100.0}}}],
    },
    "deepseek_vl_v2-latent": {
        "config": {**DSVL2, "language_config": {**DSV2_TEXT, **LATENT, "architectures": ["DeepseekV2ForCausalLM"]}},
        "reference_type": "deepseek_v2", "reference_class": "DeepseekV2ForCausalLM", "also_saved": False,
        "reference_config": language, "layout": under("language.", {
            "vision.blocks.0.norm1.weight": [16], "projector.layers.0.weight": [8, 16], "image_newline": [8],
            "view_seperator": [8]}),
        "mutants": [{"language_config": {"num_experts_per_tok": 3}}, {"language_config": {"rope_theta": 100.0}}],
    },
    "deepseek_vl_v2-plain": {
        "config": {**DSVL2, "architectures": ["DeepseekOCRForCausalLM"], "language_config":
                   {**DSV2_TEXT, "use_mla": False, "routed_scaling_factor": 1.7, "kv_lora_rank": None, "q_lora_rank": None,
                    "qk_nope_head_dim": 0, "qk_rope_head_dim": 0, "v_head_dim": 0}},
        "reference_type": "deepseek_ocr2", "reference_class": "DeepseekOcr2ForConditionalGeneration",
        "reference_config": lambda c: {"model_type": "deepseek_ocr2", "dtype": "float32", "image_token_id": 96,
                                       "vision_config": OCR_VISION, "text_config":
                                       {**{k: v for k, v in c["language_config"].items()
                                           if not k.endswith(("lora_rank", "head_dim", "mla"))},
                                        "model_type": "deepseek_ocr2_text",
                                        "mlp_layer_types": ["dense", "sparse", "sparse"]}},
        "below": 90, "also_saved": False,
        "mutants": [{"language_config": {"num_experts_per_tok": 3}}, {"language_config": {"routed_scaling_factor": 1.0}}],
    },
    "youtu_vl-latent": {
        "config": YOUTU, "reference_type": "youtu", "reference_class": "YoutuForCausalLM", "also_saved": False,
        "layout": beside({"siglip2.vision_model.head.weight": [4, 4], "merger.ln_q.weight": [16]}),
        "mutants": [{"rope_theta": 100.0}, {"rms_norm_eps": 0.1}],
    },
    "youtu_vl-untied": {
        "config": {**YOUTU, "tie_word_embeddings": False, "num_hidden_layers": 3},
        "reference_type": "youtu", "reference_class": "YoutuForCausalLM", "also_saved": False,
        "layout": beside({"siglip2.vision_model.head.weight": [4, 4]}), "mutants": [{"rope_theta": 500.0}],
    },
    "glm_ocr-sections": {
        "config": wrapped("GlmOcrForConditionalGeneration", "glm_ocr", GLM_OCR_TEXT, GLM4V_VISION, **OCR_TOKENS),
        "below": 90, "no_positions": True,
        "mutants": [{"text_config": {"rope_parameters": {"rope_theta": 100.0}}}],
    },
    "hunyuan_vl-axes": {
        "config": HUNYUAN, "below": 90, "mutants": [{"rope_scaling": {"alpha": 2.0}}, {"rms_norm_eps": 0.1}],
    },
    "hunyuan_vl-bias": {
        "config": {**HUNYUAN, "attention_bias": True, "num_key_value_heads": 6, "rope_scaling":
                   {**HUNYUAN["rope_scaling"], "type": "dynamic", "alpha": 1000.0}},
        "below": 90, "mutants": [{"rope_theta": 100.0}],
    },
    "paddleocr_vl-flat": {
        "config": PADDLE, "reference_config": nested_paddle, "below": 90,
        "mutants": [{"rope_theta": 100.0}, {"rms_norm_eps": 0.1}],
    },
    "paddleocr_vl-tied": {
        "config": {**PADDLE, "tie_word_embeddings": True, "num_key_value_heads": 6, "head_dim": 12, "rope_scaling":
                   {**PADDLE["rope_scaling"], "mrope_section": [2, 2, 2]}},
        "reference_config": nested_paddle, "below": 90, "mutants": [{"rope_theta": 100.0}],
    },
    "granite4_vision-scales": {
        "config": wrapped("Granite4VisionForConditionalGeneration", "granite4_vision", GRANITE_TEXT, GRANITE_CLIP,
                          **GRANITE_TOWER), "below": 90,
        "mutants": [{"text_config": {"embedding_multiplier": 1.0}}, {"text_config": {"residual_multiplier": 1.0}}],
    },
    "granite4_vision-bias": {
        "config": wrapped("Granite4VisionForConditionalGeneration", "granite4_vision",
                          {**GRANITE_TEXT, "attention_bias": True, "mlp_bias": True, "num_key_value_heads": 6,
                           "num_hidden_layers": 2}, GRANITE_CLIP, **GRANITE_TOWER), "below": 90,
        "mutants": [{"text_config": {"attention_multiplier": 0.6}}],
    },
    "idefics2-mistral": {
        "config": {**wrapped("Idefics2ForConditionalGeneration", "idefics2",
                             {**LLAMA, "model_type": "mistral", "sliding_window": 7, "pad_token_id": 0},
                             {"hidden_size": 16, "intermediate_size": 20, "num_hidden_layers": 1,
                              "num_attention_heads": 2, "image_size": 8, "patch_size": 4}), "image_token_id": 96,
                   "perceiver_config": {"resampler_n_latents": 2, "resampler_depth": 1, "resampler_n_heads": 2,
                                        "resampler_head_dim": 8, "num_key_value_heads": 2}},
        "below": 90, "mutants": [{"text_config": {"sliding_window": 9}}],
    },
    "deepseek_ocr2-plain": {
        "config": {"architectures": ["DeepseekOcr2ForConditionalGeneration"], "model_type": "deepseek_ocr2",
                   "dtype": "float32", "text_config":
                   {**{k: v for k, v in DSV2_TEXT.items() if k not in ("first_k_dense_replace", "moe_layer_freq")},
                    "model_type": "deepseek_ocr2_text", "mlp_layer_types": ["sparse", "dense", "sparse"]},
                   "vision_config": OCR_VISION, "image_token_id": 96}, "below": 90,
        "mutants": [{"text_config": {"num_experts_per_tok": 3}}],
    },
}
