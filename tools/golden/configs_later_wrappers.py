"""More cases of models with towers beside the text, whose text side is served (see configs.py)."""

import re

from configs_hybrid import NEMOTRON_3, NEMOTRON_H
from configs_towers import BASE, LLAMA, QWEN2, SIGLIP, TEXT, beside, wrapped
from configs_wrappers import DSV2_TEXT, MOLMO2, OCR_VISION, ROPE, WITHOUT_THETA, under

FLAT = {"torch_dtype": "float32", "mm_hidden_size": 16, "mm_projector_type": "mlp2x_gelu", **TEXT,
        "tie_word_embeddings": False}
BUNNY_TOWER = {"model.vision_tower.vision_tower.vision_model.head.probe": [1, 1, 16],
               "model.mm_projector.0.weight": [48, 16], "model.mm_projector.0.bias": [48]}
QWEN3 = {"model_type": "qwen3", "head_dim": 14, "attention_bias": False, **WITHOUT_THETA,
         "rope_parameters": {**ROPE, "rope_theta": 5000.0}}
MAGE = {"architectures": ["MageVLForConditionalGeneration"], "model_type": "mage_vl", "dtype": "float32",
        "tie_word_embeddings": False, "text_config": QWEN3, "vision_config": {"model_type": "mage_vl_vision"},
        "image_token_id": 95}
LOCATE = {"architectures": ["LocateAnythingForConditionalGeneration"], "model_type": "locateanything",
          "dtype": "float32", "text_config": {**QWEN2, "tie_word_embeddings": True, "block_size": 6,
                                              "causal_attn": False},
          "vision_config": {"model_type": "moonvit", "hidden_size": 16}, "image_token_index": 96}
LOCATE_TOWER = {"vision_model.encoder.blocks.0.norm0.weight": [16], "mlp1.0.weight": [64], "mlp1.1.weight": [48, 64]}
OMNI = {"architectures": ["NemotronH_Nano_Omni_Reasoning_V3"], "model_type": "NemotronH_Nano_Omni_Reasoning_V3",
        "torch_dtype": "float32", "llm_config": NEMOTRON_H, "vision_config": {"hidden_size": 16},
        "sound_config": {"hidden_size": 16}}
OMNI_TOWERS = {"vision_model.radio_model.model.blocks.0.norm1.weight": [16], "mlp1.0.weight": [16],
               "sound_encoder.encoder.layers.0.norm_out.weight": [16], "sound_projection.linear1.weight": [8, 16]}

ERNIE = {
    "architectures": ["Ernie4_5_VLMoeForConditionalGeneration"], "model_type": "ernie4_5_moe_vl",
    "torch_dtype": "float32", "hidden_size": 60, "intermediate_size": 84, "num_hidden_layers": 3,
    "num_attention_heads": 6, "num_key_value_heads": 2, "hidden_act": "silu", "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "rope_scaling": {"type": "default", "mrope_section": [2, 2, 1]},
    "vocab_size": 97, "use_bias": False, "moe_num_experts": [6, 6], "moe_k": 2, "moe_intermediate_size": [28, 12],
    "moe_num_shared_experts": 2, "moe_layer_start_index": [1, 1], "moe_layer_end_index": [2, 2],
    "moe_layer_interval": 1, "tie_word_embeddings": True, "vision_config": {"depth": 1, "hidden_size": 16}, **BASE,
}


def nested_ernie(c):
    """As transformers spells it."""
    if "text_config" in c:
        return c
    keys = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
            "hidden_act", "max_position_embeddings", "rms_norm_eps", "vocab_size", "use_bias", "moe_k",
            "moe_intermediate_size", "moe_num_shared_experts", "tie_word_embeddings")
    first, last = c["moe_layer_start_index"][0], c.get("moe_layer_end_index", [c["num_hidden_layers"] - 1])[0]
    text = {key: c[key] for key in keys}
    text["moe_num_experts"] = c["moe_num_experts"][0]
    text["rope_parameters"] = {"rope_type": "default", "rope_theta": c["rope_theta"],
                               "mrope_section": c["rope_scaling"]["mrope_section"]}
    text["mlp_layer_types"] = ["sparse" if first <= i <= last else "dense" for i in range(c["num_hidden_layers"])]
    return {"model_type": "ernie4_5_vl_moe", "dtype": "float32", "text_config": text,
            "tie_word_embeddings": c["tie_word_embeddings"],
            "vision_config": {"depth": 1, "hidden_size": 16, "intermediate_size": 20, "num_heads": 2, "patch_size": 4}}


