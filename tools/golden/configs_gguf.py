"""Cases whose configs a GGUF file can say: the format, or llama.cpp's graph, fixes what other cases vary (patterns of
windows, scales, limits). See tests/golden/gguf/reasons.json."""

import re

from configs import GEMMA3
from configs_dense import BITNET, COHERE2, GEMMA2, NAS, NEMOTRON, SMOLLM3
from configs_encoders import GEMMA3 as GEMMA3_EMBEDDER
from configs_hybrid import GEMMA3N, KIMI_LINEAR
from configs_late import MISTRAL4, PHIMOE
from configs_moe import BAILING, DEEPSEEK_V2, DEEPSEEK_V3, GPT_OSS, YARN
from configs_sparse import AFMOE, CASES as SPARSE, K3, LAGUNA, LLAMA4, MINICPM3, kimi_k3_names

EQUAL_YARN = {**YARN, "mscale": 0.9, "mscale_all_dim": 0.9}


M3 = SPARSE["minimax_m3_vl-published"]


def as_text(config):
    return {**config["text_config"], "model_type": "llama4_text"}


def k3_names(saved, config):
    """With the names of the mixes that the converter knows."""
    return {re.sub(r"\.(norm|proj)_weight$", r"_\1.weight", name).replace(
        "block_sparse_moe.e_score", "block_sparse_moe.gate.e_score"): one
        for name, one in kimi_k3_names(saved, config).items()}


