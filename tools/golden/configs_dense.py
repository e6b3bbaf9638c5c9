"""Dense decoders of plain parts; see configs.py for what a case holds."""

from configs import BASE, LLAMA3_ROPE, rope


def model(architecture, model_type, **changes):
    return {
        "architectures": [architecture], "model_type": model_type, "hidden_act": "silu", "hidden_size": 72,
        "intermediate_size": 100, "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2,
        "vocab_size": 97, "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
        "torch_dtype": "float32", **BASE, **changes,
    }


def without(config, *keys):
    return {key: value for key, value in config.items() if key not in keys}


PHI3 = model("Phi3ForCausalLM", "phi3", original_max_position_embeddings=128, sliding_window=None, pad_token_id=0)
SHORT, LONG = [1.0, 1.1, 1.2, 1.4, 1.7, 2.0], [1.0, 1.6, 2.5, 4.0, 7.0, 11.0]

GEMMA = model("GemmaForCausalLM", "gemma", hidden_act="gelu_pytorch_tanh", head_dim=20, rms_norm_eps=1e-6, pad_token_id=0)
GEMMA2 = without(
    model("Gemma2ForCausalLM", "gemma2", hidden_activation="gelu_pytorch_tanh", head_dim=18, rms_norm_eps=1e-6,
          num_hidden_layers=4, query_pre_attn_scalar=40, sliding_window=7, attn_logit_softcapping=6.0,
          final_logit_softcapping=5.0, pad_token_id=0), "hidden_act")
SIGLIP = {"model_type": "siglip_vision_model", "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1,
          "num_attention_heads": 2, "image_size": 28, "patch_size": 7}
GEMMA3_TEXT = {
    "model_type": "gemma3_text", "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 56, "intermediate_size": 90,
    "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 18, "vocab_size": 105,
    "query_pre_attn_scalar": 60, "sliding_window": 6, "sliding_window_pattern": 2, "rope_theta": 1000000.0,
    "rope_local_base_freq": 10000.0, "rope_scaling": {"rope_type": "linear", "factor": 8.0},
    "max_position_embeddings": 128, "rms_norm_eps": 1e-6, "pad_token_id": 0,
}
GEMMA3 = {"architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3", "text_config": GEMMA3_TEXT,
          "vision_config": SIGLIP, "mm_tokens_per_image": 4, "image_token_index": 90, "torch_dtype": "float32"}

SMOLLM3 = model("SmolLM3ForCausalLM", "smollm3", no_rope_layer_interval=2, tie_word_embeddings=True, pad_token_id=0,
                use_sliding_window=False, sliding_window=None)
GLM = model("GlmForCausalLM", "glm", head_dim=16, attention_bias=True, pad_token_id=0, partial_rotary_factor=0.5,
            tie_word_embeddings=False)
GLM4 = {**GLM, "architectures": ["Glm4ForCausalLM"], "model_type": "glm4"}

MINISTRAL3_ROPE = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 11,
                   "beta_fast": 8.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.6}
MINISTRAL3 = without(model("Ministral3ForCausalLM", "ministral3", head_dim=16, sliding_window=None,
                           tie_word_embeddings=False, rope_parameters=MINISTRAL3_ROPE), "rope_theta")
PIXTRAL = {"model_type": "pixtral", "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1,
           "num_attention_heads": 2, "head_dim": 8, "image_size": 28, "patch_size": 7}
MISTRAL3 = {"architectures": ["Mistral3ForConditionalGeneration"], "model_type": "mistral3", "vision_config": PIXTRAL,
            "image_token_index": 90, "spatial_merge_size": 2, "vision_feature_layer": -1, "torch_dtype": "float32"}

OLMO = without(model("OlmoForCausalLM", "olmo", clip_qkv=0.6, attention_bias=False, tie_word_embeddings=False,
                     pad_token_id=0), "rms_norm_eps")
OLMO_ORIGINAL = {
    "architectures": ["OLMoForCausalLM"], "model_type": "olmo", "d_model": 72, "n_layers": 2, "n_heads": 6,
    "mlp_hidden_size": 180, "mlp_ratio": 4, "vocab_size": 97, "embedding_size": 101, "max_sequence_length": 128,
    "activation_type": "swiglu", "layer_norm_type": "default", "layer_norm_with_affine": False, "rope": True,
    "alibi": False, "include_bias": False, "weight_tying": False, "clip_qkv": 0.7, "rope_theta": 10000.0, **BASE,
}


def as_olmo(config):
    """The first checkpoints' config in today's spelling."""
    return {"model_type": "olmo", "hidden_size": config["d_model"], "num_hidden_layers": config["n_layers"],
            "num_attention_heads": config["n_heads"], "intermediate_size": config["mlp_hidden_size"] // 2,
            "vocab_size": config["embedding_size"], "max_position_embeddings": config["max_sequence_length"],
            "clip_qkv": config.get("clip_qkv"), "rope_theta": config["rope_theta"], "pad_token_id": 0, **BASE}


