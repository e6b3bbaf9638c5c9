"""Cases of models with towers beside the text, whose text side is served (see configs.py)."""

from configs import BASE

TEXT = {
    "vocab_size": 97, "hidden_size": 48, "intermediate_size": 84, "num_hidden_layers": 3, "num_attention_heads": 6,
    "num_key_value_heads": 2, "hidden_act": "silu", "max_position_embeddings": 128, "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0, **BASE,
}
LLAMA = {"model_type": "llama", "head_dim": 12, "attention_bias": False, "mlp_bias": False, **TEXT}
QWEN2 = {"model_type": "qwen2", "use_sliding_window": False, "max_window_layers": 3, **TEXT}
# transformers' wrappers leave out the scale of logits that these texts have by themselves: it is 1 here.
COHERE2 = {"model_type": "cohere2", "layer_norm_eps": 1e-5, "logit_scale": 1.0, "sliding_window": 7,
           "head_dim": 12, **{k: v for k, v in TEXT.items() if k != "rms_norm_eps"}, "pad_token_id": 0}
CLIP = {"model_type": "clip_vision_model", "hidden_size": 16, "intermediate_size": 20, "num_hidden_layers": 2,
        "num_attention_heads": 2, "image_size": 8, "patch_size": 4, "projection_dim": 16}
SIGLIP = {"model_type": "siglip_vision_model", "hidden_size": 16, "intermediate_size": 20, "num_hidden_layers": 1,
          "num_attention_heads": 2, "image_size": 8, "patch_size": 4}
GLM4V_VISION = {"depth": 1, "hidden_size": 16, "intermediate_size": 20, "num_heads": 2, "image_size": 8,
                "patch_size": 4, "out_hidden_size": 48, "spatial_merge_size": 2, "temporal_patch_size": 2}
MROPE = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}


def wrapped(architecture, model_type, text, vision, **more):
    return {"architectures": [architecture], "model_type": model_type, "dtype": "float32", "tie_word_embeddings": False,
            "text_config": text, "vision_config": vision, **more}


def tied_wrapped(*where, **more):
    return {**wrapped(*where, **more), "tie_word_embeddings": True}


LLAVA = {"image_token_index": 96, "image_token_id": 96, "vision_feature_layer": -2, "image_grid_pinpoints": [[8, 8]]}
GLM4V_TEXT = {"model_type": "glm4v_text", "attention_bias": True, "rope_parameters": {**MROPE, "mrope_section": [1, 1]},
              **{k: v for k, v in TEXT.items() if k != "rope_theta"}, "pad_token_id": 0}
GLM4V_MOE_TEXT = {**GLM4V_TEXT, "model_type": "glm4v_moe_text", "head_dim": 16, "n_routed_experts": 6,
                  "n_shared_experts": 1, "num_experts_per_tok": 2, "moe_intermediate_size": 28, "n_group": 2,
                  "topk_group": 1, "norm_topk_prob": True, "routed_scaling_factor": 1.5, "first_k_dense_replace": 1,
                  "rope_parameters": {**MROPE, "mrope_section": [1, 2, 1]}}
TOKENS = {"image_token_id": 92, "video_token_id": 93, "image_start_token_id": 94, "image_end_token_id": 95,
          "video_start_token_id": 95, "video_end_token_id": 96}

OMNI_TEXT = {"model_type": "qwen3_omni_moe_text", "head_dim": 16, "num_experts": 6, "num_experts_per_tok": 2,
             "moe_intermediate_size": 28, "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": [],
             "attention_bias": False, "rope_parameters":
             {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [4, 2, 2], "mrope_interleaved": True},
             **{k: v for k, v in TEXT.items() if k != "rope_theta"}, "rms_norm_eps": 1e-6}
OMNI = {
    "architectures": ["Qwen3OmniMoeThinkerForConditionalGeneration"], "model_type": "qwen3_omni_moe_thinker",
    "dtype": "float32", "text_config": OMNI_TEXT, "image_token_id": 92, "video_token_id": 93, "audio_token_id": 94,
    "vision_config": {"depth": 1, "hidden_size": 16, "intermediate_size": 20, "num_heads": 2, "patch_size": 4,
                      "out_hidden_size": 48, "num_position_embeddings": 16, "deepstack_visual_indexes": [0]},
    "audio_config": {"encoder_layers": 1, "encoder_attention_heads": 2, "encoder_ffn_dim": 20, "d_model": 16,
                     "num_mel_bins": 8, "output_dim": 48, "downsample_hidden_size": 8, "max_source_positions": 20},
}

