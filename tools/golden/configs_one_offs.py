"""Cases of families with graphs of their own (see configs.py)."""

import re

from configs import BASE

PHIXTRAL = {
    "architectures": ["PhiForCausalLM"], "model_type": "phi-msft", "vocab_size": 97, "n_embd": 60, "n_layer": 3,
    "n_head": 5, "n_head_kv": None, "n_inner": None, "n_positions": 128, "rotary_dim": 8,
    "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "num_local_experts": 5, "num_experts_per_tok": 2,
    "tie_word_embeddings": False, "torch_dtype": "float32", **BASE,
}


def phixtral_sizes(c):
    """mlx-lm reads names of its own and leaves the published ones out."""
    names = {"num_vocab": "vocab_size", "model_dim": "n_embd", "num_heads": "n_head", "num_layers": "n_layer"}
    return {**c, **{own: c[published] for own, published in names.items() if published in c}}


PLAMO2 = {
    "architectures": ["Plamo2ForCausalLM"], "model_type": "plamo2", "hidden_size": 52, "intermediate_size": 76,
    "num_hidden_layers": 4, "num_attention_heads": 6, "num_key_value_heads": 2, "hidden_size_per_head": 20,
    "max_position_embeddings": 128, "rms_norm_eps": 1e-6, "attention_window_size": 7, "full_attention_idx": [3],
    "mamba_d_state": 12, "mamba_d_conv": 4, "mamba_num_heads": 3, "mamba_step": 2, "mamba_chunk_size": 16,
    "mamba_enabled": True, "vocab_size": 97, "tie_word_embeddings": True, "torch_dtype": "float32", **BASE,
}


def plamo2_window(model):
    """The window that mlx-lm leaves out, as the publisher's mask has it: so many tokens before a query, and itself."""
    import mlx.core as mx
    import mlx_lm.models.plamo2 as module

    settings = model.config
    window, whole = settings.attention_window_size, settings.full_attention_idx or []

    class Windowed(module.Attention):
        def __call__(self, hidden_states, mask=None, cache=None):
            place = mx.arange(hidden_states.shape[1])
            away = place[:, None] - place[None]
            seen = (away >= 0) if self.index in whole else (away >= 0) & (away <= window)
            return super().__call__(hidden_states, mask=seen, cache=cache)

    for index, layer in enumerate(model.model.layers.layers):
        if not layer.is_mamba:
            layer.mixer.__class__ = Windowed
            layer.mixer.index = index

DEEPSEEK_V4 = {
    "architectures": ["DeepseekV4ForCausalLM"], "model_type": "deepseek_v4", "hidden_act": "silu", "hidden_size": 56,
    "moe_intermediate_size": 36, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 1,
    "head_dim": 28, "q_lora_rank": 24, "qk_rope_head_dim": 8, "rope_theta": 10000.0, "compress_rope_theta": 400.0,
    "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "beta_fast": 32, "beta_slow": 1,
                     "original_max_position_embeddings": 32, "attention_factor": 1.0},
    "layer_types": ["sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention",
                    "compressed_sparse_attention"],
    "compress_rates": {"compressed_sparse_attention": 3, "heavily_compressed_attention": 5}, "sliding_window": 6,
    "o_groups": 2, "o_lora_rank": 20, "index_n_heads": 16, "index_head_dim": 12, "index_topk": 4, "hc_mult": 3,
    "hc_sinkhorn_iters": 4, "hc_eps": 1e-5, "num_hash_layers": 1, "n_routed_experts": 6, "num_experts_per_tok": 2,
    "n_shared_experts": 1, "norm_topk_prob": True, "scoring_func": "sqrtsoftplus", "routed_scaling_factor": 1.5,
    "swiglu_limit": 0.8, "rms_norm_eps": 1e-6, "vocab_size": 97, "max_position_embeddings": 128,
    "tie_word_embeddings": False, "torch_dtype": "float32", "pad_token_id": 0, **BASE,
}


def deepseek_v4_layout(saved, config):
    """As save_pretrained publishes it; the experts of token ids are whole numbers."""
    def values(name):
        return (lambda x: x.round().astype("int64")) if name.endswith("tid2eid") else (lambda x: x)

    return {name: (shape, {name: values(name)}) for name, shape in saved.items()}


def deepseek_v4_published(saved, config):
    """The publisher's own names, some of which save_pretrained does not find back."""
    def own(name):
        name = re.sub(r"^model\.hc_head\.hc_", "hc_head_", name)
        name = re.sub(r"^model\.embed_tokens\.", "embed.", name)
        name = re.sub(r"^model\.", "", name)
        return re.sub(r"\.attn\.norm\.", ".attn.kv_norm.", name)

    return {own(name): (shape, {name: parts[name]}) for name, (shape, parts) in deepseek_v4_layout(saved, config).items()}