def olmo_layout(saved, config):
    width, half = config["d_model"], config["mlp_hidden_size"] // 2
    layout = {"model.transformer.wte.weight": (saved["model.embed_tokens.weight"], {"model.embed_tokens.weight": lambda x: x}),
              "model.transformer.ff_out.weight": (saved["lm_head.weight"], {"lm_head.weight": lambda x: x})}
    for i in range(config["n_layers"]):
        own, theirs = f"model.transformer.blocks.{i}.", f"model.layers.{i}."
        layout[own + "att_proj.weight"] = ([3 * width, width], {
            f"{theirs}self_attn.{name}_proj.weight": lambda x, n=n: x[n * width:(n + 1) * width]
            for n, name in enumerate("qkv")})
        layout[own + "attn_out.weight"] = ([width, width], {theirs + "self_attn.o_proj.weight": lambda x: x})
        layout[own + "ff_proj.weight"] = ([2 * half, width], {theirs + "mlp.up_proj.weight": lambda x: x[:half],
                                                              theirs + "mlp.gate_proj.weight": lambda x: x[half:]})
        layout[own + "ff_out.weight"] = ([width, half], {theirs + "mlp.down_proj.weight": lambda x: x})
    return layout


OLMO2 = model("Olmo2ForCausalLM", "olmo2", attention_bias=False, tie_word_embeddings=False, pad_token_id=0)
OLMO3 = {**OLMO2, "architectures": ["Olmo3ForCausalLM"], "model_type": "olmo3", "num_hidden_layers": 5,
         "sliding_window": 6, "rope_theta": 500000.0}
GRANITE = model("GraniteForCausalLM", "granite", embedding_multiplier=3.0, attention_multiplier=0.4,
                residual_multiplier=0.5, logits_scaling=1.5, attention_bias=False, mlp_bias=False,
                tie_word_embeddings=True, pad_token_id=0)
COHERE = without(model("CohereForCausalLM", "cohere", layer_norm_eps=1e-5, logit_scale=0.7, use_qk_norm=True,
                       attention_bias=False, pad_token_id=0), "rms_norm_eps")
COHERE2 = without({**COHERE, "architectures": ["Cohere2ForCausalLM"], "model_type": "cohere2", "num_hidden_layers": 4,
                   "sliding_window": 6, "sliding_window_pattern": 3}, "use_qk_norm")
EXAONE = without(model("ExaoneForCausalLM", "exaone", num_layers=3, layer_norm_epsilon=1e-5,
                       activation_function="silu", tie_word_embeddings=True), "num_hidden_layers", "rms_norm_eps", "hidden_act")
EXAONE4 = model("Exaone4ForCausalLM", "exaone4", num_hidden_layers=4, sliding_window=6, sliding_window_pattern=3,
                tie_word_embeddings=False, pad_token_id=0)
STARCODER2 = without(model("Starcoder2ForCausalLM", "starcoder2", hidden_act="gelu_pytorch_tanh", norm_epsilon=1e-5,
                           sliding_window=7, use_bias=True, tie_word_embeddings=True), "rms_norm_eps")
STABLELM = without(model("StableLmForCausalLM", "stablelm", layer_norm_eps=1e-5, partial_rotary_factor=0.5,
                         use_qkv_bias=True, qk_layernorm=True, use_parallel_residual=True, hidden_size=96,
                         tie_word_embeddings=False), "rms_norm_eps")
GPT_NEOX = without(model("GPTNeoXForCausalLM", "gpt_neox", hidden_act="gelu", layer_norm_eps=1e-5, rotary_pct=0.5,
                         rotary_emb_base=10000, use_parallel_residual=True, hidden_size=96,
                         tie_word_embeddings=False), "rms_norm_eps", "rope_theta", "num_key_value_heads")
GPT_BIGCODE = {
    "architectures": ["GPTBigCodeForCausalLM"], "model_type": "gpt_bigcode", "activation_function": "gelu_pytorch_tanh",
    "n_embd": 60, "n_layer": 2, "n_head": 5, "n_positions": 48, "n_inner": 100, "vocab_size": 107, "multi_query": True,
    "layer_norm_epsilon": 1e-5, "scale_attn_weights": True, **BASE,
}
PHI = without(model("PhiForCausalLM", "phi", hidden_act="gelu_new", layer_norm_eps=1e-5, partial_rotary_factor=0.5,
                    hidden_size=96, tie_word_embeddings=False), "rms_norm_eps")
SEED_OSS = model("SeedOssForCausalLM", "seed_oss", head_dim=14, attention_bias=True, attention_out_bias=False,
                 mlp_bias=False, tie_word_embeddings=False, pad_token_id=0)
ERNIE = model("Ernie4_5ForCausalLM", "ernie4_5", head_dim=14, use_bias=True, tie_word_embeddings=True, pad_token_id=0)
HUNYUAN = model("HunYuanDenseV1ForCausalLM", "hunyuan_v1_dense", head_dim=16, attention_bias=False,
                tie_word_embeddings=True, pad_token_id=0, rope_theta=100.0,
                rope_scaling={"type": "dynamic", "alpha": 20.0, "factor": 1.0})