PHI3_V = {
    "architectures": ["Phi3VForCausalLM"], "model_type": "phi3_v", "torch_dtype": "float32", "sliding_window": 11,
    "original_max_position_embeddings": 128, "tie_word_embeddings": False, "pad_token_id": 0, **TEXT,
}
PHI4MM_LONG = {"type": "longrope", "short_factor": [1.0, 1.2, 1.5, 2.0], "long_factor": [2.0, 3.0, 4.0, 6.0]}
FASTVLM = {
    "architectures": ["LlavaQwen2ForCausalLM"], "model_type": "llava_qwen2", "torch_dtype": "float32",
    "use_sliding_window": True, "sliding_window": 9, "max_window_layers": 1, "tie_word_embeddings": True,
    "mm_hidden_size": 24, "mm_vision_tower": "mobileclip_l_1024", **TEXT,
}


def beside(extra):
    """The text's own names, and tensors that are left out."""
    def layout(saved, config):
        return {**{name: (shape, {name: lambda x: x}) for name, shape in saved.items()},
                **{name: (shape, {}) for name, shape in extra.items()}}
    return layout


def thinker(saved, config):
    return {**{"thinker." + name: (shape, {name: lambda x: x}) for name, shape in saved.items()},
            "talker.model.layers.0.weight": ([4, 4], {}), "code2wav.decoder.0.weight": ([4, 4], {})}


def older(inner):
    """Names before transformers 5: the text with its head under language_model, towers beside it."""
    def layout(saved, config):
        def own(name):
            if name.startswith("lm_head."):
                return "language_model." + name
            for part in (inner, "model.language_model."):
                if name.startswith(part):
                    return "language_model.model." + name.removeprefix(part)
            return name.removeprefix("model.")
        return {own(name): (shape, {name: lambda x: x}) for name, shape in saved.items()}
    return layout


def phi4mm_layout(saved, config):
    """Every matrix of a layer beside two adapters."""
    out = {}
    for name, shape in saved.items():
        if ".layers." in name and len(shape) == 2:
            stem = name.removesuffix(".weight")
            out[stem + ".base_layer.weight"] = (shape, {name: lambda x: x})
            for adapter in ("speech", "vision"):
                out[f"{stem}.lora_A.{adapter}.weight"] = ([4, shape[1]], {})
                out[f"{stem}.lora_B.{adapter}.weight"] = ([shape[0], 4], {})
        else:
            out[name] = (shape, {name: lambda x: x})
    return {**out, "model.embed_tokens_extend.image_embed.glb_GN": ([1, 1, 16], {})}