DIFFUSION_GEMMA_TEXT = {
    "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 56, "intermediate_size": 44, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "global_head_dim": 24,
    "num_global_key_value_heads": 1, "layer_types":
    ["sliding_attention", "full_attention", "sliding_attention", "full_attention"], "sliding_window": 7,
    "rms_norm_eps": 1e-6, "rope_parameters": {
        "full_attention": {"rope_type": "proportional", "rope_theta": 10000.0, "partial_rotary_factor": 0.5},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1000.0}},
    "num_experts": 6, "top_k_experts": 2, "moe_intermediate_size": 28, "final_logit_softcapping": 30.0,
    "vocab_size": 97, "max_position_embeddings": 128, "dtype": "float32", "pad_token_id": 0, **BASE,
}

DIFFUSION_GEMMA = {
    "architectures": ["DiffusionGemmaForBlockDiffusion"], "model_type": "diffusion_gemma", "dtype": "float32",
    "tie_word_embeddings": True, "canvas_length": 9, "image_token_id": 96, "boi_token_id": 95, "eoi_token_id": 94,
    "text_config": {"model_type": "diffusion_gemma_text", **DIFFUSION_GEMMA_TEXT},
    "vision_config": {"model_type": "gemma4_vision", "hidden_size": 16, "intermediate_size": 20,
                      "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 8,
                      "patch_size": 4, "position_embedding_size": 16},
}

HUNYUAN = {
    "architectures": ["HunYuanForCausalLM"], "model_type": "hunyuan", "hidden_act": "silu", "hidden_size": 60,
    "intermediate_size": 36, "num_hidden_layers": 4, "num_attention_heads": 6, "num_key_value_heads": 2,
    "attention_bias": False, "moe_topk": 2, "num_experts": 6, "num_shared_expert": 1, "use_mixed_mlp_moe": True,
    "use_qk_norm": True, "use_cla": True, "cla_share_factor": 2, "rms_norm_eps": 1e-5, "rope_theta": 100.0,
    "rope_scaling": {"type": "dynamic", "factor": 1.0, "alpha": 20.0}, "tie_word_embeddings": True, "vocab_size": 97,
    "max_position_embeddings": 128, "torch_dtype": "float32", "pad_token_id": 0, **BASE,
}


def hunyuan_weights(model):
    """The chosen experts' weights divided by their sum, as the publisher has it and mlx-lm leaves out."""
    import mlx.core as mx
    import mlx_lm.models.hunyuan as module

    class Divided(module.MoeBlock):
        def __call__(self, x):
            scores = mx.softmax(self.gate(x), axis=-1, precise=True)
            chosen = mx.argpartition(-scores, kth=self.top_k - 1, axis=-1)[..., : self.top_k]
            own = mx.take_along_axis(scores, chosen, axis=-1)
            own = own / own.sum(-1, keepdims=True)
            y = (self.switch_mlp(x, chosen) * own[..., None]).sum(axis=-2)
            return y + self.shared_mlp(x) if self.use_shared_mlp else y

    for layer in model.model.layers:
        if isinstance(layer.mlp, module.MoeBlock):
            layer.mlp.__class__ = Divided