HELIUM = model("HeliumForCausalLM", "helium", head_dim=12, rms_norm_eps=1e-8, attention_bias=False, mlp_bias=False,
               tie_word_embeddings=False, pad_token_id=0)
APERTUS = model("ApertusForCausalLM", "apertus", hidden_act="xielu", attention_bias=False, tie_word_embeddings=False,
                pad_token_id=0, rope_scaling={"rope_type": "llama3", **LLAMA3_ROPE})
NEMOTRON = without(model("NemotronForCausalLM", "nemotron", hidden_act="relu2", norm_eps=1e-5, head_dim=16,
                         partial_rotary_factor=0.5, attention_bias=False, mlp_bias=False,
                         tie_word_embeddings=False), "rms_norm_eps")
NANOCHAT = model("NanoChatForCausalLM", "nanochat", hidden_act="relu2", rms_norm_eps=1e-2, final_logit_softcapping=4.0,
                 attention_bias=False, tie_word_embeddings=False)
BITNET = model("BitNetForCausalLM", "bitnet", hidden_act="relu2", rope_theta=5000.0, tie_word_embeddings=True, pad_token_id=0)
IQUEST = model("IQuestCoderForCausalLM", "iquestcoder", head_dim=16, tie_word_embeddings=False)
QWEN2_VL = {"architectures": ["Qwen2VLForConditionalGeneration"], "model_type": "qwen2_vl", "torch_dtype": "float32",
            "vision_config": {"depth": 1, "embed_dim": 16, "hidden_size": 72, "num_heads": 2, "patch_size": 7,
                              "mlp_ratio": 2}, "image_token_id": 90, "video_token_id": 91, "vision_start_token_id": 92,
            "vision_end_token_id": 93, "tie_word_embeddings": False}
QWEN2_TEXT = {"hidden_size": 72, "intermediate_size": 100, "num_hidden_layers": 3, "num_attention_heads": 6,
              "num_key_value_heads": 2, "vocab_size": 97, "max_position_embeddings": 128, "rms_norm_eps": 1e-6,
              "rope_theta": 10000.0, "rope_scaling": {"type": "mrope", "mrope_section": [2, 2, 2]},
              "use_sliding_window": False, "max_window_layers": 1, "hidden_act": "silu"}
QWEN3_VL = {"architectures": ["Qwen3VLForConditionalGeneration"], "model_type": "qwen3_vl", "torch_dtype": "float32",
            "vision_config": {"depth": 2, "hidden_size": 16, "intermediate_size": 24, "num_heads": 2, "patch_size": 7,
                              "out_hidden_size": 72, "num_position_embeddings": 16, "deepstack_visual_indexes": [0]},
            "image_token_id": 90, "video_token_id": 91, "vision_start_token_id": 92, "vision_end_token_id": 93,
            "tie_word_embeddings": True,
            "text_config": {"model_type": "qwen3_vl_text", "hidden_size": 72, "intermediate_size": 100,
                            "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 16,
                            "vocab_size": 97, "max_position_embeddings": 128, "rms_norm_eps": 1e-6, "hidden_act": "silu",
                            "rope_theta": 10000.0, "attention_bias": False,
                            "rope_scaling": {"rope_type": "default", "mrope_section": [4, 2, 2],
                                             "mrope_interleaved": True}}}

LLAMA4 = without(model("Llama4ForCausalLM", "llama4_text", head_dim=16, intermediate_size_mlp=88, moe_layers=[],
                      no_rope_layers=[1, 1, 0], attention_chunk_size=9, attn_temperature_tuning=True, floor_scale=7,
                      attn_scale=0.5, use_qk_norm=True, attention_bias=False, tie_word_embeddings=False,
                      pad_token_id=0), "intermediate_size")
# By mlx-lm, which alone has these families; it reads the older spelling of rope keys.
INTERNLM2 = model("InternLM2ForCausalLM", "internlm2", bias=True, tie_word_embeddings=False, rope_scaling=None)
INTERNLM3 = model("InternLM3ForCausalLM", "internlm3", qkv_bias=True, bias=False, tie_word_embeddings=False)
MINICPM = model("MiniCPMForCausalLM", "minicpm", dim_model_base=48, scale_depth=1.3, scale_emb=4.0,
                tie_word_embeddings=False)
QWEN = without(model("QWenLMHeadModel", "qwen", kv_channels=12, layer_norm_epsilon=1e-6, intermediate_size=200,
                     no_bias=True), "rms_norm_eps", "num_key_value_heads", "rope_theta", "hidden_act")