CASES = {
    "llava_next-llama": {
        "config": wrapped("LlavaNextForConditionalGeneration", "llava_next", LLAMA, CLIP, **LLAVA), "below": 90,
        "no_positions": True, "mutants": [{"text_config": {"rope_theta": 100.0}}, {"text_config": {"rms_norm_eps": 0.1}}],
    },
    "llava_next-granite": {
        "config": wrapped("LlavaNextForConditionalGeneration", "llava_next",
                          {**LLAMA, "model_type": "granite", "embedding_multiplier": 3.0, "logits_scaling": 1.0,
                           "residual_multiplier": 0.6, "attention_multiplier": 0.4, "attention_bias": True}, SIGLIP,
                          **LLAVA),
        "layout": older("model.language_model.model."), "below": 90, "no_positions": True, "also_saved": False,
        "mutants": [{"text_config": {"embedding_multiplier": 1.0}}, {"text_config": {"residual_multiplier": 1.0}}],
    },
    "idefics3-published": {
        "config": wrapped("Idefics3ForConditionalGeneration", "idefics3", {**LLAMA, "pad_token_id": 0},
                          {"model_type": "idefics3_vision", **{k: v for k, v in SIGLIP.items() if k != "model_type"}},
                          image_token_id=96, scale_factor=2, pad_token_id=0), "below": 90, "no_positions": True,
        "mutants": [{"text_config": {"rope_theta": 100.0}}],
    },
    "idefics3-tied": {
        "config": {**wrapped("Idefics3ForConditionalGeneration", "idefics3",
                             {**LLAMA, "pad_token_id": 0, "num_hidden_layers": 2, "num_key_value_heads": 6,
                              "head_dim": 20, "attention_bias": True, "tie_word_embeddings": True},
                             {"model_type": "idefics3_vision", **{k: v for k, v in SIGLIP.items() if k != "model_type"}},
                             image_token_id=96, scale_factor=2, pad_token_id=0), "tie_word_embeddings": True},
        "below": 90, "no_positions": True, "mutants": [{"text_config": {"rms_norm_eps": 0.1}}],
    },
    "cohere2_vision-windows": {
        "config": tied_wrapped("Cohere2VisionForConditionalGeneration", "cohere2_vision", {**COHERE2, "num_hidden_layers": 4},
                          SIGLIP, image_token_id=96, downsample_factor=2), "below": 90, "no_positions": True,
        "mutants": [{"text_config": {"sliding_window": 6}}, {"text_config": {"layer_norm_eps": 0.1}}],
    },
    "cohere2_vision-full": {
        "config": tied_wrapped("Cohere2VisionForConditionalGeneration", "cohere2_vision",
                          {**COHERE2, "layer_types": ["full_attention"] * 3, "attention_bias": True,
                           "num_key_value_heads": 6}, SIGLIP, image_token_id=96, downsample_factor=2),
        "below": 90, "no_positions": True, "mutants": [{"text_config": {"layer_norm_eps": 0.1}}],
    },
    "internvl-qwen2": {
        "config": wrapped("InternVLForConditionalGeneration", "internvl", QWEN2,
                          {"model_type": "internvl_vision", "hidden_size": 16, "intermediate_size": 20,
                           "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": [8, 8], "patch_size": [4, 4]},
                          image_token_id=96), "below": 90, "no_positions": True,
        "mutants": [{"text_config": {"rope_theta": 100.0}}],
    },
    "internvl-qwen3": {
        "config": wrapped("InternVLForConditionalGeneration", "internvl",
                          {**QWEN2, "model_type": "qwen3", "head_dim": 20, "attention_bias": True},
                          {"model_type": "internvl_vision", "hidden_size": 16, "intermediate_size": 20,
                           "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": [8, 8], "patch_size": [4, 4]},
                          image_token_id=96),
        "layout": older("model.language_model.model."), "below": 90, "no_positions": True, "also_saved": False,
        "mutants": [{"text_config": {"rms_norm_eps": 0.1}}],
    },
    "glm4v-sections": {
        "config": wrapped("Glm4vForConditionalGeneration", "glm4v", GLM4V_TEXT, GLM4V_VISION, **TOKENS), "below": 90,
        "no_positions": True, "mutants": [{"text_config": {"rope_parameters": {"rope_theta": 100.0}}}],
    },
    "glm4v-whole": {
        "config": wrapped("Glm4vForConditionalGeneration", "glm4v",
                          {**GLM4V_TEXT, "num_attention_heads": 4, "num_key_value_heads": 4, "num_hidden_layers": 2,
                           "rope_parameters": {"rope_type": "default", "rope_theta": 500.0,
                                               "partial_rotary_factor": 1.0, "mrope_section": [2, 2, 2]}},
                          GLM4V_VISION, **TOKENS), "below": 90, "no_positions": True,
        "mutants": [{"text_config": {"rms_norm_eps": 0.1}}],
    },
    "glm4v_moe-groups": {
        "config": wrapped("Glm4vMoeForConditionalGeneration", "glm4v_moe", GLM4V_MOE_TEXT, GLM4V_VISION, **TOKENS),
        "below": 90, "no_positions": True,
        "mutants": [{"text_config": {"routed_scaling_factor": 1.0}}, {"text_config": {"num_experts_per_tok": 3}}],
    },
    "glm4v_moe-dense": {
        "config": wrapped("Glm4vMoeForConditionalGeneration", "glm4v_moe",
                          {**GLM4V_MOE_TEXT, "first_k_dense_replace": 2, "n_group": 1, "norm_topk_prob": False,
                           "num_key_value_heads": 6}, GLM4V_VISION, **TOKENS),
        "below": 90, "no_positions": True, "mutants": [{"text_config": {"norm_topk_prob": True}}],
    },
    "qwen3_omni_moe-thinker": {
        "config": {"architectures": ["Qwen3OmniMoeForConditionalGeneration"], "model_type": "qwen3_omni_moe",
                   "thinker_config": {k: v for k, v in OMNI.items() if k not in ("architectures", "dtype")}},
        "reference_type": "qwen3_omni_moe_thinker", "reference_class": "Qwen3OmniMoeThinkerForConditionalGeneration",
        "reference_config": lambda c: dict(c["thinker_config"]), "layout": thinker, "below": 90, "no_positions": True,
        "also_saved": False,
        "mutants": [{"thinker_config": {"text_config": {"num_experts_per_tok": 3}}},
                    {"thinker_config": {"text_config": {"rope_parameters": {"rope_theta": 100.0}}}}],
    },
    "qwen3_omni_moe-dense": {
        "config": {"architectures": ["Qwen3OmniMoeForConditionalGeneration"], "model_type": "qwen3_omni_moe",
                   "thinker_config": {**{k: v for k, v in OMNI.items() if k not in ("architectures", "dtype")},
                                      "text_config": {**OMNI_TEXT, "mlp_only_layers": [1], "norm_topk_prob": False,
                                                      "num_key_value_heads": 6}}},
        "reference_type": "qwen3_omni_moe_thinker", "reference_class": "Qwen3OmniMoeThinkerForConditionalGeneration",
        "reference_config": lambda c: dict(c["thinker_config"]), "layout": thinker, "below": 90, "no_positions": True,
        "also_saved": False, "mutants": [{"thinker_config": {"text_config": {"rms_norm_eps": 0.1}}}],
    },
    "phi3_v-window": {
        "config": {**PHI3_V}, "reference_type": "phi3", "reference_class": "Phi3ForCausalLM", "also_saved": False,
        "layout": beside({"model.vision_embed_tokens.img_projection.0.weight": [8, 8],
                          "model.vision_embed_tokens.glb_GN": [1, 1, 16]}),
        "mutants": [{"sliding_window": 10}, {"rope_theta": 100.0}],
    },
    "phi3_v-long": {
        "config": {**PHI3_V, "original_max_position_embeddings": 24, "rope_scaling": PHI4MM_LONG, "sliding_window": None,
                   "num_key_value_heads": 6, "tie_word_embeddings": True},
        "reference_type": "phi3", "reference_class": "Phi3ForCausalLM", "also_saved": False,
        "layout": beside({"model.vision_embed_tokens.sub_GN": [1, 1, 1, 16]}), "mutants": [{"rms_norm_eps": 0.1}],
    },
    "phi4mm-adapters": {
        "config": {**PHI3_V, "architectures": ["Phi4MMForCausalLM"], "model_type": "phi4mm", "sliding_window": None,
                   "partial_rotary_factor": 0.75, "num_key_value_heads": 3, "tie_word_embeddings": True},
        "reference_type": "phi3", "reference_class": "Phi3ForCausalLM", "also_saved": False, "layout": phi4mm_layout,
        "mutants": [{"partial_rotary_factor": 1.0}],
    },
    "llava_qwen2-window": {
        "config": {**FASTVLM}, "reference_type": "qwen2", "reference_class": "Qwen2ForCausalLM", "also_saved": False,
        "layout": beside({"model.vision_tower.vision_tower.model.head.proj": [8, 8],
                          "model.mm_projector.0.weight": [16, 24], "model.mm_projector.0.bias": [16]}),
        "mutants": [{"sliding_window": 8}, {"rope_theta": 100.0}],
    },
    "llava_qwen2-untied": {
        "config": {**FASTVLM, "use_sliding_window": False, "tie_word_embeddings": False, "num_key_value_heads": 6},
        "reference_type": "qwen2", "reference_class": "Qwen2ForCausalLM", "also_saved": False,
        "layout": beside({"model.mm_projector.2.weight": [16, 16]}), "mutants": [{"rms_norm_eps": 0.1}],
    },
    "dots_ocr-beside": {
        "config": {**FASTVLM, "architectures": ["DotsOCRForCausalLM"], "model_type": "dots_ocr",
                   "use_sliding_window": False, "tie_word_embeddings": False, "vision_config": {"embed_dim": 16}},
        "reference_type": "qwen2", "reference_class": "Qwen2ForCausalLM", "also_saved": False,
        "layout": beside({"vision_tower.blocks.0.norm1.weight": [16]}), "mutants": [{"rope_theta": 100.0}],
    },
}