UNLIMITED_TEXT = {**{k: v for k, v in DSV2_TEXT.items() if k != "model_type"}, "use_mla": False,
                  "routed_scaling_factor": 1.7, "kv_lora_rank": None, "q_lora_rank": None, "qk_nope_head_dim": 0,
                  "qk_rope_head_dim": 0, "v_head_dim": 0, "max_position_embeddings": 256}
UNLIMITED = {"architectures": ["UnlimitedOCRForCausalLM"], "model_type": "unlimited_ocr", "torch_dtype": "float32",
             "sliding_window": 7, "vision_config": {"width": {}}, "projector_config": {"projector_type": "linear"},
             "tie_word_embeddings": False, "language_config": UNLIMITED_TEXT}
UNLIMITED_VISION = {"sam_config": OCR_VISION["sam_config"],
                    "encoder_config": {"hidden_size": 16, "intermediate_size": 20, "num_hidden_layers": 1,
                                       "num_attention_heads": 2, "image_size": 8, "patch_size": 4}}


def unlimited(c):
    text = {k: v for k, v in c["language_config"].items() if not k.endswith(("lora_rank", "head_dim", "mla"))}
    text["sliding_window"] = c["sliding_window"]
    dense = text.pop("first_k_dense_replace")
    text["mlp_layer_types"] = ["sparse" if i >= dense else "dense" for i in range(text["num_hidden_layers"])]
    return {"model_type": "unlimited_ocr", "dtype": "float32", "image_token_id": 96, "vision_config": UNLIMITED_VISION,
            "tie_word_embeddings": False, "text_config": {**text, "model_type": "unlimited_ocr_text"}}


JINA_TEXT = {"hidden_size": 48, "n_layers": 3, "vocab_size": 97, "additional_vocab_size": 5,
             "max_sequence_length": 128, "rope_theta": 10000.0, "tie_word_embeddings": False, "block_config":
             {"attn_config": {"n_heads": 6, "n_kv_heads": 2, "head_dim": 14, "q_lnorm": True, "k_lnorm": True},
              "ffn_config": {"size": 84}, "lnorm_config": {"eps": 1e-6}}}
JINA = {"architectures": ["JinaVLMForConditionalGeneration"], "model_type": "jvlm", "torch_dtype": "float32",
        "text_config": JINA_TEXT, "tie_word_embeddings": False, "vision_config":
        {"hidden_size": 16, "n_layers": 1, "vit_layers": [-1], "input_size": [8, 8], "patch_size": 4,
         "output_size": 48, "block_config": {"attn_config": {"n_heads": 2, "head_dim": 8}, "ffn_config": {"size": 20}},
         "vl_connector_config": {"mlp_projector_config": {"size": 20}}}}
FALCON = {"architectures": ["FalconOCRForCausalLM"], "model_type": "falcon_ocr", "torch_dtype": "float32", "dim": 52,
          "n_layers": 3, "n_heads": 6, "n_kv_heads": 2, "head_dim": 20, "vocab_size": 97, "ffn_dim": 76,
          "norm_eps": 1e-5, "max_seq_len": 128, "rope_theta": 10000, "spatial_patch_size": 4, "img_id": 90,
          "image_cls_token_id": 91, "img_end_id": 92, **BASE}
MOON2 = {"architectures": ["Moondream"], "model_type": "moondream2", "torch_dtype": "float32", "text_config":
         {"model_type": "moondream2", "hidden_size": 60, "intermediate_size": 84, "num_hidden_layers": 3,
          "vocab_size": 97, "max_position_embeddings": 128, "num_attention_heads": 5, "num_key_value_heads": 5,
          "rope_theta": 10000.0, "partial_rotary_factor": 0.5, "rms_norm_eps": 1e-5},
         "vision_config": {"hidden_size": 16, "intermediate_size": 20, "num_hidden_layers": 1,
                           "num_attention_heads": 2, "patch_size": 4, "crop_size": 8, "proj_inner_dim": 20,
                           "proj_out_dim": 60}}