OPENELM = {
    "architectures": ["OpenELMForCausalLM"], "model_type": "openelm", "head_dim": 16, "num_transformer_layers": 3,
    "model_dim": 56, "vocab_size": 97, "ffn_dim_divisor": 12, "num_query_heads": [6, 4, 8], "num_kv_heads": [3, 1, 2],
    "ffn_multipliers": [0.5, 1.3, 2.2], "ffn_with_glu": True, "normalize_qk_projections": True,
    "share_input_output_layers": True, "rms_norm_eps": 1e-6, "rope_freq_constant": 10000, "activation_fn_name": "swish",
    "max_context_length": 128,
}
PLAMO = model("PlamoForCausalLM", "plamo", n_shared_head=3, rms_norm_eps=1e-6)
LILLE = {"architectures": ["LilleForCausalLM"], "model_type": "lille-130m", "block_size": 128, "layer_norm_eps": 1e-5,
         "n_embd": 72, "n_head": 6, "n_kv_heads": 2, "n_layer": 2, "rope_theta": 10000.0, "vocab_size": 97,
         "tie_word_embeddings": True}
TELECHAT3 = model("TeleChat3ForCausalLM", "telechat3", head_dim=16, attention_bias=True, mlp_bias=False,
                  tie_word_embeddings=False, rope_scaling={"type": "telechat3-yarn", "factor": 4.0, "beta_fast": 8,
                                                           "original_max_position_embeddings": 16})
NAS = without(model("DeciLMForCausalLM", "nemotron-nas", num_hidden_layers=4, attention_bias=False, mlp_bias=False,
                    tie_word_embeddings=False, rope_scaling=None, block_configs=[
                        {"attention": {"n_heads_in_group": 3}, "ffn": {"ffn_mult": 1.0}},
                        {"attention": {"no_op": True}, "ffn": {"ffn_mult": 6.0}},
                        {"attention": {"replace_with_linear": True}, "ffn": {"no_op": True}},
                        {"attention": {"n_heads_in_group": 2}, "ffn": {"replace_with_linear": True}}]),
              "intermediate_size", "num_key_value_heads")
MIMO = model("MiMoForCausalLM", "mimo", tie_word_embeddings=False)


def mlx(config, mutants, **case):
    return {"config": config, "mutants": mutants, "oracle": "mlx", **case}


THETA = {"rope_theta": 100.0}

