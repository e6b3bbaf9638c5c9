// qwen2, qwen3, qwen3moe. Experts arrive stacked, under the names that parts ask for.

#include "checkpoint/rules/gguf_tables.h"

namespace mlxcel {

namespace {

constexpr GgufName kNames[] = {
    {"token_embd.weight", "model.embed_tokens.weight"},
    {"output_norm.weight", "model.norm.weight"},
    {"output.weight", "lm_head.weight"},
    {"output.bias", "lm_head.bias"},
    {"rope_freqs.weight", ""},
    {"blk.#.attn_norm.weight", "model.layers.#.input_layernorm.weight"},
    {"blk.#.attn_q_norm.weight", "model.layers.#.self_attn.q_norm.weight"},
    {"blk.#.attn_k_norm.weight", "model.layers.#.self_attn.k_norm.weight"},
    {"blk.#.attn_q.*", "model.layers.#.self_attn.q_proj.*"},
    {"blk.#.attn_k.*", "model.layers.#.self_attn.k_proj.*"},
    {"blk.#.attn_v.*", "model.layers.#.self_attn.v_proj.*"},
    {"blk.#.attn_output.*", "model.layers.#.self_attn.o_proj.*"},
    {"blk.#.ffn_norm.weight", "model.layers.#.post_attention_layernorm.weight"},
    {"blk.#.ffn_gate.*", "model.layers.#.mlp.gate_proj.*"},
    {"blk.#.ffn_up.*", "model.layers.#.mlp.up_proj.*"},
    {"blk.#.ffn_down.*", "model.layers.#.mlp.down_proj.*"},
    {"blk.#.ffn_gate_inp.weight", "model.layers.#.mlp.gate.weight"},
    {"blk.#.ffn_gate_exps.weight", "model.layers.#.mlp.switch_mlp.gate_proj.weight"},
    {"blk.#.ffn_up_exps.weight", "model.layers.#.mlp.switch_mlp.up_proj.weight"},
    {"blk.#.ffn_down_exps.weight", "model.layers.#.mlp.switch_mlp.down_proj.weight"},
};

void complete_qwen2(const GgufFacts& facts, ConfigDraft& config) {
  complete_gguf_rope(facts, config);
  config.set("hidden_act", "silu");
  config.set("use_sliding_window", false);
}

void complete_qwen3(const GgufFacts& facts, ConfigDraft& config) {
  complete_qwen2(facts, config);
  config.set("attention_bias", facts.has_tensor("blk.0.attn_q.bias"));
}

void complete_qwen3moe(const GgufFacts& facts, ConfigDraft& config) {
  complete_qwen3(facts, config);
  config.set("decoder_sparse_step", 1);
  config.set("mlp_only_layers", std::vector<double>{});
  config.set("norm_topk_prob", true);  // fixed for this architecture in llama.cpp's graph
}

// The shared decoder keys and the experts' own.
constexpr GgufKey kExpertKeys[] = {
    {"expert_count", "num_experts", GgufKey::Kind::integer, true},
    {"expert_used_count", "num_experts_per_tok", GgufKey::Kind::integer, true},
    {"expert_feed_forward_length", "moe_intermediate_size", GgufKey::Kind::integer, true},
};

std::span<const GgufKey> moe_keys() {
  static const std::vector<GgufKey> keys = [] {
    std::vector<GgufKey> out(gguf_decoder_keys().begin(), gguf_decoder_keys().end());
    out.insert(out.end(), std::begin(kExpertKeys), std::end(kExpertKeys));
    return out;
  }();
  return keys;
}

}  // namespace

const GgufArch& gguf_qwen2() {
  static const GgufArch arch{"qwen2", "qwen2",       "Qwen2ForCausalLM", gguf_decoder_keys(),
                             kNames,  complete_qwen2};
  return arch;
}

const GgufArch& gguf_qwen3() {
  static const GgufArch arch{"qwen3", "qwen3",       "Qwen3ForCausalLM", gguf_decoder_keys(),
                             kNames,  complete_qwen3};
  return arch;
}

const GgufArch& gguf_qwen3vlmoe() {
  static const GgufArch arch{"qwen3vlmoe", "qwen3_vl_moe", "Qwen3VLMoeForConditionalGeneration",
                             moe_keys(),   kNames,         complete_qwen3moe};
  return arch;
}

const GgufArch& gguf_qwen3moe() {
  static const GgufArch arch{"qwen3moe", "qwen3_moe", "Qwen3MoeForCausalLM",
                             moe_keys(), kNames,      complete_qwen3moe};
  return arch;
}

}  // namespace mlxcel