MOON3 = {**MOON2, "model_type": "moondream3", "text_config":
         {"model_type": "moondream3", "hidden_size": 60, "intermediate_size": 84, "num_hidden_layers": 4,
          "vocab_size": 97, "max_position_embeddings": 128, "num_attention_heads": 5, "num_key_value_heads": 5,
          "head_dim": 14, "rope_dim": 10, "rope_theta": 10000.0, "rms_norm_eps": 1e-5, "num_experts": 6,
          "num_experts_per_tok": 2, "moe_intermediate_size": 26, "moe_start_layer": 2, "attention_bias": True}}
POINT = {**MOLMO2, "architectures": ["MolmoPointForConditionalGeneration"], "model_type": "molmo_point",
         "text_config": {**MOLMO2["text_config"], "max_position_embeddings": 128}, "patch_embed_dim": 8,
         "adapter_config": {**MOLMO2["adapter_config"], "positional_embeddings": None}}


def moon(saved, config):
    """The newest published names."""
    out = {}
    for name, shape in saved.items():
        own = re.sub(r"^text\.model\.(embed_tokens|wte)\.weight$", "text.wte", name)
        own = own.replace("text.model.layers.", "text.blocks.").replace("text.model.", "text.")
        own = "model." + own.replace("vision.encoder.", "vision.")
        out[own] = (shape, {own: lambda x: x})
    return out


def older_moon(saved, config):
    """Those before, in Phi's words."""
    names = (("text.model.embed_tokens.", "text_model.transformer.embd.wte."),
             ("text.model.layers.", "text_model.transformer.h."), (".attn.qkv.", ".mixer.Wqkv."),
             (".attn.proj.", ".mixer.out_proj."), ("text.model.post_ln.", "text_model.lm_head.ln."),
             ("text.lm_head.", "text_model.lm_head.linear."))
    out = {}
    for name, shape in saved.items():
        if not name.startswith("vision."):
            own = name
            for old, new in names:
                own = own.replace(old, new)
            out[own] = (shape, {name: lambda x: x})
        else:
            out["vision_encoder." + name] = (shape, {name: lambda x: x})
    return {**out, "vision_encoder.encoder.model.visual.pos_embed": ([1, 4, 16], {})}


def falcon(saved, config):
    """Published names; rows of gate and up in turn."""
    out = {}
    for name, shape in saved.items():
        own = name.replace("language_model.model.embed_tokens.", "tok_embeddings.")
        own = own.replace("language_model.lm_head.", "output.").replace("language_model.model.", "")
        own = own.replace(".self_attn.", ".attention.").replace(".mlp.", ".feed_forward.")
        if own not in ("cos_1d", "sin_1d"):
            out[own] = (shape, {own: lambda x: x})
    return out


def jina(saved, config):
    """The head's own name."""
    names = {name.replace("language_model.lm_head.", "lm_head."): shape for name, shape in saved.items()}
    return {name: (shape, {name: lambda x: x}) for name, shape in names.items()}


def point(saved, config):
    """Published names."""
    out = {}
    for name, shape in saved.items():
        if name.startswith("lm.lm_head."):
            own = name.removeprefix("lm.")
        elif name.startswith("lm.model."):
            own = "model.transformer." + name.removeprefix("lm.model.")
        else:
            own = "model." + name.replace("vision_model.", "vit.", 1)
        out[own] = (shape, {name: lambda x: x})
    return out


def texts_only(logits):
    """Without the answers that are places in an image."""
    return logits[..., :97]


def text_case(config, layout=None, **more):
    return {"config": config, "oracle": "mlx", "package": "mlx_vlm", "also_saved": False,
            **({"layout": layout} if layout else {}), **more}


