// rwkv7. The first layer's value blend, which nothing reads, is a copy of its rates.
#include "base/error.h"
#include "checkpoint/rules/gguf_tables.h"

namespace mlxcel {

namespace {

using Kind = GgufKey::Kind;

constexpr GgufKey kKeys[] = {
    {"block_count", "num_hidden_layers", Kind::integer, true},
    {"embedding_length", "hidden_size", Kind::integer, true},
    {"feed_forward_length", "intermediate_size", Kind::integer, true},
    {"wkv.head_size", "head_dim", Kind::integer, true},
    {"attention.decay_lora_rank", "decay_low_rank_dim", Kind::integer, true},
    {"attention.iclr_lora_rank", "a_low_rank_dim", Kind::integer, true},
    {"attention.value_residual_mix_lora_rank", "v_low_rank_dim", Kind::integer, true},
    {"attention.gate_lora_rank", "gate_low_rank_dim", Kind::integer, true},
    {"attention.layer_norm_epsilon", "norm_eps", Kind::number, true},
};

constexpr GgufName kNames[] = {
    {"token_embd.weight", "model.embeddings.weight"},
    {"token_embd_norm.*", "model.layers.0.pre_norm.*"},
    {"output_norm.*", "model.norm.*"},
    {"output.weight", "lm_head.weight"},
    {"blk.0.time_mix_v0.weight", ""},
    {"blk.0.time_mix_v1.weight", ""},
    {"blk.0.time_mix_v2.weight", ""},
    {"blk.#.attn_norm.*", "model.layers.#.attn_norm.*"},
    {"blk.#.attn_norm_2.*", "model.layers.#.ffn_norm.*"},
    {"blk.#.time_mix_lerp_fused.weight", "model.layers.#.attn.x_rwkvag", GgufChange::flatten},
    {"blk.#.time_mix_w0.weight", "model.layers.#.attn.w_lora.lora.2.bias"},
    {"blk.#.time_mix_w1.weight", "model.layers.#.attn.w_lora.lora.0.weight"},
    {"blk.#.time_mix_w2.weight", "model.layers.#.attn.w_lora.lora.2.weight"},
    {"blk.#.time_mix_a0.weight", "model.layers.#.attn.a_lora.lora.2.bias"},
    {"blk.#.time_mix_a1.weight", "model.layers.#.attn.a_lora.lora.0.weight"},
    {"blk.#.time_mix_a2.weight", "model.layers.#.attn.a_lora.lora.2.weight"},
    {"blk.#.time_mix_v0.weight", "model.layers.#.attn.v_lora.lora.2.bias"},
    {"blk.#.time_mix_v1.weight", "model.layers.#.attn.v_lora.lora.0.weight"},
    {"blk.#.time_mix_v2.weight", "model.layers.#.attn.v_lora.lora.2.weight"},
    {"blk.#.time_mix_g1.weight", "model.layers.#.attn.g_lora.lora.0.weight"},
    {"blk.#.time_mix_g2.weight", "model.layers.#.attn.g_lora.lora.2.weight"},
    {"blk.#.time_mix_k_k.weight", "model.layers.#.attn.k_k"},
    {"blk.#.time_mix_k_a.weight", "model.layers.#.attn.k_a"},
    {"blk.#.time_mix_r_k.weight", "model.layers.#.attn.r_k"},
    {"blk.#.time_mix_ln.*", "model.layers.#.attn.g_norm.*"},
    {"blk.#.time_mix_key.weight", "model.layers.#.attn.k_proj.weight"},
    {"blk.#.time_mix_value.weight", "model.layers.#.attn.v_proj.weight"},
    {"blk.#.time_mix_receptance.weight", "model.layers.#.attn.r_proj.weight"},
    {"blk.#.time_mix_output.weight", "model.layers.#.attn.o_proj.weight"},
    {"blk.#.channel_mix_lerp_k.weight", "model.layers.#.ffn.x_k", GgufChange::flatten},
    {"blk.#.channel_mix_key.weight", "model.layers.#.ffn.key.weight"},
    {"blk.#.channel_mix_value.weight", "model.layers.#.ffn.value.weight"},
};

}  // namespace

const GgufArch& gguf_rwkv7() {
  static const GgufArch arch{"rwkv7", "rwkv7", "RWKV7ForCausalLM", kKeys, kNames};
  return arch;
}

}  // namespace mlxcel