CASES = {
    # phi3: 40 tokens are more than the 32 of the short factors ----------------------------------------------
    "phi3-long": {
        "config": {**PHI3, "original_max_position_embeddings": 32,
                   "rope_scaling": {"type": "longrope", "short_factor": SHORT, "long_factor": LONG}},
        "mutants": [{"original_max_position_embeddings": 48}, {"rope_scaling": {"long_factor": SHORT}},
                    {"max_position_embeddings": 1024}, THETA],
    },
    "phi3-short-partial": {
        "config": {**PHI3, "partial_rotary_factor": 0.5, "sliding_window": 7, "num_key_value_heads": 3, "hidden_size": 96,
                   "num_hidden_layers": 2, "original_max_position_embeddings": 64, "tie_word_embeddings": True,
                   "rope_scaling": {"type": "longrope", "short_factor": SHORT[:4], "long_factor": LONG[:4]}},
        "mutants": [{"sliding_window": 6}, {"sliding_window": 8}, {"rope_scaling": {"short_factor": LONG[:4]}},
                    {"original_max_position_embeddings": 32}],
    },
    "phi3-plain": {
        "config": {**PHI3, "num_key_value_heads": 6, "rms_norm_eps": 0.02},
        "also": [rope(rope_type="default", rope_theta=10000.0)],
        "mutants": [THETA, {"rms_norm_eps": 1e-6}],
    },
    # gemma ----------------------------------------------------------------------------------------------
    "gemma-exact-name": {
        "config": {**GEMMA, "hidden_act": "gelu", "num_hidden_layers": 2},
        "mutants": [THETA, {"hidden_act": "silu"}, {"rms_norm_eps": 0.5}],
    },
    "gemma-bias-untied": {
        "config": {**GEMMA, "attention_bias": True, "tie_word_embeddings": False, "num_key_value_heads": 1, "head_dim": 14},
        "mutants": [THETA],
    },
    "gemma2-capped": {
        "config": {**GEMMA2},
        "mutants": [{"sliding_window": 6}, {"sliding_window": 8}, {"attn_logit_softcapping": 2.0},
                    {"final_logit_softcapping": 3.0}, {"query_pre_attn_scalar": 18}, {"layer_types": ["full_attention"] * 4}],
    },
    "gemma2-defaults": {
        # Caps of 50 and 30 where the config leaves them out, none where it says null.
        "config": {**without(GEMMA2, "attn_logit_softcapping", "final_logit_softcapping", "query_pre_attn_scalar"),
                   "num_key_value_heads": 4, "num_attention_heads": 4, "num_hidden_layers": 3,
                   "layer_types": ["full_attention", "full_attention", "sliding_attention"], "tie_word_embeddings": False},
        "also": [{"attn_logit_softcapping": 50.0}],
        "mutants": [{"final_logit_softcapping": 4.0}, {"sliding_window": 5}, THETA],
    },
    "gemma3-wrapper": {
        "config": GEMMA3,
        "mutants": [{"text_config": {"sliding_window": 5}}, {"text_config": {"rope_scaling": {"factor": 2.0}}}],
    },
    "gemma3-defaults": {
        # As the 4B model's file: heads, their width and the pattern are left to the defaults.
        "config": {**GEMMA3, "text_config": {
            **without(GEMMA3_TEXT, "num_attention_heads", "num_key_value_heads", "sliding_window_pattern", "rope_theta",
                      "rope_local_base_freq", "rms_norm_eps", "hidden_activation", "query_pre_attn_scalar"),
            "num_hidden_layers": 2, "head_dim": 4}},
        "mutants": [{"text_config": {"sliding_window": 5}}],
    },
    # smollm3 --------------------------------------------------------------------------------------------
    "smollm3-interval": {
        "config": {**SMOLLM3, "attention_bias": True, "mlp_bias": True},
        "mutants": [{"no_rope_layer_interval": 3}, THETA],
    },
    "smollm3-list-window": {
        "config": {**SMOLLM3, "num_hidden_layers": 4, "no_rope_layers": [0, 1, 1, 0], "use_sliding_window": True,
                   "sliding_window": 6, "tie_word_embeddings": False, "num_key_value_heads": 3},
        "mutants": [{"sliding_window": 5}, {"use_sliding_window": False, "layer_types": ["full_attention"] * 4},
                    {"no_rope_layers": [1, 1, 1, 0]}],
    },
    # glm ------------------------------------------------------------------------------------------------
    "glm-half": {"config": GLM, "mutants": [{"partial_rotary_factor": 0.25}, THETA]},
    "glm-whole": {
        "config": {**without(GLM, "partial_rotary_factor"), "attention_bias": False, "num_key_value_heads": 3, "head_dim": 20,
                   "tie_word_embeddings": True, "rms_norm_eps": 0.02},
        "mutants": [{"partial_rotary_factor": 1.0}, {"rms_norm_eps": 1e-6}],
    },
    "glm-square": {
        "config": {**GLM, "hidden_size": 96, "num_hidden_layers": 2},
        "mutants": [{"partial_rotary_factor": 0.25}],
    },
    "glm4-half": {"config": GLM4, "mutants": [{"partial_rotary_factor": 0.25}, THETA]},
    "glm4-no-bias": {
        "config": {**GLM4, "attention_bias": False, "num_key_value_heads": 1, "partial_rotary_factor": 1.0,
                   "num_hidden_layers": 2, "rms_norm_eps": 0.02},
        "mutants": [THETA, {"rms_norm_eps": 1e-6}],
    },
    # mistral3, ministral3 -------------------------------------------------------------------------------
    "ministral3-temperature": {
        "config": MINISTRAL3,
        "mutants": [{"rope_parameters": {"llama_4_scaling_beta": 0.2}},
                    {"rope_parameters": {"original_max_position_embeddings": 20}},
                    {"rope_parameters": {"factor": 2.0}}],
    },
    "ministral3-window": {
        "config": {**MINISTRAL3, "sliding_window": 7, "num_key_value_heads": 6, "head_dim": 12, "tie_word_embeddings": True,
                   "rope_parameters": {**MINISTRAL3_ROPE, "mscale_all_dim": 0.5, "original_max_position_embeddings": 16}},
        "mutants": [{"sliding_window": 6}, {"rope_parameters": {"mscale_all_dim": 1.0}}],
    },
    "mistral3-mistral": {
        "config": {**MISTRAL3, "tie_word_embeddings": False, "text_config": {
            **without(model("", "mistral", head_dim=16, sliding_window=8), "architectures", "torch_dtype")}},
        "mutants": [{"text_config": {"sliding_window": 7}}],
    },
    "mistral3-ministral3": {
        "config": {**MISTRAL3, "tie_word_embeddings": False,
                   "text_config": without(MINISTRAL3, "architectures", "torch_dtype")},
        "mutants": [{"text_config": {"rope_parameters": {"llama_4_scaling_beta": 0.2}}}],
    },
    # olmo -----------------------------------------------------------------------------------------------
    "olmo-clipped": {"config": OLMO, "mutants": [{"clip_qkv": None}, {"clip_qkv": 0.8}, THETA]},
    "olmo-bias": {
        "config": {**OLMO, "clip_qkv": None, "attention_bias": True, "num_key_value_heads": 6, "tie_word_embeddings": True},
        "mutants": [THETA],
    },
    "olmo-original": {
        "config": OLMO_ORIGINAL, "reference_class": "OlmoForCausalLM", "reference_config": as_olmo, "layout": olmo_layout,
        "also_saved": False,
        "mutants": [THETA, {"clip_qkv": None}],
    },
    "olmo2-flat-norm": {"config": {**OLMO2, "rms_norm_eps": 0.02}, "mutants": [{"rms_norm_eps": 1e-6}, THETA]},
    "olmo2-bias": {
        "config": {**OLMO2, "attention_bias": True, "num_key_value_heads": 3, "tie_word_embeddings": True,
                   "rope_scaling": {"rope_type": "linear", "factor": 2.0}},
        "mutants": [{"rope_scaling": None}],
    },
    "olmo3-pattern": {
        "config": OLMO3,
        "mutants": [{"sliding_window": 5}, {"sliding_window": 7}, {"layer_types": ["sliding_attention"] * 5}],
    },
    "olmo3-yarn": {
        "config": {**OLMO3, "num_hidden_layers": 3, "num_key_value_heads": 6, "hidden_size": 96, "attention_bias": True,
                   "layer_types": ["full_attention", "sliding_attention", "full_attention"],
                   "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 24,
                                    "attention_factor": 1.3, "beta_fast": 6.0, "beta_slow": 1.0}},
        "mutants": [{"rope_scaling": {"attention_factor": 1.0}}, {"rope_scaling": None}],
    },
    # granite --------------------------------------------------------------------------------------------
    "granite-multipliers": {
        "config": GRANITE,
        "mutants": [{"embedding_multiplier": 2.0}, {"attention_multiplier": 0.2}, {"residual_multiplier": 0.8},
                    {"logits_scaling": 2.0}],
    },
    "granite-bias": {
        "config": {**GRANITE, "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": False,
                   "num_key_value_heads": 3, "residual_multiplier": 1.0, "embedding_multiplier": 1.0, "logits_scaling": 1.0},
        "mutants": [{"attention_multiplier": 0.2}, THETA],
    },
    # cohere ---------------------------------------------------------------------------------------------
    "cohere-qk-norm": {"config": COHERE, "mutants": [{"logit_scale": 0.5}, THETA, {"layer_norm_eps": 0.1}]},
    "cohere-bias": {
        "config": {**without(COHERE, "rope_theta"), "use_qk_norm": False, "attention_bias": True, "num_key_value_heads": 6,
                   "num_hidden_layers": 2},
        "mutants": [{"logit_scale": 0.9}, THETA],
    },
    "cohere2-pattern": {
        "config": COHERE2,
        "mutants": [{"sliding_window": 5}, {"sliding_window_pattern": 4}, {"logit_scale": 0.5}],
    },
    "cohere2-bias": {
        "config": {**without(COHERE2, "sliding_window_pattern"), "attention_bias": True, "num_hidden_layers": 3,
                   "layer_types": ["full_attention", "sliding_attention", "sliding_attention"]},
        "mutants": [{"layer_types": ["sliding_attention"] * 3}, THETA],
    },
    # exaone ---------------------------------------------------------------------------------------------
    "exaone-plain": mlx(EXAONE, [THETA, {"layer_norm_epsilon": 0.5}]),
    "exaone-untied-llama3": mlx(
        {**EXAONE, "tie_word_embeddings": False, "num_key_value_heads": 6,
         "rope_scaling": {"rope_type": "llama3", **LLAMA3_ROPE}}, [{"rope_scaling": {"factor": 2.0}}]),
    "exaone4-hybrid": {
        "config": EXAONE4,
        "mutants": [{"sliding_window": 5}, {"sliding_window_pattern": 2}, THETA],
    },
    "exaone4-global": {
        "config": {**EXAONE4, "sliding_window": None, "layer_types": ["full_attention"] * 2, "num_hidden_layers": 2,
                   "head_dim": 16, "num_key_value_heads": 3, "tie_word_embeddings": True, "rms_norm_eps": 0.02},
        "mutants": [THETA, {"rms_norm_eps": 1e-6}],
    },
    # starcoder2, stablelm -------------------------------------------------------------------------------
    "starcoder2-window": {
        "config": STARCODER2,
        "mutants": [{"sliding_window": 6}, {"hidden_act": "silu"}, {"norm_epsilon": 0.5}],
    },
    "starcoder2-no-bias": {
        "config": {**STARCODER2, "sliding_window": None, "use_bias": False, "hidden_act": "gelu", "tie_word_embeddings": False,
                   "num_key_value_heads": 6},
        "mutants": [THETA],
    },
    "stablelm-parallel": {"config": STABLELM, "mutants": [{"partial_rotary_factor": 0.25}, THETA, {"layer_norm_eps": 0.5}]},
    "stablelm-plain": {
        "config": {**without(STABLELM, "partial_rotary_factor"), "use_qkv_bias": False, "qk_layernorm": False,
                   "use_parallel_residual": False, "num_key_value_heads": 6, "tie_word_embeddings": True},
        "mutants": [{"partial_rotary_factor": 0.5}, THETA],
    },
    # gpt_neox, gpt_bigcode, phi -------------------------------------------------------------------------
    "gpt_neox-parallel": {
        "config": GPT_NEOX,
        "mutants": [{"use_parallel_residual": False}, {"rotary_pct": 0.25}, {"rotary_emb_base": 100}],
    },
    "gpt_neox-in-a-row": {
        "config": {**without(GPT_NEOX, "rotary_pct", "rotary_emb_base"), "use_parallel_residual": False,
                   "attention_bias": False, "num_attention_heads": 4, "hidden_act": "gelu_new", "tie_word_embeddings": True},
        "mutants": [{"use_parallel_residual": True}, {"rotary_pct": 0.5}],
    },
    "gpt_bigcode-multi-query": {
        "config": GPT_BIGCODE,
        "mutants": [{"layer_norm_epsilon": 0.1}, {"scale_attn_weights": False}, {"activation_function": "relu"}],
    },
    "gpt_bigcode-every-head": {
        "config": {**without(GPT_BIGCODE, "n_inner"), "multi_query": False, "n_head": 4, "activation_function": "gelu",
                   "tie_word_embeddings": False},
        "mutants": [{"n_head": 3}],
    },
    "phi-half": {"config": PHI, "mutants": [{"partial_rotary_factor": 0.25}, THETA, {"layer_norm_eps": 0.5}]},
    "phi-mha": {
        "config": {**without(PHI, "partial_rotary_factor"), "num_key_value_heads": None, "hidden_act": "gelu",
                   "num_hidden_layers": 2},
        "mutants": [{"partial_rotary_factor": 1.0}],
    },
    # seed_oss, ernie4_5, hunyuan, helium ----------------------------------------------------------------
    "seed_oss-qkv-bias": {"config": SEED_OSS, "mutants": [THETA]},
    "seed_oss-all-bias": {
        "config": {**SEED_OSS, "attention_out_bias": True, "mlp_bias": True, "num_key_value_heads": 6, "rms_norm_eps": 0.02,
                   "tie_word_embeddings": True},
        "mutants": [{"rms_norm_eps": 1e-6}],
    },
    "ernie4_5-bias": {"config": ERNIE, "mutants": [THETA]},
    "ernie4_5-plain": {
        "config": {**without(ERNIE, "rope_theta"), "use_bias": False, "num_key_value_heads": 3, "tie_word_embeddings": False,
                   "rms_norm_eps": 0.02},
        "mutants": [THETA, {"rms_norm_eps": 1e-6}],
    },
    "hunyuan_v1_dense-alpha": {"config": HUNYUAN, "mutants": [{"rope_scaling": {"alpha": 2.0}}, {"rope_theta": 10000.0}]},
    "hunyuan_v1_dense-plain": {
        "config": {**without(HUNYUAN, "rope_scaling"), "head_dim": 12, "attention_bias": True, "num_key_value_heads": 3,
                   "tie_word_embeddings": False, "rms_norm_eps": 0.02},
        "mutants": [{"rope_theta": 10.0}, {"rms_norm_eps": 1e-6}],
    },
    "helium-plain": {"config": HELIUM, "mutants": [THETA, {"rms_norm_eps": 0.1}]},
    "helium-bias": {
        "config": {**without(HELIUM, "rope_theta"), "attention_bias": True, "mlp_bias": True, "num_key_value_heads": 6,
                   "tie_word_embeddings": True},
        "mutants": [THETA],
    },
    # apertus, nemotron, nanochat, bitnet ----------------------------------------------------------------
    "apertus-llama3": {"config": APERTUS, "mutants": [{"rope_scaling": {"factor": 2.0}}, {"rms_norm_eps": 0.1}]},
    "apertus-bias": {
        "config": {**APERTUS, "rope_scaling": {"rope_type": "default"}, "attention_bias": True, "num_key_value_heads": 3,
                   "tie_word_embeddings": True, "num_hidden_layers": 2},
        "mutants": [THETA],
    },
    "nemotron-half": {"config": NEMOTRON, "mutants": [{"partial_rotary_factor": 0.25}, THETA, {"norm_eps": 0.5}]},
    "nemotron-bias": {
        "config": {**without(NEMOTRON, "partial_rotary_factor"), "attention_bias": True, "mlp_bias": True,
                   "num_key_value_heads": 6, "head_dim": 12, "hidden_act": "silu", "tie_word_embeddings": True},
        "mutants": [{"partial_rotary_factor": 1.0}, {"hidden_act": "relu2"}],
    },
    "nanochat-capped": {"config": NANOCHAT, "mutants": [THETA, {"final_logit_softcapping": 3.0}, {"rms_norm_eps": 0.2}]},
    "nanochat-bias": {
        "config": {**without(NANOCHAT, "final_logit_softcapping"), "attention_bias": True, "num_key_value_heads": 6,
                   "tie_word_embeddings": True, "hidden_act": "gelu"},
        "mutants": [THETA],
    },
    "bitnet-tied": {"config": BITNET, "mutants": [THETA, {"rms_norm_eps": 0.5}]},
    "bitnet-bias": {
        "config": {**without(BITNET, "rope_theta"), "attention_bias": True, "num_key_value_heads": 3,
                   "tie_word_embeddings": False},
        "mutants": [THETA],
    },
    "llama4_text-chunks": {
        "config": LLAMA4,
        "mutants": [{"attention_chunk_size": 8}, {"attention_chunk_size": None}, {"floor_scale": 14}, {"attn_scale": 0.1},
                    {"use_qk_norm": False}, {"attn_temperature_tuning": False}, {"no_rope_layers": [1, 0, 1]}],
    },
    "llama4_text-bias": {
        "config": {**without(LLAMA4, "no_rope_layers"), "attention_bias": True, "no_rope_layer_interval": 2,
                   "attention_chunk_size": None, "use_qk_norm": False, "tie_word_embeddings": True, "num_key_value_heads": 3},
        "mutants": [{"no_rope_layer_interval": 3}, THETA],
    },
    # aliases and wrappers -------------------------------------------------------------------------------
    "iquestcoder-plain": {"config": IQUEST, "reference_type": "llama", "reference_class": "LlamaForCausalLM", "mutants": [THETA]},
    "mimo-plain": mlx(MIMO, [THETA]),
    "qwen2_vl-published": {
        "config": {**QWEN2_VL, **QWEN2_TEXT},
        "mutants": [THETA, {"rms_norm_eps": 0.5}],
    },
    "qwen2_vl-nested": {
        "config": {**QWEN2_VL, "tie_word_embeddings": True, "text_config": {
            **QWEN2_TEXT, "model_type": "qwen2_vl_text", "num_key_value_heads": 3}},
        "mutants": [{"text_config": THETA}],
    },
    "qwen3_vl-tied": {"config": QWEN3_VL, "mutants": [{"text_config": THETA}]},
    "qwen3_vl-bias": {
        "config": {**QWEN3_VL, "tie_word_embeddings": False,
                   "text_config": {**QWEN3_VL["text_config"], "attention_bias": True, "num_key_value_heads": 3}},
        "mutants": [{"text_config": {"rms_norm_eps": 0.5}}],
    },
    # by mlx-lm ------------------------------------------------------------------------------------------
    "internlm2-bias": mlx(INTERNLM2, [THETA, {"rms_norm_eps": 0.5}]),
    "internlm2-linear-tied": mlx(
        {**INTERNLM2, "bias": False, "tie_word_embeddings": True, "num_key_value_heads": 3,
         "rope_scaling": {"type": "linear", "factor": 3.0}}, [{"rope_scaling": {"factor": 2.0}}, {"rope_scaling": None}]),
    "internlm2-dynamic": mlx(
        # 40 tokens are more than the 24 it was trained for: the base grows.
        {**INTERNLM2, "max_position_embeddings": 24, "rope_scaling": {"type": "dynamic", "factor": 2.0}},
        [{"rope_scaling": {"factor": 6.0}}, {"max_position_embeddings": 128}], length=40),
    "internlm3-qkv-bias": mlx(INTERNLM3, [THETA]),
    "internlm3-out-bias": mlx({**INTERNLM3, "qkv_bias": True, "bias": True, "num_key_value_heads": 3,
                               "tie_word_embeddings": True}, [THETA, {"rms_norm_eps": 0.5}]),
    "minicpm-scaled": mlx(MINICPM, [{"scale_depth": 0.7}, {"scale_emb": 2.0}, {"dim_model_base": 72}]),
    "minicpm-mha": mlx({**MINICPM, "num_key_value_heads": 6, "num_hidden_layers": 2, "rms_norm_eps": 0.02},
                       [THETA, {"rms_norm_eps": 0.5}]),
    "qwen-published": mlx(QWEN, [{"layer_norm_epsilon": 0.5}]),
    "qwen-biased": mlx({**QWEN, "no_bias": False, "num_hidden_layers": 2, "num_attention_heads": 4, "kv_channels": 18},
                       [{"layer_norm_epsilon": 0.5}]),
    "openelm-tied": mlx(OPENELM, [{"rope_freq_constant": 100}, {"rms_norm_eps": 0.5}]),
    "openelm-no-qk-norm": mlx({**OPENELM, "normalize_qk_projections": False, "share_input_output_layers": False,
                               "num_query_heads": [4, 4, 4], "num_kv_heads": [4, 2, 1]}, [{"rope_freq_constant": 100}]),
    "plamo-shared": mlx(PLAMO, [THETA, {"rms_norm_eps": 0.5}]),
    "plamo-one-kv": mlx({**PLAMO, "n_shared_head": 2, "num_attention_heads": 4, "num_hidden_layers": 2}, [THETA]),
    "lille-130m-wide": mlx(LILLE, [THETA, {"layer_norm_eps": 0.5}]),
    "lille-130m-mha": mlx({**LILLE, "n_kv_heads": 6, "n_layer": 3}, [THETA]),
    "telechat3-yarn": mlx(TELECHAT3, [{"rope_scaling": {"factor": 2.0}}, {"rope_scaling": None}]),
    "telechat3-plain": mlx({**TELECHAT3, "rope_scaling": None, "attention_bias": False, "mlp_bias": True,
                            "tie_word_embeddings": True, "num_key_value_heads": 3}, [THETA]),
    "nemotron-nas-pruned": mlx(NAS, [THETA, {"rms_norm_eps": 0.5}]),
    "nemotron-nas-bias": mlx({**NAS, "attention_bias": True, "mlp_bias": True, "num_hidden_layers": 2,
                              "tie_word_embeddings": True, "block_configs": NAS["block_configs"][2:]}, [THETA]),
}
