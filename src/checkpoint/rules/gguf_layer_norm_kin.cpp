// Families with LayerNorm: starcoder2, stablelm, command-r, cohere2, nemotron, starcoder.
#include "checkpoint/rules/gguf_tables.h"

namespace mlxcel {

namespace {

std::span<const GgufName> llama_names() {
  static const auto names = gguf_llama_names({});
  return names;
}

std::span<const GgufName> starcoder2_names() {
  static const auto names = gguf_llama_names(
      {{"blk.#.ffn_up.*", "model.layers.#.mlp.c_fc.*"}, {"blk.#.ffn_down.*", "model.layers.#.mlp.c_proj.*"}});
  return names;
}

/// Norm weights hold the +1 that the model adds.
std::span<const GgufName> nemotron_names() {
  static const auto names = gguf_llama_names(
      {{"output_norm.weight", "model.norm.weight", GgufChange::minus_one},
       {"blk.#.attn_norm.weight", "model.layers.#.input_layernorm.weight", GgufChange::minus_one},
       {"blk.#.ffn_norm.weight", "model.layers.#.post_attention_layernorm.weight", GgufChange::minus_one}});
  return names;
}

constexpr GgufName kStarcoderNames[] = {
    {"token_embd.weight", "transformer.wte.weight"},
    {"position_embd.weight", "transformer.wpe.weight"},
    {"output_norm.*", "transformer.ln_f.*"},
    {"output.weight", "lm_head.weight"},
    {"blk.#.attn_norm.*", "transformer.h.#.ln_1.*"},
    {"blk.#.attn_qkv.*", "transformer.h.#.attn.c_attn.*"},
    {"blk.#.attn_output.*", "transformer.h.#.attn.c_proj.*"},
    {"blk.#.ffn_norm.*", "transformer.h.#.ln_2.*"},
    {"blk.#.ffn_up.*", "transformer.h.#.mlp.c_fc.*"},
    {"blk.#.ffn_down.*", "transformer.h.#.mlp.c_proj.*"},
};

constexpr const char* kEps = "attention.layer_norm_epsilon";

void complete_starcoder2(const GgufFacts& facts, ConfigDraft& config) {
  complete_gguf_rope(facts, config);
  require_gguf_number(facts, config, kEps, "norm_epsilon");
  config.set("hidden_act", "gelu_pytorch_tanh");
  config.set("use_bias", facts.has_tensor("blk.0.attn_q.bias"));
}

void complete_stablelm(const GgufFacts& facts, ConfigDraft& config) {
  complete_gguf_rope(facts, config);
  require_gguf_number(facts, config, kEps, "layer_norm_eps");
  config.set("hidden_act", "silu");
  config.set("use_qkv_bias", facts.has_tensor("blk.0.attn_q.bias"));
  config.set("qk_layernorm", facts.has_tensor("blk.0.attn_q_norm.weight"));
  config.set("use_parallel_residual", !facts.has_tensor("blk.0.ffn_norm.weight"));
  if (!config.contains("partial_rotary_factor")) config.set("partial_rotary_factor", 1.0);
}

void complete_cohere(const GgufFacts& facts, ConfigDraft& config) {
  complete_gguf_rope(facts, config);
  require_gguf_number(facts, config, kEps, "layer_norm_eps");
  require_gguf_number(facts, config, "logit_scale", "logit_scale");
  config.set("hidden_act", "silu");
  config.set("attention_bias", facts.has_tensor("blk.0.attn_q.bias"));
  config.set("use_qk_norm", facts.has_tensor("blk.0.attn_q_norm.weight"));
}

void complete_cohere2(const GgufFacts& facts, ConfigDraft& config) {
  complete_cohere(facts, config);
  config.erase("use_qk_norm");
  config.set("sliding_window", facts.integer("attention.sliding_window", 1, int64_t{1} << 30).value_or(4096));
  set_gguf_layer_types(facts, config, 4);
}

void complete_nemotron(const GgufFacts& facts, ConfigDraft& config) {
  complete_gguf_rope(facts, config);
  require_gguf_number(facts, config, kEps, "norm_eps");
  config.set("hidden_act", "relu2");
  config.set("attention_bias", facts.has_tensor("blk.0.attn_q.bias"));
  config.set("mlp_bias", facts.has_tensor("blk.0.ffn_up.bias"));
  if (!config.contains("partial_rotary_factor")) config.set("partial_rotary_factor", 1.0);
}

/// GPT-2's spelling of the sizes.
void complete_starcoder(const GgufFacts& facts, ConfigDraft& config) {
  constexpr std::pair<const char*, const char*> sizes[] = {{"hidden_size", "n_embd"},
                                                           {"num_hidden_layers", "n_layer"},
                                                           {"num_attention_heads", "n_head"},
                                                           {"max_position_embeddings", "n_positions"},
                                                           {"intermediate_size", "n_inner"}};
  for (const auto& [common, own] : sizes)
    if (config.contains(common)) config.set(own, config.integer(common));
  require_gguf_number(facts, config, kEps, "layer_norm_epsilon");
  config.set("activation_function", "gelu_pytorch_tanh");
  // The converter writes StarCoder's own numbers, whatever the matrices are.
  if (const auto width = facts.rows("blk.0.ffn_up.weight")) config.set("n_inner", *width);
  const auto heads = config.integer("n_head"), hidden = config.integer("n_embd");
  const auto rows = facts.rows("blk.0.attn_qkv.weight");
  const bool one = !rows || heads < 2 || *rows == hidden + 2 * (hidden / heads);
  config.set("multi_query", one);
  config.set("num_key_value_heads", one ? int64_t{1} : config.integer("num_attention_heads"));
}

}  // namespace

std::span<const GgufArch> gguf_layer_norm_kin() {
  const auto sizes = gguf_size_keys();
  static const GgufArch archs[] = {
      {"starcoder2", "starcoder2", "Starcoder2ForCausalLM", sizes, starcoder2_names(), complete_starcoder2},
      {"stablelm", "stablelm", "StableLmForCausalLM", sizes, llama_names(), complete_stablelm},
      {"command-r", "cohere", "CohereForCausalLM", sizes, llama_names(), complete_cohere},
      {"cohere2", "cohere2", "Cohere2ForCausalLM", sizes, llama_names(), complete_cohere2},
      {"nemotron", "nemotron", "NemotronForCausalLM", sizes, nemotron_names(), complete_nemotron},
      {"starcoder", "gpt_bigcode", "GPTBigCodeForCausalLM", sizes, kStarcoderNames, complete_starcoder}};
  return archs;
}

}  // namespace mlxcel
