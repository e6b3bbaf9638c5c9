"""The tiny configurations whose logits become goldens.

Each case: `config` is config.json as people publish it; `also` are other spellings of the same model, as JSON
merge patches over it; `mutants` are merge patches that change the model without changing any tensor's shape, and
must move the log-probabilities by far more than the test's tolerance. `names` rewrites the saved tensor names to
another published layout. Sizes are deliberately not multiples of a kernel's block.
"""

BASE = {"bos_token_id": 1, "eos_token_id": 2}

LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
    "hidden_size": 72, "intermediate_size": 100, "num_hidden_layers": 3, "num_attention_heads": 6,
    "num_key_value_heads": 2, "vocab_size": 97, "max_position_embeddings": 128, "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0, "torch_dtype": "float32", **BASE,
}

MISTRAL = {
    "architectures": ["MistralForCausalLM"], "model_type": "mistral", "hidden_act": "silu",
    "hidden_size": 64, "intermediate_size": 84, "num_hidden_layers": 2, "num_attention_heads": 8,
    "num_key_value_heads": 2, "head_dim": 12, "vocab_size": 101, "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "sliding_window": 7, "torch_dtype": "float32", **BASE,
}

QWEN2 = {
    "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_act": "silu",
    "hidden_size": 60, "intermediate_size": 88, "num_hidden_layers": 3, "num_attention_heads": 6,
    "num_key_value_heads": 3, "vocab_size": 103, "max_position_embeddings": 128, "rms_norm_eps": 1e-6,
    "rope_theta": 1000000.0, "sliding_window": 9, "use_sliding_window": False, "max_window_layers": 2,
    "tie_word_embeddings": True, "torch_dtype": "float32", **BASE,
}

QWEN3 = {
    "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_act": "silu",
    "hidden_size": 48, "intermediate_size": 76, "num_hidden_layers": 3, "num_attention_heads": 6,
    "num_key_value_heads": 2, "head_dim": 20, "vocab_size": 99, "max_position_embeddings": 128,
    "rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "rope_scaling": None, "attention_bias": False,
    "use_sliding_window": False, "sliding_window": None, "max_window_layers": 3,
    "tie_word_embeddings": True, "torch_dtype": "float32", **BASE,
}

QWEN3_MOE = {
    "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_act": "silu",
    "hidden_size": 52, "intermediate_size": 92, "moe_intermediate_size": 36, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 22, "num_experts": 8,
    "num_experts_per_tok": 3, "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": [],
    "vocab_size": 98, "max_position_embeddings": 128, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0,
    "rope_scaling": None, "attention_bias": False, "use_sliding_window": False, "sliding_window": None,
    "max_window_layers": 3, "tie_word_embeddings": False, "torch_dtype": "float32", **BASE,
}

GEMMA3 = {
    "architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "hidden_activation": "gelu_pytorch_tanh",
    "hidden_size": 56, "intermediate_size": 90, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 18, "query_pre_attn_scalar": 160, "sliding_window": 6,
    "sliding_window_pattern": 3, "rope_theta": 1000000.0, "rope_local_base_freq": 10000.0,
    "rope_scaling": None, "vocab_size": 105, "max_position_embeddings": 128, "rms_norm_eps": 1e-6,
    "attention_bias": False, "torch_dtype": "float32", "pad_token_id": 0, **BASE,
}

GPT2 = {
    "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "activation_function": "gelu_new",
    "n_embd": 60, "n_layer": 2, "n_head": 5, "n_positions": 48, "n_ctx": 48, "vocab_size": 107,
    "layer_norm_epsilon": 1e-5, **BASE,
}

MAMBA2 = {
    "architectures": ["Mamba2ForCausalLM"], "model_type": "mamba2", "hidden_act": "silu",
    "hidden_size": 40, "expand": 2, "num_heads": 5, "head_dim": 16, "state_size": 12, "n_groups": 1,
    "conv_kernel": 4, "chunk_size": 16, "num_hidden_layers": 3, "vocab_size": 94, "use_bias": False,
    "use_conv_bias": True, "layer_norm_epsilon": 1e-5, "residual_in_fp32": True, "rms_norm": True,
    "time_step_rank": 16, "tie_word_embeddings": False,
    "torch_dtype": "float32", "pad_token_id": 0, **BASE,
}

BERT = {
    "architectures": ["BertModel"], "model_type": "bert", "hidden_act": "gelu", "hidden_size": 60,
    "intermediate_size": 116, "num_hidden_layers": 2, "num_attention_heads": 5, "vocab_size": 91,
    "max_position_embeddings": 40, "type_vocab_size": 2, "layer_norm_eps": 1e-12,
    "position_embedding_type": "absolute", "pad_token_id": 0,
}


