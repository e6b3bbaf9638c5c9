"""What random variants of the other cases found (vary.py): fields that were read otherwise, or not at all."""

from configs import MISTRAL, QWEN3
from configs_dense import APERTUS, LLAMA4, QWEN3_VL, SEED_OSS, SMOLLM3, THETA, without
from configs_hybrid import KIMI_LINEAR, QWEN3_5
from configs_late import QWEN3_VL_MOE, QWEN3_VL_MOE_TEXT, turned_experts
from configs_moe import DEEPSEEK_V3, DOTS1, EXAONE, GLM4_LITE, GPT_OSS


CASES = {
    "mistral-eight-key-heads": {
        # num_key_value_heads is left out: Mistral's own eight, not one for each of sixteen.
        "config": {**without(MISTRAL, "num_key_value_heads"), "num_attention_heads": 16, "head_dim": 6},
        "also": [{"num_key_value_heads": 8}], "mutants": [{"sliding_window": 6}],
    },
    "qwen3-wide-heads": {
        # head_dim is left out: 128, whatever hidden_size is.
        "config": {**without(QWEN3, "head_dim"), "num_attention_heads": 2, "num_key_value_heads": 1, "num_hidden_layers": 1},
        "also": [{"head_dim": 128}], "mutants": [THETA],
    },
    "smollm3-null-key-heads": {
        # null is one for each head, where a key that is left out is the family's four.
        "config": {**SMOLLM3, "num_hidden_layers": 2, "num_key_value_heads": None},
        "also": [{"num_key_value_heads": 6}], "mutants": [THETA],
    },
    "gpt_oss-usual-rotation": {
        # No rotation is named: yarn by 32, as the family was published.
        "config": {**without(GPT_OSS, "rope_scaling", "rope_theta"), "num_hidden_layers": 2, "head_dim": 64},
        "mutants": [{"rope_parameters": {"rope_type": "default", "rope_theta": 150000.0}}],
    },
    "apertus-usual-rotation": {
        # A base alone changes nothing: it goes with the rotation that is named beside it, here none.
        "config": {**without(APERTUS, "rope_scaling"), "num_hidden_layers": 2, "rope_theta": 100.0},
        "mutants": [{"rope_parameters": {"rope_type": "default", "rope_theta": 100.0}}],
    },
    "llama4_text-mask-list": {
        # layer_types says which layers see chunks, no_rope_layers which are rotated.
        "config": {**LLAMA4, "layer_types": ["full_attention", "chunked_attention", "chunked_attention"]},
        "mutants": [{"layer_types": None}, {"layer_types": ["full_attention"] * 3}, {"no_rope_layers": [1, 0, 1]}],
    },
    "kimi_linear-listed": {
        "config": {**without(KIMI_LINEAR, "first_k_dense_replace"), "mlp_layer_types":
                   (["sparse", "dense"] * KIMI_LINEAR["num_hidden_layers"])[:KIMI_LINEAR["num_hidden_layers"]]},
        "no_positions": True,
        "mutants": [{"num_experts_per_token": 3}, {"routed_scaling_factor": 1.0}],
    },
    "qwen3_vl-usual-base": {
        # 500000, where Qwen3 itself has 10000.
        "config": {**QWEN3_VL, "text_config": without(QWEN3_VL["text_config"], "rope_theta", "rope_scaling")},
        "mutants": [{"text_config": {"rope_theta": 10000.0}}],
    },
    "qwen3_vl_moe-usual-base": {
        "config": {**QWEN3_VL_MOE, "text_config": without(QWEN3_VL_MOE_TEXT, "rope_theta", "rope_scaling")},
        "below": 88, "layout": turned_experts, "mutants": [{"text_config": {"rope_theta": 10000.0}}],
    },
    "qwen3_5-wide-heads": {
        # head_dim is left out: 256, and hidden_size needs no whole share for a head.
        "config": {**without(QWEN3_5, "head_dim", "rope_parameters"), "num_attention_heads": 3, "num_key_value_heads": 1,
                   "layer_types": ["linear_attention", "full_attention"], "num_hidden_layers": 2, "rms_norm_eps": 0.05},
        "mutants": [{"rms_norm_eps": 0.5}],
    },
    "seed_oss-null-width": {
        # null is what follows from hidden_size, where a key that is left out is the family's 128.
        "config": {**SEED_OSS, "head_dim": None, "num_hidden_layers": 2}, "also": [{"head_dim": 12}],
        "mutants": [THETA],
    },
    "deepseek_v3-usual-scale": {
        # What experts give is multiplied by 2.5.
        "config": {**without(DEEPSEEK_V3, "routed_scaling_factor", "rope_scaling"), "num_hidden_layers": 2},
        "mutants": [{"routed_scaling_factor": 1.0}],
    },
    "glm4_moe_lite-usual-scale": {
        "config": {**without(GLM4_LITE, "routed_scaling_factor"), "num_hidden_layers": 2},
        "mutants": [{"routed_scaling_factor": 1.0}],
    },
    "exaone_moe-usual-scale": {
        "config": {**without(EXAONE, "routed_scaling_factor"), "num_hidden_layers": 3},
        "mutants": [{"routed_scaling_factor": 1.0}],
    },
    "dots1-usual-shares": {
        "config": {**without(DOTS1, "norm_topk_prob"), "num_hidden_layers": 2},
        "mutants": [{"norm_topk_prob": True}],
    },
}
