// Families with experts whose configs spell sizes in their own way: llama4, dbrx, cohere2moe.
#include "base/error.h"
#include "checkpoint/rules/gguf_tables.h"

namespace mlxcel {

namespace {

using Kind = GgufKey::Kind;

constexpr int64_t kMost = int64_t{1} << 30;

std::span<const GgufKey> llama4_keys() {
  static const auto keys =
      std::vector<GgufKey>{{"expert_used_count", "num_experts_per_tok"}} + gguf_decoder_keys();
  return keys;
}

constexpr GgufKey kDbrxKeys[] = {
    {"block_count", "n_layers", Kind::integer, true},
    {"context_length", "max_seq_len", Kind::integer, true},
    {"embedding_length", "d_model", Kind::integer, true},
    {"attention.head_count", "n_heads", Kind::integer, true},
};

std::span<const GgufKey> cohere_keys() {
  static const auto keys =
      std::vector<GgufKey>{{"attention.layer_norm_epsilon", "layer_norm_eps", Kind::number},
                           {"attention.layer_norm_rms_epsilon", "rms_norm_eps", Kind::number},
                           {"expert_count", "num_experts", Kind::integer, true},
                           {"expert_used_count", "num_experts_per_tok", Kind::integer, true},
                           {"expert_shared_count", "num_shared_experts"},
                           {"leading_dense_block_count", "first_k_dense_replace"},
                           {"attention.sliding_window", "sliding_window", Kind::integer, true}} +
      gguf_size_keys();
  return keys;
}

std::span<const GgufName> llama4_names() {
  static const auto names = gguf_llama_names(
      std::vector<GgufName>{{"blk.#.ffn_gate_inp.*", "model.layers.#.feed_forward.router.*"}} +
      gguf_unit("", "model.layers.#.feed_forward") +
      gguf_unit("_exps", "model.layers.#.feed_forward.experts") +
      gguf_unit("_shexp", "model.layers.#.feed_forward.shared_expert"));
  return names;
}

std::span<const GgufName> dbrx_names() {
  static const auto names =
      std::vector<GgufName>{
          {"token_embd.weight", "model.embed_tokens.weight"},
          {"output_norm.weight", "model.norm.weight"},
          {"output.weight", "lm_head.weight"},
          {"blk.#.attn_norm.weight", "model.layers.#.norm_attn_norm.norm_1.weight"},
          {"blk.#.attn_output_norm.weight", "model.layers.#.norm_attn_norm.norm_2.weight"},
          {"blk.#.attn_qkv.weight", "model.layers.#.norm_attn_norm.attn.Wqkv.weight"},
          {"blk.#.attn_output.weight", "model.layers.#.norm_attn_norm.attn.out_proj.weight"},
          {"blk.#.ffn_gate_inp.weight", "model.layers.#.ffn.router.layer.weight"},
      } +
      gguf_unit("_exps", "model.layers.#.ffn.switch_mlp");
  return names;
}

std::span<const GgufName> cohere_names() {
  static const auto names = gguf_llama_names(
      std::vector<GgufName>{{"blk.#.nextn.*", "model.layers.#.nextn.*"},
                            {"blk.#.ffn_gate_inp.weight", "model.layers.#.mlp.gate.weight"}} +
      gguf_unit("_exps", "model.layers.#.mlp.switch_mlp") +
      gguf_unit("_shexp", "model.layers.#.mlp.shared_experts"));
  return names;
}

int64_t required(const GgufFacts& facts, const char* key) {
  if (const auto value = facts.integer(key, 1, kMost)) return *value;
  fail(ErrorKind::bad_checkpoint, "{}: GGUF key {}{}: missing", facts.file.first.string(), facts.prefix, key);
}

void complete_llama4(const GgufFacts& facts, ConfigDraft& config) {
  complete_gguf_rope(facts, config);
  config.set("hidden_act", "silu");
  config.set("attention_bias", facts.has_tensor("blk.0.attn_q.bias"));
  config.set("intermediate_size_mlp", required(facts, "feed_forward_length"));
  config.set("intermediate_size", required(facts, "expert_feed_forward_length"));
  const auto experts = required(facts, "expert_count");
  const auto layers = config.integer("num_hidden_layers");
  config.set("num_local_experts", experts);
  std::vector<int64_t> sparse;
  for (int64_t i = 0; i < layers; ++i)
    if (facts.has_tensor(fmt::format("blk.{}.ffn_gate_inp.weight", i))) sparse.push_back(i);
  config.set("moe_layers", sparse);
  // The format has no keys for the rest; llama.cpp's graph tells the published models apart like this.
  config.set("use_qk_norm", experts != 128);
  if (facts.integer("attention.sliding_window", 0, kMost).value_or(1) != 0) return;
  config.set("attention_chunk_size", nullptr);
  config.set("no_rope_layers", std::vector<int64_t>(static_cast<size_t>(layers), 1));
}

void complete_dbrx(const GgufFacts& facts, ConfigDraft& config) {
  ConfigDraft attention, experts;
  attention.set("kv_n_heads", required(facts, "attention.head_count_kv"));
  attention.set("rope_theta", facts.number("rope.freq_base").value_or(10000.0));
  if (const auto clip = facts.number("attention.clamp_kqv"); clip && *clip > 0)
    attention.set("clip_qkv", *clip);
  experts.set("ffn_hidden_size", required(facts, "feed_forward_length"));
  experts.set("moe_num_experts", required(facts, "expert_count"));
  experts.set("moe_top_k", required(facts, "expert_used_count"));
  config.set("attn_config", attention);
  config.set("ffn_config", experts);
}

void complete_cohere(const GgufFacts& facts, ConfigDraft& config) {
  leave_out_gguf_prediction(facts, config);
  complete_gguf_rope(facts, config);
  config.erase("partial_rotary_factor");
  config.set("hidden_act", "silu");
  config.set("attention_bias", facts.has_tensor("blk.0.attn_q.bias"));
  config.set("prefix_dense_intermediate_size", required(facts, "feed_forward_length"));
  config.set("intermediate_size", required(facts, "expert_feed_forward_length"));
  // Dense layers rotate whatever they see.
  config.set("prefix_dense_sliding_window_pattern", 1);
  config.set("norm_topk_prob", facts.flag("expert_weights_norm").value_or(false));
  config.set("expert_selection_fn",
             facts.integer("expert_gating_func", 0, 4).value_or(2) == 1 ? "softmax" : "sigmoid");
  require_gguf_number(facts, config, "logit_scale", "logit_scale");
  // Flags cover the layers of next-token prediction too where the file has them.
  const auto all = facts.integer("block_count", 1, kMost).value_or(0);
  const auto sliding = facts.flags("attention.sliding_window_pattern", all);
  if (sliding.empty()) return set_gguf_layer_types(facts, config, 4);
  std::vector<std::string> types;
  for (int64_t i = 0; i < config.integer("num_hidden_layers"); ++i)
    types.emplace_back(sliding[static_cast<size_t>(i)] ? "sliding_attention" : "full_attention");
  config.set("layer_types", types);
}

}  // namespace

std::span<const GgufArch> gguf_experts_apart() {
  static const GgufArch archs[] = {
      {"llama4", "llama4_text", "Llama4ForCausalLM", llama4_keys(), llama4_names(), complete_llama4},
      {"dbrx", "dbrx", "DbrxForCausalLM", kDbrxKeys, dbrx_names(), complete_dbrx},
      {"cohere2moe", "cohere2_moe", "Cohere2MoeForCausalLM", cohere_keys(), cohere_names(), complete_cohere}};
  return archs;
}

}  // namespace mlxcel