CASES = {
    # hunyuan --------------------------------------------------------------------------------------------
    "hunyuan-pairs": {
        "config": {**HUNYUAN}, "oracle": "mlx", "prepare": hunyuan_weights, "unstack": True,
        "mutants": [{"moe_topk": 3}, {"rope_scaling": {"alpha": 1.0}}, {"rms_norm_eps": 0.1}],
    },
    "hunyuan-threes": {
        "config": {**HUNYUAN, "cla_share_factor": 3, "moe_topk": [1, 2, 3, 2], "num_shared_expert": [1, 2, 1, 1],
                   "moe_intermediate_size": [28, 36, 44, 20], "num_key_value_heads": 6, "attention_bias": True,
                   "use_qk_norm": False},
        "oracle": "mlx", "prepare": hunyuan_weights, "unstack": True,
        "mutants": [{"moe_topk": 2}, {"rope_theta": 1000.0}],
    },
    # diffusion_gemma ------------------------------------------------------------------------------------
    "diffusion_gemma-draft": {
        "config": {**DIFFUSION_GEMMA}, "draft": 9, "below": 90, "no_positions": True,
        "mutants": [{"text_config": {"sliding_window": 6}}, {"text_config": {"top_k_experts": 3}},
                    {"text_config": {"final_logit_softcapping": 3.0}},
                    {"text_config": {"rope_parameters": {"full_attention": {"partial_rotary_factor": 1.0}}}}],
    },
    "diffusion_gemma-long-draft": {
        "config": {**DIFFUSION_GEMMA, "canvas_length": 20, "text_config": {
            **DIFFUSION_GEMMA["text_config"], "num_hidden_layers": 3, "layer_types":
            ["full_attention", "sliding_attention", "full_attention"], "num_key_value_heads": 4,
            "num_global_key_value_heads": 2, "sliding_window": 5, "top_k_experts": 5,
            "final_logit_softcapping": 12.0, "rms_norm_eps": 0.1}},
        "draft": 20, "below": 90, "no_positions": True,
        "mutants": [{"text_config": {"sliding_window": 6}}, {"text_config": {"rms_norm_eps": 1e-6}}],
    },
    # deepseek_v4 ----------------------------------------------------------------------------------------
    "deepseek_v4-kinds": {
        "config": {**DEEPSEEK_V4}, "layout": deepseek_v4_layout, "chooses": True,
        "mutants": [{"sliding_window": 5}, {"index_topk": 3},
                    {"hc_sinkhorn_iters": 1}, {"swiglu_limit": 8.0}, {"routed_scaling_factor": 1.0},
                    {"compress_rope_theta": 4000.0}, {"rope_scaling": {"factor": 1.0}}, {"scoring_func": "sigmoid"}],
    },
    "deepseek_v4-published": {
        "config": {**{k: v for k, v in DEEPSEEK_V4.items() if k not in ("layer_types", "compress_rates")},
                   "compress_ratios": [4, 0, 4], "num_hidden_layers": 3, "num_hash_layers": 0, "hc_mult": 2,
                   "head_dim": 20, "qk_rope_head_dim": 20, "num_attention_heads": 6, "o_groups": 3, "sliding_window": 5,
                   "scoring_func": "sigmoid", "tie_word_embeddings": True, "rope_scaling": None,
                   "num_experts_per_tok": 3, "rms_norm_eps": 0.02, "index_head_dim": 20, "swiglu_limit": 10.0},
        "layout": deepseek_v4_published, "chooses": True,
        "mutants": [{"rms_norm_eps": 1e-6}, {"num_experts_per_tok": 2}, {"sliding_window": 6}, {"rope_theta": 100.0},
                    {"index_topk": 2}],
    },
    # phixtral -------------------------------------------------------------------------------------------
    "phi-msft-published": {
        "config": {**PHIXTRAL},
        "oracle": "mlx", "reference_type": "phixtral", "reference_config": phixtral_sizes, "unstack": True,
        "rename": [(r"\.moe\.experts\.", ".moe.mlp.")],
        "mutants": [{"num_experts_per_tok": 1}, {"num_experts_per_tok": 3}, {"rotary_dim": 4}],
    },
    "phi-msft-converted": {
        "config": {**{k: v for k, v in PHIXTRAL.items() if k not in ("n_embd", "n_layer", "n_head", "vocab_size")},
                   "model_dim": 48, "num_layers": 2, "num_heads": 6, "num_vocab": 90, "rotary_dim": 8,
                   "num_local_experts": 4, "num_experts_per_tok": 4},
        "below": 90, "oracle": "mlx", "reference_type": "phixtral", "reference_config": phixtral_sizes,
        "mutants": [{"num_experts_per_tok": 2}, {"rotary_dim": 2}],
    },
    # plamo2 ---------------------------------------------------------------------------------------------
    "plamo2-window": {
        "config": {**PLAMO2},
        "oracle": "mlx", "prepare": plamo2_window,
        "mutants": [{"attention_window_size": 6}, {"attention_window_size": 8}, {"full_attention_idx": []},
                    {"rms_norm_eps": 0.1}],
    },
    "plamo2-few-scans": {
        "config": {**PLAMO2, "num_hidden_layers": 5, "mamba_step": 3, "hidden_size": 60, "num_key_value_heads": 6,
                   "mamba_d_conv": 3, "mamba_d_state": 9, "mamba_num_heads": 4, "hidden_size_per_head": 12,
                   "attention_window_size": 2048, "tie_word_embeddings": False},
        "drop": ["full_attention_idx"],
        "oracle": "mlx", "prepare": plamo2_window,
        "mutants": [{"attention_window_size": 5}, {"rms_norm_eps": 0.1}],
    },
}