def rope(**parameters):
    """The newer spelling: everything in one block, dtype in place of torch_dtype."""
    return {"rope_theta": None, "rope_scaling": None, "rope_parameters": parameters,
            "torch_dtype": None, "dtype": "float32"}


LLAMA3_ROPE = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
YARN_PLAIN = {"factor": 4.0, "original_max_position_embeddings": 32}
YARN_FULL = {"factor": 8.0, "original_max_position_embeddings": 24, "beta_fast": 6.0, "beta_slow": 0.5,
             "attention_factor": 1.3, "truncate": False}

WINDOW = [{"sliding_window": 6}, {"sliding_window": 8}, {"sliding_window": None}]

# As MLX publishes quantised checkpoints: affine planes, the embedding with more bits.
FOUR_BITS = {"bits": 4, "group": 32, "embedding_bits": 8}
EIGHT_BITS = {"bits": 8, "group": 64, "embedding_bits": 4}


def quantized(config, bits=FOUR_BITS, **changes):
    return {"config": {**config, "hidden_size": 64, "intermediate_size": 96, **changes,
                       "quantization": {"group_size": bits["group"], "bits": bits["bits"]}},
            "quantize": bits, "also_saved": False}


CASES = {
    # llama ----------------------------------------------------------------------------------------------
    "llama-gqa": {
        "config": {**LLAMA, "rms_norm_eps": 0.02, "head_dim": 20, "attention_bias": False, "mlp_bias": False,
                   "tie_word_embeddings": False, "rope_scaling": None, "rope_theta": 5000.0},
        "also": [{"rope_scaling": {}}, rope(rope_type="default", rope_theta=5000.0)],
        "mutants": [{"rope_theta": 10000.0}, {"rms_norm_eps": 1e-6}, {"num_key_value_heads": 2, "rope_scaling":
                    {"rope_type": "linear", "factor": 1.25}}],
    },
    "llama-bias-tied": {
        # No head_dim and no num_key_value_heads: both follow from the others.
        "config": {**LLAMA, "hidden_size": 60, "num_attention_heads": 3, "num_key_value_heads": None,
                   "num_hidden_layers": 1, "intermediate_size": 70, "attention_bias": True, "mlp_bias": True,
                   "tie_word_embeddings": True},
        "also": [{"num_key_value_heads": 3, "head_dim": 20}],
        "mutants": [{"rope_theta": 100.0}],
    },
    "llama-rope-llama3": {
        "config": {**LLAMA, "head_dim": 28, "rope_theta": 500000.0, "tie_word_embeddings": True,
                   "rope_scaling": {"rope_type": "llama3", **LLAMA3_ROPE}},
        "also": [rope(rope_type="llama3", rope_theta=500000.0, **LLAMA3_ROPE),
                 {"rope_scaling": {"rope_type": None, "type": "llama3"}}],
        "mutants": [{"rope_scaling": None}, {"rope_scaling": {"factor": 4.0}},
                    {"rope_scaling": {"original_max_position_embeddings": 32}},
                    {"rope_scaling": {"high_freq_factor": 8.0}}],
    },
    "llama-rope-linear": {
        "config": {**LLAMA, "num_hidden_layers": 2, "rope_scaling": {"type": "linear", "factor": 2.5}},
        "also": [rope(rope_type="linear", rope_theta=10000.0, factor=2.5)],
        "mutants": [{"rope_scaling": None}, {"rope_scaling": {"factor": 2.0}}],
    },
    "llama-rope-yarn": {
        "config": {**LLAMA, "num_hidden_layers": 2, "head_dim": 32, "rope_scaling": {"rope_type": "yarn", **YARN_PLAIN}},
        "also": [rope(rope_type="yarn", rope_theta=10000.0, **YARN_PLAIN),
                 {"rope_scaling": {"rope_type": None, "type": "yarn"}}],
        "mutants": [{"rope_scaling": None}, {"rope_scaling": {"attention_factor": 1.0}},
                    {"rope_scaling": {"beta_slow": 0.25}}],
    },
    "llama-rope-yarn-options": {
        "config": {**LLAMA, **{k: v for k, v in rope(rope_type="yarn", rope_theta=20000.0, **YARN_FULL).items()
                               if v is not None}, "num_hidden_layers": 2, "head_dim": 32},
        "drop": ["rope_theta", "torch_dtype"],
        "mutants": [{"rope_parameters": {"truncate": True}}, {"rope_parameters": {"attention_factor": None}},
                    {"rope_parameters": {"beta_slow": 2.0}}, {"rope_parameters": {"rope_theta": 10000.0}}],
    },
    "llama-rope-yarn-mscale": {
        "config": {**LLAMA, "num_hidden_layers": 2, "head_dim": 32,
                   "rope_scaling": {"rope_type": "yarn", "mscale": 1.2, "mscale_all_dim": 0.4, **YARN_PLAIN}},
        "mutants": [{"rope_scaling": {"mscale_all_dim": 1.2}}],
    },
    "llama-layer-types": {
        # Llama itself has no windows in transformers; ministral is the same graph with them.
        "config": {**LLAMA, "head_dim": 12, "sliding_window": 5,
                   "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]},
        "reference_type": "ministral", "also_saved": False,
        "mutants": [{"sliding_window": 4}, {"sliding_window": 6}, {"layer_types": ["full_attention"] * 3}],
    },
    "llama-q4": {
        **quantized(LLAMA, num_attention_heads=4, head_dim=24, num_hidden_layers=2, attention_bias=True, mlp_bias=True),
        "mutants": [{"rope_theta": 20000.0}],
    },
    # mistral --------------------------------------------------------------------------------------------
    "mistral-window": {
        "config": {**MISTRAL},
        "also": [rope(rope_type="default", rope_theta=10000.0)],
        "mutants": WINDOW,
    },
    "mistral-no-window": {
        "config": {**MISTRAL, "sliding_window": None, "head_dim": None, "tie_word_embeddings": False,
                   "num_hidden_layers": 3, "num_key_value_heads": 4},
        "mutants": [{"sliding_window": 20}, {"rope_theta": 1000.0}],
    },
    # qwen2 ----------------------------------------------------------------------------------------------
    "qwen2-tied": {
        "config": {**QWEN2},
        "also": [rope(rope_type="default", rope_theta=1000000.0), {"layer_types": ["full_attention"] * 3}],
        "mutants": [{"use_sliding_window": True, "max_window_layers": 0}, {"rope_theta": 10000.0}],
    },
    "qwen2-window": {
        "config": {**QWEN2, "use_sliding_window": True, "max_window_layers": 1, "tie_word_embeddings": False,
                   "num_key_value_heads": 1, "rms_norm_eps": 0.02},
        "also": [{"layer_types": ["full_attention", "sliding_attention", "sliding_attention"]}],
        "mutants": [{"sliding_window": 8}, {"sliding_window": 10}, {"max_window_layers": 2},
                    {"use_sliding_window": False}, {"rms_norm_eps": 1e-6}],
    },
    "qwen2-yarn": {
        "config": {**QWEN2, "num_attention_heads": 3, "num_key_value_heads": 3, "num_hidden_layers": 2,
                   "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}},
        "mutants": [{"rope_scaling": None}],
    },
    "qwen2-q8": {
        **quantized(QWEN2, EIGHT_BITS, intermediate_size=192, num_attention_heads=4, num_key_value_heads=4),
        "mutants": [{"rope_theta": 10000.0}],
    },
    # qwen3 ----------------------------------------------------------------------------------------------
    "qwen3-tied": {
        "config": {**QWEN3},
        "also": [rope(rope_type="default", rope_theta=1000000.0)],
        "mutants": [{"rope_theta": 10000.0}, {"use_sliding_window": True, "sliding_window": 10, "max_window_layers": 0}],
    },
    "qwen3-bias-window": {
        "config": {**QWEN3, "attention_bias": True, "tie_word_embeddings": False, "num_key_value_heads": 6,
                   "head_dim": 14, "use_sliding_window": True, "sliding_window": 5, "max_window_layers": 2,
                   "num_hidden_layers": 4, "rms_norm_eps": 0.02},
        "also": [{"layer_types": ["full_attention"] * 2 + ["sliding_attention"] * 2}],
        "mutants": [{"sliding_window": 4}, {"sliding_window": 6}, {"max_window_layers": 3}, {"rms_norm_eps": 1e-6}],
    },
    "qwen3-mqa": {
        "config": {**QWEN3, "num_key_value_heads": 1, "num_attention_heads": 4, "head_dim": 26,
                   "num_hidden_layers": 1, "rope_theta": 3000.0},
        "mutants": [{"rope_theta": 6000.0}],
    },
    "qwen3-q4": {
        **quantized(QWEN3, {"bits": 4, "group": 64, "embedding_bits": 8}, num_attention_heads=4, head_dim=32,
                    num_hidden_layers=2, intermediate_size=128),
        "mutants": [{"rope_theta": 10000.0}],
    },
    # qwen3_moe ------------------------------------------------------------------------------------------
    "qwen3_moe-sparse": {
        "config": {**QWEN3_MOE},
        "mutants": [{"norm_topk_prob": False}, {"num_experts_per_tok": 2}, {"num_experts_per_tok": 4},
                    {"rope_theta": 10000.0}],
    },
    "qwen3_moe-mixed": {
        # Layers 0 and 2 are dense by the step, 3 by the list; 1 and 5 are sparse.
        "config": {**QWEN3_MOE, "num_hidden_layers": 6, "decoder_sparse_step": 2, "mlp_only_layers": [3],
                   "norm_topk_prob": False, "num_experts": 5, "num_experts_per_tok": 2, "num_key_value_heads": 4,
                   "head_dim": 12, "intermediate_size": 60, "moe_intermediate_size": 28,
                   "tie_word_embeddings": True, "attention_bias": True},
        "mutants": [{"norm_topk_prob": True}, {"num_experts_per_tok": 1}],
    },
    "qwen3_moe-window": {
        # transformers windows every layer of this family when use_sliding_window is set.
        "config": {**QWEN3_MOE, "num_hidden_layers": 2, "num_experts": 6, "num_experts_per_tok": 6,
                   "use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1},
        "mutants": [{"sliding_window": 7}, {"sliding_window": 9}, {"use_sliding_window": False}],
    },
    "qwen3_moe-stacked": {
        # As MLX conversions publish it: one tensor for all experts of a projection.
        "config": {**QWEN3_MOE, "num_hidden_layers": 1, "num_experts": 6, "num_experts_per_tok": 2}, "names": "mlx",
        "mutants": [{"num_experts_per_tok": 3}],
    },
    "qwen3_moe-q4": {
        **quantized(QWEN3_MOE, num_attention_heads=4, head_dim=16, moe_intermediate_size=32, num_hidden_layers=2),
        "mutants": [{"norm_topk_prob": False}, {"num_experts_per_tok": 4}],
    },
    # gemma3_text ----------------------------------------------------------------------------------------
    "gemma3_text-pattern": {
        "config": {**GEMMA3},
        "also": [{"sliding_window_pattern": None, "layer_types":
                  ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"]}],
        "mutants": [{"sliding_window": 5}, {"sliding_window": 7}, {"sliding_window_pattern": 2},
                    {"query_pre_attn_scalar": 18}, {"rope_local_base_freq": 1000000.0}, {"rope_theta": 10000.0}],
    },
    "gemma3_text-scaled-untied": {
        "config": {**GEMMA3, "num_hidden_layers": 3, "sliding_window_pattern": 2, "tie_word_embeddings": False,
                   "num_key_value_heads": 1, "head_dim": 24, "rms_norm_eps": 0.02,
                   "rope_scaling": {"rope_type": "linear", "factor": 8.0}},
        "also": [{"rope_theta": None, "rope_local_base_freq": None, "rope_scaling": None,
                  "sliding_window_pattern": None,
                  "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
                  "rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000.0},
                                      "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}}],
        "mutants": [{"rope_scaling": None}, {"rms_norm_eps": 1e-6}, {"rope_scaling": {"factor": 2.0}}],
    },
    "gemma3_text-defaults": {
        # A pattern of 6, a query scale of 256, rope bases and the activation: all left to their defaults.
        "config": {k: v for k, v in {**GEMMA3, "num_hidden_layers": 7, "sliding_window": 11, "hidden_size": 40,
                                     "intermediate_size": 52, "head_dim": 16}.items()
                   if k not in ("sliding_window_pattern", "rope_theta", "rope_local_base_freq", "rope_scaling",
                                "hidden_activation", "query_pre_attn_scalar")},
        "mutants": [{"sliding_window_pattern": 7}, {"sliding_window": 10}, {"rope_theta": 10000.0}],
    },
    "gemma3_text-softcap": {
        "config": {**GEMMA3, "num_hidden_layers": 2, "sliding_window_pattern": 2, "attn_logit_softcapping": None,
                   "final_logit_softcapping": 3.0, "num_key_value_heads": 4},
        "mutants": [{"final_logit_softcapping": None},
                    {"final_logit_softcapping": 2.5}],
    },
    "gemma3_text-q4": {
        **quantized(GEMMA3, head_dim=24, num_hidden_layers=3, num_attention_heads=4, query_pre_attn_scalar=256),
        "mutants": [{"sliding_window": 5}, {"query_pre_attn_scalar": 160}],
    },
    # gpt2 -----------------------------------------------------------------------------------------------
    "gpt2-published": {
        # The published checkpoints carry neither the prefix nor lm_head, but the causal-mask buffers.
        "config": {**GPT2}, "names": "gpt2_published",
        "mutants": [{"n_head": 4}, {"layer_norm_epsilon": 0.1}, {"activation_function": "relu"}],
    },
    "gpt2-saved": {
        "config": {**GPT2, "n_embd": 56, "n_head": 4, "n_layer": 3, "n_inner": 90, "layer_norm_epsilon": 0.02},
        "mutants": [{"n_head": 7}, {"layer_norm_epsilon": 1e-6}],
    },
    "gpt2-exact-gelu": {
        "config": {**GPT2, "activation_function": "gelu", "n_head": 3, "n_layer": 1, "scale_attn_weights": True},
        "mutants": [{"n_head": 5}],
    },
    "gpt2-layer-scale": {
        "config": {**GPT2, "n_layer": 3, "scale_attn_by_inverse_layer_idx": True},
        "mutants": [{"scale_attn_by_inverse_layer_idx": False}, {"scale_attn_weights": False}],
    },
    "gpt2-q4": {
        # MLX keeps these linear, not Conv1D: [out, in].
        "config": {**GPT2, "n_embd": 64, "n_head": 4, "n_inner": 96,
                   "quantization": {"group_size": 32, "bits": 4}}, "names": "mlx", "quantize": FOUR_BITS,
        "also_saved": False, "mutants": [{"n_head": 2}],
    },
    # mamba2 ---------------------------------------------------------------------------------------------
    "mamba2-one-group": {
        "config": {**MAMBA2},
        # Published configs spell the open end as Python's json module does.
        "also": [{"time_step_limit": [0.0, float("inf")]}],
        "mutants": [{"layer_norm_epsilon": 0.5}, {"time_step_limit": [0.0, 0.1]}],
    },
    "mamba2-groups": {
        "config": {**MAMBA2, "hidden_size": 48, "num_heads": 12, "head_dim": 8, "n_groups": 3, "use_bias": True,
                   "conv_kernel": 3, "tie_word_embeddings": True, "layer_norm_epsilon": 0.02, "num_hidden_layers": 2},
        "mutants": [{"layer_norm_epsilon": 1e-6}, {"n_groups": 3, "time_step_limit": [0.4, 1e9]}],
    },
    "mamba2-limits": {
        "config": {**MAMBA2, "num_heads": 4, "head_dim": 20, "n_groups": 2, "use_conv_bias": False, "chunk_size": 256,
                   "time_step_limit": [0.3, 0.8], "state_size": 16, "num_hidden_layers": 1},
        "mutants": [{"time_step_limit": [0.0, 1e9]}, {"time_step_limit": [0.3, 0.9]},
                    {"time_step_limit": [0.25, 0.8]}],
    },
    "mamba2-channels-last": {
        # As MLX conversions publish it: the convolution's taps before its single input channel.
        "config": {**MAMBA2, "num_hidden_layers": 1, "n_groups": 5}, "names": "mlx",
        "mutants": [{"layer_norm_epsilon": 0.5}],
    },
    "mamba2-q4": {
        **quantized(MAMBA2, num_heads=8, head_dim=16, n_groups=2, num_hidden_layers=2), "names": "mlx",
        "mutants": [{"layer_norm_epsilon": 0.5}],
    },
    # bert -----------------------------------------------------------------------------------------------
    "bert-plain": {
        "config": {**BERT},
        "mutants": [{"num_attention_heads": 6}, {"layer_norm_eps": 0.01}, {"hidden_act": "relu"}],
    },
    "bert-gelu-new": {
        "config": {**BERT, "hidden_act": "gelu_new", "num_hidden_layers": 3, "num_attention_heads": 4,
                   "layer_norm_eps": 0.02, "type_vocab_size": 1},
        "mutants": [{"num_attention_heads": 3}, {"layer_norm_eps": 1e-12}],
    },
    "bert-q8": {
        **quantized(BERT, {"bits": 8, "group": 32, "embedding_bits": 8}, num_attention_heads=4),
        "mutants": [{"num_attention_heads": 8}, {"hidden_act": "relu"}],
    },
    "bert-masked-lm": {
        # As published: a `bert.` prefix, a language-model head that embeddings have no use for, position ids, and
        # gamma and beta in the norms.
        "config": {**BERT, "architectures": ["BertForMaskedLM"], "num_hidden_layers": 1, "hidden_act": "relu"},
        "names": "bert_published",
        "mutants": [{"num_attention_heads": 3}, {"hidden_act": "gelu"}],
    },
}
