"""Sparse and latent families, second part; see configs.py for what a case says."""

import numpy as np
from configs import BASE, rope
from configs_moe import LONGCAT, MLA, YARN, like

OLMOE = like("olmoe", "OlmoeForCausalLM", hidden_size=60, intermediate_size=28, num_experts=7, num_experts_per_tok=3,
             norm_topk_prob=False, attention_bias=False, clip_qkv=None)

GRANITE = like("granitemoe", "GraniteMoeForCausalLM", hidden_size=60, intermediate_size=28, num_local_experts=7,
               num_experts_per_tok=3, attention_bias=False, embedding_multiplier=6.0, attention_multiplier=0.2,
               residual_multiplier=0.6, logits_scaling=1.8, rms_norm_eps=1e-6)

AFMOE = like("afmoe", "AfmoeForCausalLM", head_dim=18, moe_intermediate_size=26, num_dense_layers=1, num_experts=8,
             num_experts_per_tok=3, num_shared_experts=2, route_scale=2.4, global_attn_every_n_layers=3,
             sliding_window=7, mup_enabled=True, num_hidden_layers=4, attention_bias=False)

LAGUNA_ROPE = {"full_attention": {"rope_type": "default", "rope_theta": 50000.0, "partial_rotary_factor": 0.5},
               "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 1.0}}
LAGUNA = {key: value for key, value in
          like("laguna", "LagunaForCausalLM", head_dim=20, moe_intermediate_size=26, num_experts=8,
               num_experts_per_tok=3, shared_expert_intermediate_size=22, sliding_window=7, gating=True,
               num_attention_heads_per_layer=[6, 4, 2, 8], num_hidden_layers=4, moe_routed_scaling_factor=2.5,
               moe_router_logit_softcapping=0.4, attention_bias=False, rms_norm_eps=1e-6, rope_parameters=LAGUNA_ROPE,
               layer_types=["full_attention", "sliding_attention", "sliding_attention", "full_attention"]).items()
          if key != "rope_theta"}

MINICPM3 = like("minicpm3", "MiniCPM3ForCausalLM", **MLA, scale_emb=5, scale_depth=0.9, dim_model_base=30,
                tie_word_embeddings=True, rope_scaling={
                    "type": "longrope", "original_max_position_embeddings": 24,
                    "short_factor": [1.0, 1.1, 1.2, 1.4, 1.7], "long_factor": [1.0, 1.6, 2.3, 4.0, 7.0]})

MINIMAX_M2 = like("minimax_m2", "MiniMaxM2ForCausalLM", head_dim=20, rotary_dim=12, intermediate_size=28,
                  num_local_experts=8, num_experts_per_tok=3, rms_norm_eps=1e-6)

LLAMA4 = {"architectures": ["Llama4ForConditionalGeneration"], "model_type": "llama4", **BASE, "torch_dtype": "float32",
          "text_config": {key: value for key, value in
                          like("llama4_text", "", head_dim=20, intermediate_size=28, intermediate_size_mlp=76,
                               num_local_experts=5, num_experts_per_tok=1, interleave_moe_layer_step=2,
                               num_hidden_layers=4, attention_chunk_size=9, attn_temperature_tuning=True,
                               floor_scale=7, attn_scale=0.4, use_qk_norm=True, no_rope_layers=[1, 1, 0, 1],
                               attention_bias=False).items() if key not in ("architectures", "torch_dtype")}}

DSA = {**{key: value for key, value in like("deepseek_v32", "DeepseekV32ForCausalLM").items()}, **MLA,
       "first_k_dense_replace": 1, "moe_intermediate_size": 26, "n_routed_experts": 12, "n_shared_experts": 1,
       "num_experts_per_tok": 3, "n_group": 4, "topk_group": 2, "norm_topk_prob": True, "routed_scaling_factor": 2.5,
       "rms_norm_eps": 1e-6, "index_n_heads": 9, "index_head_dim": 16, "index_topk": 9}

GLM_DSA = {**DSA, "architectures": ["GlmMoeDsaForCausalLM"], "model_type": "glm_moe_dsa", "n_group": 1, "topk_group": 1,
           "num_hidden_layers": 4, "index_n_heads": 11, "index_topk": 7, "rms_norm_eps": 1e-5}

M3 = {"architectures": ["MiniMaxM3SparseForConditionalGeneration"], "model_type": "minimax_m3_vl", **BASE,
      "torch_dtype": "float32",
      "text_config": {key: value for key, value in
                      like("minimax_m3_vl_text", "", head_dim=20, rotary_dim=12, intermediate_size=28,
                           dense_intermediate_size=76, shared_intermediate_size=22, num_local_experts=8,
                           num_experts_per_tok=3, routed_scaling_factor=1.7, swiglu_alpha=1.4, swiglu_limit=0.7,
                           rms_norm_eps=1e-6, mlp_layer_types=["dense", "sparse", "sparse"],
                           layer_types=["minimax_m3_sparse", "full_attention", "minimax_m3_sparse"],
                           rope_parameters={"rope_type": "default", "rope_theta": 10000.0,
                                            "partial_rotary_factor": 0.6},
                           index_n_heads=2, index_head_dim=16, index_block_size=4, index_topk_blocks=3,
                           index_local_blocks=1).items() if key not in ("architectures", "torch_dtype")}}

MUSE_TEXT = {"model_type": "muse_glimmer_text", "hidden_activation": "silu", "hidden_size": 72, "intermediate_size": 100,
             "num_hidden_layers": 4, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 97,
             "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "sliding_window": 6,
             "qk_scale_factor": 1.7, "output_multiplier": 1.2, "final_logit_softcapping": 4.0, "post_norm_eps": 1e-8,
             "attention_bias": False, "tie_word_embeddings": False, "pad_token_id": 0}
# The reference reads token 0 in place of an image's or a video's, so the prompt has none of these.
MUSE = {"architectures": ["MuseGlimmerForConditionalGeneration"], "model_type": "muse_glimmer", "text_config": MUSE_TEXT,
        "torch_dtype": "float32", "image_token_id": 90, "video_token_id": 91, "out_hidden_size": 72,
        "projector_hidden_size": 16,
        "vision_config": {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2,
                          "patch_size": 7, "pos_emb_height": 4, "pos_emb_width": 4, "max_position_embeddings": 16,
                          "layer_types": ["full_attention"]}}

# LLaDA-2 has the graph of GLM-4.5 under Ling's names; its blocks see each other.
LLADA = {**{k: v for k, v in like("llada2_moe", "LLaDA2MoeModelLM", head_dim=20, partial_rotary_factor=0.5,
                                  use_qk_norm=True, use_qkv_bias=False, use_bias=False, first_k_dense_replace=1,
                                  moe_intermediate_size=26, num_experts=9, num_shared_experts=1, num_experts_per_tok=3,
                                  n_group=3, topk_group=2, norm_topk_prob=True, routed_scaling_factor=1.5,
                                  block_length=8, mask_token_id=96).items()}}


def glm_of_llada(config):
    return {**{k: v for k, v in config.items() if k not in ("num_experts", "num_shared_experts", "use_qkv_bias", "use_bias",
                                                            "block_length", "mask_token_id")},
            "model_type": "glm4_moe", "n_routed_experts": config["num_experts"],
            "n_shared_experts": config["num_shared_experts"], "attention_bias": config["use_qkv_bias"]}


def llada_names(saved, config):
    """Ling's names, q, k and v in one."""
    layout = {}
    for name, shape in saved.items():
        own = name.replace("model.embed_tokens", "model.word_embeddings").replace("e_score_correction_bias", "expert_bias")
        own = own.replace("self_attn.o_proj", "attention.dense").replace("self_attn.q_norm", "attention.query_layernorm")
        own = own.replace("self_attn.k_norm", "attention.key_layernorm")
        if ".self_attn.q_proj." in name:
            parts = [name.replace("q_proj", part) for part in ("q_proj", "k_proj", "v_proj")]
            ends = [0]
            for part in parts:
                ends.append(ends[-1] + saved[part][0])
            pieces = {part: (lambda x, a=a, b=b: x[a:b]) for part, a, b in zip(parts, ends, ends[1:])}
            layout[name.replace("self_attn.q_proj", "attention.query_key_value")] = ([ends[-1], *shape[1:]], pieces)
        elif ".self_attn." not in own:
            layout[own] = (shape, {name: lambda x: x})
        elif "_proj." not in own:
            layout[own] = (shape, {name: lambda x: x})
    return layout

K3 = {"model_type": "kimi_k3", "vocab_size": 97, "torch_dtype": "float32", **BASE,
      "text_config": {"model_type": "kimi_linear", "vocab_size": 97, "hidden_size": 60, "num_hidden_layers": 5,
                      "num_attention_heads": 6, "num_key_value_heads": 6, "intermediate_size": 76, "rms_norm_eps": 1e-5,
                      "max_position_embeddings": 128, "hidden_act": "situ", "activation_situ_beta": 1.3,
                      "activation_situ_linear_beta": 2.1, "attn_res_block_size": 2, "q_lora_rank": 28, "kv_lora_rank": 22,
                      "qk_nope_head_dim": 14, "qk_rope_head_dim": 10, "v_head_dim": 18, "mla_use_nope": True,
                      "mla_use_output_gate": True, "num_experts": 8, "num_experts_per_token": 3, "num_shared_experts": 2,
                      "moe_intermediate_size": 26, "moe_renormalize": True, "routed_scaling_factor": 1.7,
                      "first_k_dense_replace": 1, "routed_expert_hidden_size": 34, "latent_moe_use_norm": True,
                      "tie_word_embeddings": False,
                      "linear_attn_config": {"num_heads": 5, "head_dim": 12, "short_conv_kernel_size": 4,
                                             "kda_layers": [1, 2, 4], "full_attn_layers": [3, 5],
                                             "gate_lower_bound": -1.5, "use_full_rank_gate": True}}}


def kimi_k3_names(saved, config):
    """As Moonshot publishes them; the reference takes them back."""
    text, layout = config["text_config"], {}

    def put(name, shape):
        layout[name] = (list(shape), {name: lambda x: x})

    for name, shape in saved.items():
        layer = name.split(".mlp.")[0]
        sparse = f"{layer}.mlp.switch_mlp.gate_proj.weight" in saved
        own = name.replace(".mlp.", ".block_sparse_moe.") if sparse else name
        for mix in ("self_attention_res", "mlp_res", "output_attn_res"):
            for leaf in ("proj", "norm"):
                own = own.replace(f"{mix}_{leaf}.weight", f"{mix}.{leaf}_weight")
        if name.endswith("qkv_proj.weight"):
            for part in "qkv":
                put(own.replace("qkv_proj", f"{part}_proj"), [shape[0] // 3, shape[1]])
        elif "qkv_conv" in name:
            for part in "qkv":
                put(own.replace("qkv_conv.conv", f"{part}_conv1d"), [shape[0] // 3, 1, shape[1]])
        elif ".switch_mlp." in name:
            number = {"gate_proj": "w1", "down_proj": "w2", "up_proj": "w3"}[name.split(".")[-2]]
            for i in range(shape[0]):
                put(own.split("switch_mlp")[0] + f"experts.{i}.{number}.weight", shape[1:])
        elif name.endswith("embed_q.weight"):
            put(own.replace("embed_q", "kv_b_proj"),
                [shape[0] * (text["qk_nope_head_dim"] + text["v_head_dim"]), text["kv_lora_rank"]])
        elif name.endswith("A_log"):
            put(own, [1, 1, shape[0], 1])
        elif not name.endswith("unembed_out.weight"):
            put(own, shape)
    return layout


AFM = {"architectures": ["AFMForCausalLM"], "model_type": "afm7", "torch_dtype": "float32", "vocab_size": 97, "hidden_dim": 72, "num_layers": 5,
       "num_kv_reuse_layers": 2, "num_heads": 6, "num_kv_heads": 2, "hidden_dim_scale_factor": 1.37, "rope_theta": 30000.0,
       "rms_norm_eps": 1e-5}

LOOP = {"architectures": ["IQuestLoopCoderForCausalLM"], "model_type": "iquestloopcoder", "torch_dtype": "float32", **BASE, "vocab_size": 97, "hidden_size": 60,
        "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 18, "intermediate_size": 76,
        "rms_norm_eps": 1e-6, "rope_theta": 20000.0, "max_position_embeddings": 128, "loop_num": 2, "loop_window_size": 5,
        "tie_word_embeddings": False}

BAICHUAN = {"architectures": ["BaichuanM1ForCausalLM"], "model_type": "baichuan_m1", "torch_dtype": "float32", **BASE, "vocab_size": 97, "hidden_size": 72,
            "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2, "num_swa_attention_heads": 4,
            "num_swa_key_value_heads": 1, "intermediate_size": 76, "sliding_window": 6, "sliding_window_layers": [0, 2],
            "conv_window": 2, "rms_norm_eps": 1e-6, "rope_theta": 20000.0, "hidden_act": "silu",
            "max_position_embeddings": 128, "tie_word_embeddings": False}


INKLING = {key: value for key, value in
           like("inkling_text", "InklingForCausalLM", head_dim=18, swa_num_attention_heads=4, swa_num_key_value_heads=4,
                swa_head_dim=14, sliding_window_size=6, d_rel=10, rel_extent=9, log_scaling_n_floor=7,
                log_scaling_alpha=0.6, layer_types=["hybrid_sliding", "hybrid", "hybrid_sliding"],
                mlp_layer_types=["dense", "sparse", "sparse"], moe_intermediate_size=26, n_routed_experts=9,
                n_shared_experts=2, num_experts_per_tok=3, route_scale=2.3, conv_kernel_size=4,
                logits_mup_width_multiplier=1.6, rms_norm_eps=1e-6, unpadded_vocab_size=93).items()
           if key not in ("rope_theta", "attention_bias")}

def inkling_names(saved, config):
    """As published: rows of gate and up in turn, names of the trainer's."""
    spelled = {"q_proj": "wq_du", "k_proj": "wk_dv", "v_proj": "wv_dv", "r_proj": "wr_du", "o_proj": "wo_ud"}
    layout = {}

    def apart(axis, names):
        def pick(start):
            return lambda x: x.take(range(start, x.shape[axis], 2), axis)

        return {name: pick(start) for start, name in enumerate(names)}

    for name, shape in saved.items():
        own = name.replace("lm_head.weight", "model.llm.unembed.weight").replace("model.layers", "model.llm.layers")
        own = own.replace("model.embed_tokens.weight", "model.llm.embed.weight").replace("model.norm", "model.llm.norm")
        own = own.replace("model.embed_tokens.embed_norm", "model.llm.embed_norm").replace(".self_attn.", ".attn.")
        own = own.replace("sconv.conv1d", "sconv").replace("post_attention_layernorm", "mlp_norm")
        own = own.replace("input_layernorm", "attn_norm").replace("gate.e_score_correction_bias", "gate.bias")
        for part, other in spelled.items():
            own = own.replace(f".attn.{part}.", f".attn.{other}.")
        if name.endswith("experts.gate_up_proj"):
            def deal(x):
                return {"": np.concatenate([x[:, 0::2], x[:, 1::2]], 1)}
            layout[own.replace("gate_up_proj", "w13_weight")] = (shape, {name: lambda x: deal(x)[""]})
        elif name.endswith(".mlp.experts.down_proj"):
            layout[own.replace("down_proj", "w2_weight")] = (shape, {name: lambda x: x})
        elif ".shared_experts." in name:
            if name.endswith("gate_proj"):
                layout[own.replace("gate_proj", "shared_w13_weight")] = (
                    [shape[0], 2 * shape[1], shape[2]], apart(1, [name, name.replace("gate_proj", "up_proj")]))
            elif name.endswith("down_proj"):
                layout[own.replace("down_proj", "shared_w2_weight")] = (shape, {name: lambda x: x})
        elif name.endswith("mlp.gate_proj.weight"):
            layout[own.replace("gate_proj", "w13_dn")] = ([2 * shape[0], shape[1]],
                                                          apart(0, [name, name.replace("gate_proj", "up_proj")]))
        elif name.endswith("mlp.down_proj.weight"):
            layout[own.replace("down_proj", "w2_md")] = (shape, {name: lambda x: x})
        elif not name.endswith("mlp.up_proj.weight"):
            layout[own] = (shape, {name: lambda x: x})
    return layout


PHI3SMALL = {"architectures": ["Phi3SmallForCausalLM"], "model_type": "phi3small", "torch_dtype": "float32", **BASE,
             "vocab_size": 97, "hidden_size": 72, "num_hidden_layers": 3, "num_attention_heads": 6,
             "num_key_value_heads": 2, "ff_intermediate_size": 52, "gegelu_limit": 0.7,
             "dense_attention_every_n_layers": 2, "layer_norm_epsilon": 1e-5, "rope_embedding_base": 20000,
             "rope_position_scale": 0.7, "mup_use_scaling": True, "mup_attn_multiplier": 2.3,
             "mup_embedding_multiplier": 3.1, "mup_width_multiplier": 2.2, "blocksparse_block_size": 32,
             "blocksparse_num_local_blocks": 1, "blocksparse_vert_stride": 3, "max_position_embeddings": 256}


def mended_phi3small(model):
    """Silences no ids that a small vocabulary lacks; and its sparse layers add their causal mask as true and false."""
    import mlx.core as mx
    from mlx_lm.models import base, phi3small

    model._dummy_tokenizer_ids = mx.zeros((0,), mx.int32)
    phi3small.create_attention_mask = lambda h, cache=None, **how: mx.where(
        base.create_attention_mask(h, cache, return_array=True), 0.0, -float("inf"))


CASES = {
    # phi3small: the reference cuts blocks rightly where the prompt is whole blocks ------------------------
    "phi3small-blocks": {
        "config": PHI3SMALL, "oracle": "mlx", "prepare": mended_phi3small, "length": 128,
        "mutants": [{"blocksparse_num_local_blocks": 2}, {"blocksparse_vert_stride": 2}, {"gegelu_limit": 1.4}],
    },
    "phi3small-wide": {
        "config": {**PHI3SMALL, "blocksparse_block_size": 64, "dense_attention_every_n_layers": 1, "num_hidden_layers": 2,
                   "num_key_value_heads": 6, "mup_use_scaling": False, "rope_position_scale": 1.0},
        "oracle": "mlx", "prepare": mended_phi3small, "length": 192,
        "mutants": [{"blocksparse_num_local_blocks": 2}, {"dense_attention_every_n_layers": 2}],
    },
    # inkling --------------------------------------------------------------------------------------------
    "inkling-distances": {
        "config": INKLING, "below": 93,
        "mutants": [{"route_scale": 1.0}, {"num_experts_per_tok": 2}, {"log_scaling_alpha": 0.1}],
    },
    "inkling-published": {
        "layout": inkling_names, "also_saved": False,
        "config": {**{k: v for k, v in INKLING.items() if k not in ("layer_types", "unpadded_vocab_size", "log_scaling_n_floor")},
                   "local_layer_ids": [1], "mlp_layer_types": ["sparse", "dense", "sparse"], "n_shared_experts": 1,
                   "conv_kernel_size": 3, "swa_num_key_value_heads": 2},
        "mutants": [{"route_scale": 1.0}, {"num_experts_per_tok": 4}],
    },
    # afm7 -----------------------------------------------------------------------------------------------
    "afm7-shared": {
        "config": AFM, "oracle": "mlx",
        "mutants": [{"rope_theta": 500.0}, {"rms_norm_eps": 0.1}],
    },
    "afm7-alone": {
        "config": {**AFM, "num_kv_reuse_layers": 0, "num_layers": 2, "num_heads": 4, "num_kv_heads": 4},
        "oracle": "mlx", "mutants": [{"rope_theta": 500.0}],
    },
    # iquestloopcoder ------------------------------------------------------------------------------------
    "iquestloopcoder-window": {
        "config": LOOP, "oracle": "mlx", "mutants": [{"loop_window_size": 6}, {"rope_theta": 500.0}],
    },
    "iquestloopcoder-biases": {
        "config": {**LOOP, "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True, "num_key_value_heads": 6,
                   "loop_window_size": 1, "rope_scaling": {"type": "linear", "factor": 3.0}},
        "oracle": "mlx", "mutants": [{"loop_window_size": 2}, {"rope_scaling": None}],
    },
    # baichuan_m1 ----------------------------------------------------------------------------------------
    "baichuan_m1-narrow": {
        "config": BAICHUAN, "oracle": "mlx",
        "mutants": [{"sliding_window": 7}, {"rope_theta": 500.0}],
    },
    "baichuan_m1-wide": {
        "config": {k: v for k, v in {**BAICHUAN, "sliding_window_layers": [1], "num_hidden_layers": 2}.items()
                   if "swa" not in k},
        "oracle": "mlx", "mutants": [{"sliding_window": 7}, {"sliding_window_layers": [0]}],
    },
    # kimi_k3 --------------------------------------------------------------------------------------------
    "kimi_k3-published": {
        "config": {**K3}, "oracle": "mlx", "layout": kimi_k3_names,
        "mutants": [{"text_config": {"attn_res_block_size": 3}}, {"text_config": {"activation_situ_beta": 2.0}},
                    {"text_config": {"num_experts_per_token": 2}},
                    {"text_config": {"linear_attn_config": {"gate_lower_bound": -3.0}}}],
    },
    "kimi_k3-plain": {
        "config": {**K3, "text_config": {**{k: v for k, v in K3["text_config"].items()
                                            if k not in ("attn_res_block_size", "activation_situ_linear_beta",
                                                         "routed_expert_hidden_size", "q_lora_rank", "mla_use_output_gate")},
                                         "num_hidden_layers": 3,
                                         "tie_word_embeddings": True, "moe_renormalize": False,
                                         "linear_attn_config": {"num_heads": 3, "head_dim": 14, "short_conv_kernel_size": 3,
                                                                "kda_layers": [1, 3], "full_attn_layers": [2]}}},
        "oracle": "mlx", "layout": kimi_k3_names,
        "mutants": [{"text_config": {"moe_renormalize": True}}, {"text_config": {"num_experts_per_token": 2}}],
    },
    # llada2_moe -----------------------------------------------------------------------------------------
    "llada2_moe-blocks": {
        "config": {**LLADA}, "block": lambda c: c["block_length"], "layout": llada_names, "also_saved": False,
        "reference_type": "glm4_moe", "reference_class": "Glm4MoeForCausalLM", "reference_config": glm_of_llada,
        "mutants": [{"block_length": 4}, {"block_length": 16}, {"topk_group": 1}, {"partial_rotary_factor": 1.0}],
    },
    "llada2_moe-bias": {
        "config": {**LLADA, "use_qkv_bias": True, "num_hidden_layers": 2, "num_key_value_heads": 6, "n_group": 1,
                   "topk_group": 1, "num_shared_experts": 2, "block_length": 16, "tie_word_embeddings": True,
                   "first_k_dense_replace": 0, "rms_norm_eps": 0.02},
        "block": lambda c: c["block_length"], "layout": llada_names, "also_saved": False,
        "reference_type": "glm4_moe", "reference_class": "Glm4MoeForCausalLM", "reference_config": glm_of_llada,
        "mutants": [{"block_length": 1}, {"rms_norm_eps": 1e-6}, {"num_experts_per_tok": 2}],
    },
    # muse_glimmer ---------------------------------------------------------------------------------------
    "muse_glimmer-pattern": {
        "config": MUSE, "below": 90,
        "mutants": [{"text_config": {"sliding_window": 5}}, {"text_config": {"qk_scale_factor": 3.0}},
                    {"text_config": {"output_multiplier": 0.5}}, {"text_config": {"final_logit_softcapping": 2.0}},
                    {"text_config": {"layer_rope_theta": [10000.0, 10000.0, 10000.0, 10000.0]}}],
    },
    "muse_glimmer-bias": {
        "config": {**MUSE, "text_config": {**MUSE_TEXT, "output_multiplier": 0.3, "attention_bias": True, "num_key_value_heads": 6,
                                           "layer_types": ["full_attention", "sliding_attention", "full_attention"],
                                           "layer_rope_theta": [0, 10000.0, 10000.0], "num_hidden_layers": 3,
                                           "rms_norm_eps": 0.02}},
        "below": 90,
        "mutants": [{"text_config": {"rms_norm_eps": 1e-6}}],
    },
    # deepseek_v32 ---------------------------------------------------------------------------------------
    "deepseek_v32-chosen": {
        "config": {**DSA}, "chooses": True,
        "mutants": [{"index_topk": 8}, {"index_topk": 64}, {"topk_group": 1, "num_experts_per_tok": 2}],
    },
    "deepseek_v32-yarn": {
        "config": {**DSA, "rope_scaling": YARN, "num_attention_heads": 5, "num_key_value_heads": 5, "index_n_heads": 13,
                   "index_head_dim": 10, "index_topk": 14, "attention_bias": True, "num_hidden_layers": 2,
                   "tie_word_embeddings": True, "norm_topk_prob": False, "num_nextn_predict_layers": 0},
        "chooses": True,
        "mutants": [{"index_topk": 12}, {"rope_scaling": {"mscale_all_dim": 0.5}}, {"norm_topk_prob": True}],
    },
    # glm_moe_dsa ----------------------------------------------------------------------------------------
    "glm_moe_dsa-every": {
        "config": {**GLM_DSA}, "chooses": True,
        "mutants": [{"index_topk": 6}, {"index_topk": 64}, {"routed_scaling_factor": 1.0}],
    },
    "glm_moe_dsa-shared": {
        "config": {**GLM_DSA, "indexer_types": ["full", "shared", "full", "shared"], "index_topk": 12,
                   "mlp_layer_types": ["sparse", "dense", "sparse", "sparse"], "tie_word_embeddings": True,
                   "num_attention_heads": 4, "num_key_value_heads": 4, "n_shared_experts": 2},
        "also": [{"indexer_types": None, "index_topk_pattern": "FSFS"},
                 {"indexer_types": None, "index_topk_freq": 2, "index_skip_topk_offset": 1}],
        "chooses": True,
        "mutants": [{"index_topk": 10}, {"num_experts_per_tok": 2}],
    },
    # minimax_m3 -----------------------------------------------------------------------------------------
    "minimax_m3_vl-blocks": {
        "config": {**M3}, "chooses": True,
        "reference_class": "MiniMaxM3VLForCausalLM", "reference_type": "minimax_m3_vl_text", "also_saved": False,
        "reference_config": lambda c: {**c["text_config"], "model_type": "minimax_m3_vl_text"},
        "mutants": [{"text_config": {"index_topk_blocks": 2}}, {"text_config": {"index_block_size": 5}},
                    {"text_config": {"swiglu_alpha": 1.7}}, {"text_config": {"routed_scaling_factor": 1.0}}],
    },
    "minimax_m3_vl-published": {
        "config": {**M3, "text_config": {**{k: v for k, v in M3["text_config"].items()
                                            if not k.startswith("index_") and k not in ("layer_types", "mlp_layer_types",
                                                                                         "rope_parameters")},
                                         "num_key_value_heads": 3, "num_hidden_layers": 2, "tie_word_embeddings": True,
                                         "moe_layer_freq": [1, 0], "swiglu_limit": 7.0, "rope_theta": 5000.0,
                                         "sparse_attention_config": {
                                             "sparse_num_index_heads": 3, "sparse_index_dim": 14, "sparse_block_size": 3,
                                             "sparse_topk_blocks": 5, "sparse_local_block": 2,
                                             "sparse_attention_freq": [1, 1]}}},
        "oracle": "mlx", "unstack": True, "chooses": True,
        "rename": [(r"(experts\.\d+)\.gate_proj", r"\1.w1"), (r"(experts\.\d+)\.up_proj", r"\1.w3"),
                   (r"(experts\.\d+)\.down_proj", r"\1.w2")],
        "mutants": [{"text_config": {"rope_theta": 100.0}}, {"text_config": {"num_experts_per_tok": 2}},
                    {"text_config": {"sparse_attention_config": {"sparse_topk_blocks": 4}}}],
    },
    # longcat_flash_ngram --------------------------------------------------------------------------------
    "longcat_flash_ngram-four": {
        "config": {**LONGCAT, "model_type": "longcat_flash_ngram", "ngram_vocab_size_ratio": 3, "emb_neighbor_num": 4,
                   "emb_split_num": 2},
        "oracle": "mlx", "unstack": True,
        "mutants": [{"moe_topk": 3}, {"routed_scaling_factor": 1.0}, {"rope_theta": 100.0}],
    },
    "longcat_flash_ngram-two": {
        "config": {**LONGCAT, "model_type": "longcat_flash_ngram", "ngram_vocab_size_ratio": 5, "emb_neighbor_num": 2,
                   "emb_split_num": 3, "norm_topk_prob": True, "router_bias": True, "num_layers": 1,
                   "num_attention_heads": 4},
        "oracle": "mlx",
        "mutants": [{"norm_topk_prob": False}, {"rope_theta": 100.0}],
    },
    # olmoe ----------------------------------------------------------------------------------------------
    "olmoe-plain": {
        "config": {**OLMOE},
        "mutants": [{"norm_topk_prob": True}, {"num_experts_per_tok": 2}, {"rope_theta": 100.0}],
    },
    "olmoe-bias": {
        "config": {**OLMOE, "attention_bias": True, "num_attention_heads": 5, "num_key_value_heads": 5,
                   "norm_topk_prob": True, "tie_word_embeddings": True, "num_hidden_layers": 2, "rms_norm_eps": 0.02},
        "mutants": [{"norm_topk_prob": False}, {"rms_norm_eps": 1e-6}, {"num_experts_per_tok": 2}],
    },
    # granitemoe -----------------------------------------------------------------------------------------
    "granitemoe-multipliers": {
        "config": {**GRANITE},
        "mutants": [{"embedding_multiplier": 1.0}, {"attention_multiplier": 0.4}, {"residual_multiplier": 1.0},
                    {"logits_scaling": 1.0}, {"num_experts_per_tok": 2}],
    },
    "granitemoe-bias": {
        "config": {**GRANITE, "attention_bias": True, "num_attention_heads": 5, "num_key_value_heads": 1,
                   "tie_word_embeddings": True, "num_hidden_layers": 2, "num_experts_per_tok": 6, "rms_norm_eps": 0.02,
                   **rope(rope_type="linear", rope_theta=5000.0, factor=2.0)},
        "drop": ["rope_theta"],
        "mutants": [{"logits_scaling": 2.5}, {"num_experts_per_tok": 4}],
    },
    # afmoe ----------------------------------------------------------------------------------------------
    "afmoe-pattern": {
        "config": {**AFMOE},
        "mutants": [{"sliding_window": 6}, {"sliding_window": 8}, {"global_attn_every_n_layers": 2},
                    {"mup_enabled": False}, {"route_scale": 1.0}],
    },
    "afmoe-types": {
        "config": {**AFMOE, "num_hidden_layers": 3, "num_dense_layers": 2, "num_shared_experts": 1, "mup_enabled": False,
                   "attention_bias": True, "num_key_value_heads": 6, "tie_word_embeddings": True, "rms_norm_eps": 0.02,
                   "layer_types": ["full_attention", "sliding_attention", "sliding_attention"]},
        "mutants": [{"rms_norm_eps": 1e-6}, {"num_experts_per_tok": 2}, {"sliding_window": 5}],
    },
    # laguna ---------------------------------------------------------------------------------------------
    "laguna-heads": {
        "config": {**LAGUNA},
        "mutants": [{"sliding_window": 6}, {"sliding_window": 8}, {"moe_router_logit_softcapping": 0.0},
                    {"moe_routed_scaling_factor": 1.0},
                    {"rope_parameters": {"full_attention": {"rope_theta": 100.0}}}],
    },
    "laguna-elements": {
        "config": {**{k: v for k, v in LAGUNA.items() if k not in ("rope_parameters", "num_attention_heads_per_layer")},
                   "gating": "per-element", "attention_bias": True, "num_hidden_layers": 3, "num_key_value_heads": 3,
                   "mlp_layer_types": ["sparse", "dense", "sparse"], "moe_router_logit_softcapping": 0.0,
                   "layer_types": ["sliding_attention", "full_attention", "sliding_attention"], "rms_norm_eps": 0.02,
                   "tie_word_embeddings": True},
        "mutants": [{"num_experts_per_tok": 2}, {"rms_norm_eps": 1e-6}, {"sliding_window": 6}],
    },
    # minicpm3 -------------------------------------------------------------------------------------------
    "minicpm3-long": {
        "config": {**MINICPM3},
        "mutants": [{"scale_emb": 1}, {"scale_depth": 1.8}, {"dim_model_base": 60},
                    {"rope_scaling": {"long_factor": [1.0, 1.0, 1.0, 1.0, 1.0]}}],
    },
    "minicpm3-plain": {
        "config": {**{k: v for k, v in MINICPM3.items() if k not in ("v_head_dim", "scale_depth", "dim_model_base")},
                   "q_lora_rank": None, "rope_scaling": None, "attention_bias": True, "num_hidden_layers": 2,
                   "tie_word_embeddings": False, "scale_depth": None, "dim_model_base": None, "rms_norm_eps": 0.02},
        "mutants": [{"rope_theta": 100.0}, {"scale_depth": 0.5}],
    },
    # minimax_m2 -----------------------------------------------------------------------------------------
    "minimax_m2-part": {
        "config": {**MINIMAX_M2},
        "mutants": [{"rotary_dim": 20}, {"num_experts_per_tok": 2}, {"rope_theta": 100.0}],
    },
    "minimax_m2-whole": {
        "config": {**{k: v for k, v in MINIMAX_M2.items() if k != "rotary_dim"}, "num_key_value_heads": 6, "head_dim": 14,
                   "num_hidden_layers": 2, "tie_word_embeddings": True, "num_experts_per_tok": 5, "rms_norm_eps": 0.02},
        "mutants": [{"rms_norm_eps": 1e-6}, {"num_experts_per_tok": 4}],
    },
    # llama4 ---------------------------------------------------------------------------------------------
    "llama4-chunks": {
        "config": {**LLAMA4},
        "reference_class": "Llama4ForCausalLM", "reference_type": "llama4_text", "also_saved": False,
        "reference_config": lambda c: {**c["text_config"], "model_type": "llama4_text"},
        "mutants": [{"text_config": {"attention_chunk_size": 8}}, {"text_config": {"use_qk_norm": False}},
                    {"text_config": {"attn_temperature_tuning": False}}, {"text_config": {"floor_scale": 14}}],
    },
    "llama4-listed": {
        "config": {**LLAMA4, "text_config": {**LLAMA4["text_config"], "moe_layers": [0, 2], "num_hidden_layers": 3,
                                             "num_experts_per_tok": 2, "use_qk_norm": False, "attention_bias": True,
                                             "attention_chunk_size": None, "no_rope_layers": [], "rms_norm_eps": 0.02,
                                             "no_rope_layer_interval": 2, "attn_temperature_tuning": False,
                                             "tie_word_embeddings": True, "num_key_value_heads": 6}},
        "reference_class": "Llama4ForCausalLM", "reference_type": "llama4_text", "also_saved": False,
        "reference_config": lambda c: {**c["text_config"], "model_type": "llama4_text"},
        "mutants": [{"text_config": {"no_rope_layer_interval": 3}}, {"text_config": {"rms_norm_eps": 1e-6}},
                    {"text_config": {"num_experts_per_tok": 1}}],
    },
}