CASES = {
    "bitnet-silu": {
        "config": {**BITNET, "hidden_act": "silu", "num_key_value_heads": 3},
        "mutants": [{"hidden_act": "relu2"}, {"rope_theta": 100.0}],
    },
    "bailing_moe-first": {
        "config": {**BAILING, "first_k_dense_replace": 0, "num_shared_experts": 2, "num_attention_heads": 6,
                   "num_key_value_heads": 2},
        "oracle": "mlx", "unstack": True, "rename": [(r"gate\.gate_proj", "gate")],
        "mutants": [{"num_experts_per_tok": 2}, {"rope_theta": 100.0}],
    },
    "kimi_k3-joined": {
        "config": {"architectures": ["KimiK3ForConditionalGeneration"], **K3,
                   "text_config": {**K3["text_config"], "linear_attn_config":
                                         {**K3["text_config"]["linear_attn_config"], "num_heads": 6}}},
        "oracle": "mlx", "layout": k3_names,
        "mutants": [{"text_config": {"attn_res_block_size": 3}}, {"text_config": {"num_experts_per_token": 2}}],
    },
    "minimax_m3_vl-scales": {
        **M3, "config": {**M3["config"], "text_config": {**M3["config"]["text_config"], "swiglu_alpha": 1.702}},
        "mutants": [{"text_config": {"swiglu_alpha": 1.0}}, {"text_config": {"rope_theta": 100.0}}],
    },
    "afmoe-fourth": {
        "config": {**AFMOE, "num_hidden_layers": 5, "global_attn_every_n_layers": 4},
        "mutants": [{"sliding_window": 9}, {"global_attn_every_n_layers": 2}],
    },
    "cohere2-fourth": {
        "config": {**COHERE2, "num_hidden_layers": 5, "sliding_window_pattern": 4},
        "mutants": [{"sliding_window": 9}, {"logit_scale": 1.4}],
    },
    "gemma2-heads": {
        "config": {**GEMMA2, "query_pre_attn_scalar": 18},
        "mutants": [{"query_pre_attn_scalar": 40}, {"sliding_window": 9}],
    },
    "gemma3_text-sixth": {
        "config": {**GEMMA3, "query_pre_attn_scalar": 18, "sliding_window_pattern": 6, "num_hidden_layers": 7},
        "mutants": [{"sliding_window": 8}, {"rope_local_base_freq": 100.0}],
    },
    "gemma3_text-embedder-sixth": {
        "config": {key: value for key, value in GEMMA3_EMBEDDER.items() if key != "layer_types"},
        "mutants": [{"sliding_window": 8}, {"rope_local_base_freq": 100.0}],
    },
    "gemma3n-whole": {
        "config": {**GEMMA3N, "vocab_size_per_layer_input": 97},
        "mutants": [{"rope_local_base_freq": 100.0}, {"final_logit_softcapping": 5.0}],
    },
    "gpt_oss-limit": {
        "config": {**GPT_OSS, "swiglu_limit": 7.0},
        "mutants": [{"sliding_window": 7}, {"num_experts_per_tok": 3}],
    },
    "kimi_linear-sparse": {
        "config": {**KIMI_LINEAR, "first_k_dense_replace": 0, "num_shared_experts": 2},
        "mutants": [{"routed_scaling_factor": 1.0}, {"num_experts_per_token": 3}],
    },
    "smollm3-fourth": {
        "config": {**SMOLLM3, "no_rope_layer_interval": 4, "num_hidden_layers": 5},
        "mutants": [{"no_rope_layer_interval": 2}, {"rope_theta": 100.0}],
    },
    "minicpm3-scales": {
        "config": {**{key: value for key, value in MINICPM3.items() if key != "rope_scaling"}, "scale_emb": 12,
                   "scale_depth": 1.4, "dim_model_base": 256, "tie_word_embeddings": False, "hidden_size": 72},
        "mutants": [{"scale_depth": 0.7}, {"rope_theta": 100.0}, {"dim_model_base": 128}],
    },
    "laguna-fourth": {
        "config": {**LAGUNA, "num_hidden_layers": 5, "num_attention_heads_per_layer": [6, 4, 2, 8, 4],
                   "moe_router_logit_softcapping": 0.0, "layer_types":
                   ["full_attention", "sliding_attention", "sliding_attention", "sliding_attention", "full_attention"]},
        "mutants": [{"sliding_window": 9}, {"moe_routed_scaling_factor": 1.0}],
    },
    "deepseek_v2-scaled": {
        "config": {**DEEPSEEK_V2, "rope_scaling": EQUAL_YARN},
        "mutants": [{"topk_group": 3}, {"rope_scaling": {"mscale_all_dim": 0.4}}],
    },
    "deepseek_v3-scaled": {
        "config": {**DEEPSEEK_V3, "rope_scaling": EQUAL_YARN, "num_nextn_predict_layers": 0},
        "mutants": [{"topk_group": 3}, {"rope_scaling": {"mscale_all_dim": 0.4}}],
    },
    "mistral4-cold": {
        "config": {**MISTRAL4, "rope_parameters": {**MISTRAL4["rope_parameters"], "llama_4_scaling_beta": 0.0}},
        "mutants": [{"num_experts_per_tok": 2}, {"rope_parameters": {"mscale_all_dim": 0.5}}],
    },
    "phimoe-near": {
        "config": {**PHIMOE, "router_jitter_noise": 0.01},
        "mutants": [{"router_jitter_noise": 0.3}, {"rope_theta": 100.0}],
    },
    "nemotron-nas-left-out": {
        "config": {**NAS, "num_hidden_layers": 3, "block_configs": [
            {"attention": {"n_heads_in_group": 3}, "ffn": {"ffn_mult": 1.0}},
            {"attention": {"no_op": True}, "ffn": {"ffn_mult": 6.0}},
            {"attention": {"n_heads_in_group": 2}, "ffn": {"no_op": True}}]},
        "oracle": "mlx", "mutants": [{"rope_theta": 100.0}, {"rms_norm_eps": 0.5}],
    },
    "nemotron-square": {
        "config": {**NEMOTRON, "head_dim": 12},
        "mutants": [{"rope_theta": 100.0}, {"norm_eps": 0.5}],
    },
    "llama4-fourth": {
        "config": {**LLAMA4, "text_config": {**LLAMA4["text_config"], "num_hidden_layers": 5, "no_rope_layers":
                                             [1, 1, 1, 0, 1], "attention_chunk_size": 8192, "floor_scale": 8192,
                                             "attn_scale": 0.1}},
        "reference_class": "Llama4ForCausalLM", "reference_type": "llama4_text", "also_saved": False,
        "reference_config": as_text,
        "mutants": [{"text_config": {"use_qk_norm": False}}, {"text_config": {"rope_theta": 100.0}}],
    },
}