CASES = {
    "llava_bunny-named": {
        "config": {**FLAT, "architectures": ["LlavaQwen2ForCausalLM"], "model_type": "llava_bunny",
                   "text_config": {**QWEN2, "tie_word_embeddings": True}, "vision_config": SIGLIP,
                   "tie_word_embeddings": True},
        "reference_type": "qwen2", "reference_class": "Qwen2ForCausalLM", "reference_config":
        lambda c: {**c["text_config"], "dtype": "float32"}, "also_saved": False,
        "layout": under("language_model.", {"vision_tower.vision_tower.vision_model.head.probe": [1, 1, 16]}),
        "mutants": [{"text_config": {"rope_theta": 100.0}}],
    },
    "bunny-llama-plain": {
        "config": {**FLAT, "architectures": ["BunnyLlamaForCausalLM"], "model_type": "bunny-llama", "rope_theta": 5000.0},
        "reference_type": "llama", "reference_class": "LlamaForCausalLM", "also_saved": False,
        "layout": beside(BUNNY_TOWER), "mutants": [{"rope_theta": 100.0}, {"rms_norm_eps": 0.1}],
    },
    "llava-qwen2-tied": {
        "config": {**FLAT, "architectures": ["LlavaQwen2ForCausalLM"], "model_type": "llava-qwen2",
                   "tie_word_embeddings": True, "num_key_value_heads": 6, "use_sliding_window": False},
        "reference_type": "qwen2", "reference_class": "Qwen2ForCausalLM", "also_saved": False,
        "layout": beside(BUNNY_TOWER), "mutants": [{"rope_theta": 100.0}],
    },
    "mage_vl-plain": {
        "config": MAGE, "reference_type": "qwen3", "reference_class": "Qwen3ForCausalLM", "also_saved": False,
        "reference_config": lambda c: {**c["text_config"], "tie_word_embeddings": c["tie_word_embeddings"]},
        "layout": lambda saved, config: {
            **{name.replace("model.", "model.language_model.", 1): (shape, {name: lambda x: x})
               for name, shape in saved.items()}, "model.visual.blocks.0.norm1.weight": ([16], {})},
        "mutants": [{"text_config": {"rope_parameters": {"rope_theta": 100.0}}}],
    },
    "mage_vl-tied": {
        "config": {**MAGE, "tie_word_embeddings": True, "text_config": {
            **QWEN3, "num_hidden_layers": 2, "num_key_value_heads": 6, "attention_bias": True}},
        "reference_type": "qwen3", "reference_class": "Qwen3ForCausalLM", "also_saved": False,
        "reference_config": lambda c: {**c["text_config"], "tie_word_embeddings": c["tie_word_embeddings"]},
        "layout": under("language_model.", {"vision_tower.blocks.0.norm1.weight": [16]}),
        "mutants": [{"text_config": {"rms_norm_eps": 0.1}}],
    },
    "locateanything-tied": {
        "config": LOCATE, "reference_type": "qwen2", "reference_class": "Qwen2ForCausalLM", "also_saved": False,
        "reference_config": lambda c: dict(c["text_config"]), "layout": under("language_model.", LOCATE_TOWER),
        "mutants": [{"text_config": {"rope_theta": 100.0}}],
    },
    "locateanything-own-head": {
        "config": {**LOCATE, "text_config": {**LOCATE["text_config"], "tie_word_embeddings": False,
                                             "num_key_value_heads": 6, "rms_norm_eps": 0.01}},
        "reference_type": "qwen2", "reference_class": "Qwen2ForCausalLM", "also_saved": False,
        "reference_config": lambda c: dict(c["text_config"]), "layout": under("language_model.", LOCATE_TOWER),
        "mutants": [{"text_config": {"rms_norm_eps": 1e-5}}],
    },
    "ernie4_5_moe_vl-published": {
        "config": ERNIE, "reference_type": "ernie4_5_vl_moe",
        "reference_class": "Ernie4_5_VLMoeForConditionalGeneration", "reference_config": nested_ernie, "below": 90,
        "no_positions": True, "also": [{"moe_layer_end_index": None}],
        "mutants": [{"moe_k": 3}, {"rope_theta": 100.0}],
    },
    "ernie4_5_moe_vl-untied": {
        "config": {**ERNIE, "tie_word_embeddings": False, "moe_num_shared_experts": 0, "num_key_value_heads": 6,
                   "moe_layer_start_index": [0, 0], "moe_num_experts": [4, 4], "moe_k": 3},
        "reference_type": "ernie4_5_vl_moe", "reference_class": "Ernie4_5_VLMoeForConditionalGeneration",
        "reference_config": nested_ernie, "below": 90, "no_positions": True,
        "mutants": [{"moe_k": 2}, {"rms_norm_eps": 0.1}],
    },
    "unlimited_ocr-read": {
        "config": UNLIMITED, "reference_type": "unlimited_ocr",
        "reference_class": "UnlimitedOcrForConditionalGeneration", "reference_config": unlimited, "below": 90,
        "also_saved": False, "no_positions": True,
        "mutants": [{"language_config": {"num_experts_per_tok": 3}}, {"language_config": {"rope_theta": 100.0}}],
    },
    "unlimited_ocr-written": {
        "config": {**UNLIMITED, "sliding_window": 5, "language_config": {**UNLIMITED_TEXT, "num_hidden_layers": 2}},
        "reference_type": "unlimited_ocr", "reference_class": "UnlimitedOcrForConditionalGeneration",
        "reference_config": unlimited, "below": 90, "also_saved": False, "no_positions": True, "prompt": 13, "length": 90,
        "mutants": [{"sliding_window": 6}, {"sliding_window": 4}],
    },
    "NemotronH_Nano_Omni_Reasoning_V3-dense": {
        "config": OMNI, "reference_type": "nemotron_h", "reference_class": "NemotronHForCausalLM", "also_saved": False,
        "reference_config": lambda c: dict(c["llm_config"]), "layout": under("language_model.", OMNI_TOWERS),
        "below": 97, "no_positions": True, "mutants": [{"llm_config": {"layer_norm_epsilon": 0.5}}],
    },
    "nemotron_h_nano_omni-experts": {
        "config": {**{k: v for k, v in OMNI.items() if k != "llm_config"}, "model_type": "nemotron_h_nano_omni",
                   "text_config": NEMOTRON_3},
        "reference_type": "nemotron_h", "reference_class": "NemotronHForCausalLM", "also_saved": False,
        "reference_config": lambda c: dict(c["text_config"]), "layout": under("language_model.", OMNI_TOWERS),
        "below": 97, "no_positions": True,
        "mutants": [{"text_config": {"num_experts_per_tok": 3}}, {"text_config": {"routed_scaling_factor": 1.0}}],
    },
    "falcon_ocr-published": text_case(FALCON, falcon, mutants=[{"rope_theta": 100}, {"norm_eps": 0.5}], below=90),
    "falcon_ocr-wide": text_case({**FALCON, "n_kv_heads": 6, "head_dim": 12, "n_layers": 2, "ffn_dim": 84}, falcon,
                                 mutants=[{"rope_theta": 100}], below=90),
    "jvlm-plain": text_case(JINA, jina, reference_type="jina_vlm", mutants=[
        {"text_config": {"rope_theta": 100.0}}, {"text_config": {"block_config": {"lnorm_config": {"eps": 0.1}}}}]),
    "jina_vlm-no-norms": text_case(
        {**JINA, "model_type": "jina_vlm", "text_config": {**JINA_TEXT, "n_layers": 2, "block_config": {
            **JINA_TEXT["block_config"], "attn_config": {"n_heads": 6, "n_kv_heads": 6, "head_dim": 12,
                                                         "q_lnorm": False}}}},
        jina, mutants=[{"text_config": {"rope_theta": 100.0}}]),
    "moondream2-newest": text_case(MOON2, moon, mutants=[
        {"text_config": {"rope_theta": 100.0}}, {"text_config": {"partial_rotary_factor": 1.0}}]),
    "moondream1-older": text_case(
        {**MOON2, "model_type": "moondream1", "text_config": {**MOON2["text_config"], "num_hidden_layers": 2,
                                                               "num_attention_heads": 3, "num_key_value_heads": 3}},
        older_moon, sanitized=True, reference_type="moondream2", mutants=[{"text_config": {"rope_theta": 100.0}}]),
    "moondream3-published": text_case(MOON3, moon, mutants=[
        {"text_config": {"num_experts_per_tok": 3}}, {"text_config": {"rope_theta": 100.0}}]),
    "moondream3-early": text_case(
        {**MOON3, "text_config": {**MOON3["text_config"], "num_hidden_layers": 2, "moe_start_layer": 0,
                                  "attention_bias": False, "num_experts": 4, "num_experts_per_tok": 3}},
        moon, mutants=[{"text_config": {"num_experts_per_tok": 2}}]),
    "molmo_point-published": text_case(POINT, point, answers=texts_only, sanitized=True, below=97, mutants=[
        {"text_config": {"rope_theta": 100.0}}, {"text_config": {"layer_norm_eps": 0.1}}]),
    "molmo_point-scaled": text_case(
        {**POINT, "text_config": {**POINT["text_config"], "num_hidden_layers": 4, "qkv_bias": True, "rope_scaling":
                                  {"rope_type": "linear", "factor": 4.0}, "rope_scaling_layers": [1, 3]}},
        point, answers=texts_only, sanitized=True, below=97, mutants=[{"text_config": {"rope_scaling_layers": [1]}}]),
}
