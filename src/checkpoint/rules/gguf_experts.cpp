// Families with experts whose attention is Llama's kind: qwen2moe, deepseek, deepseek2-ocr, dots1, glm4moe,
// ernie4_5-moe, exaone-moe, gpt-oss, bailingmoe, bailingmoe2. Experts arrive stacked, under the names that
// parts ask for.
#include "base/error.h"
#include "checkpoint/rules/gguf_tables.h"

namespace mlxcel {

namespace {

using Kind = GgufKey::Kind;

std::vector<GgufKey> with_decoder_keys(std::vector<GgufKey> own) {
  return std::move(own) + gguf_decoder_keys();
}

constexpr GgufKey kUsed = {"expert_used_count", "num_experts_per_tok", Kind::integer, true};
constexpr GgufKey kWidth = {"expert_feed_forward_length", "moe_intermediate_size"};

/// Keys of DeepSeek's line.
std::span<const GgufKey> grouped_keys() {
  static const auto keys = with_decoder_keys({{"expert_count", "n_routed_experts", Kind::integer, true},
                                              kUsed,
                                              kWidth,
                                              {"expert_shared_count", "n_shared_experts"},
                                              {"expert_group_count", "n_group"},
                                              {"expert_group_used_count", "topk_group"},
                                              {"leading_dense_block_count", "first_k_dense_replace"}});
  return keys;
}

std::span<const GgufKey> qwen2moe_keys() {
  static const auto keys =
      with_decoder_keys({{"expert_count", "num_experts", Kind::integer, true},
                         kUsed,
                         kWidth,
                         {"expert_shared_feed_forward_length", "shared_expert_intermediate_size"}});
  return keys;
}

std::span<const GgufKey> ernie_keys() {
  static const auto keys = with_decoder_keys({{"expert_count", "moe_num_experts", Kind::integer, true},
                                              {"expert_used_count", "moe_k", Kind::integer, true},
                                              kWidth,
                                              {"expert_shared_count", "moe_num_shared_experts"},
                                              {"leading_dense_block_count", "moe_layer_start_index"},
                                              {"interleave_moe_layer_step", "moe_layer_interval"}});
  return keys;
}

std::span<const GgufKey> gpt_oss_keys() {
  static const auto keys = with_decoder_keys({{"expert_count", "num_local_experts", Kind::integer, true},
                                              kUsed,
                                              {"expert_feed_forward_length", "intermediate_size"},
                                              {"attention.sliding_window", "sliding_window"}});
  return keys;
}

std::span<const GgufKey> bailing_keys() {
  static const auto keys = with_decoder_keys({{"expert_count", "num_experts", Kind::integer, true},
                                              kUsed,
                                              kWidth,
                                              {"expert_shared_count", "num_shared_experts"},
                                              {"expert_group_count", "n_group"},
                                              {"expert_group_used_count", "topk_group"},
                                              {"leading_dense_block_count", "first_k_dense_replace"}});
  return keys;
}

std::vector<GgufName> with_expert_rows(std::vector<GgufName> own, bool permuted = false) {
  const std::vector<GgufName> rows = {
      {"blk.#.nextn.*", "model.layers.#.nextn.*"},
      {"blk.#.ffn_gate_inp.*", "model.layers.#.mlp.gate.*"},
      {"blk.#.exp_probs_b.bias", "model.layers.#.mlp.gate.e_score_correction_bias"},
      {"blk.#.post_attention_norm.weight", "model.layers.#.post_attention_layernorm.weight"}};
  return gguf_llama_names(std::move(own) + rows + gguf_unit("_exps", "model.layers.#.mlp.switch_mlp") +
                              gguf_unit("_shexp", "model.layers.#.mlp.shared_experts"),
                          permuted);
}

std::span<const GgufName> plain_names() {
  static const auto names = with_expert_rows({});
  return names;
}

std::span<const GgufName> permuted_names() {
  static const auto names = with_expert_rows({}, true);
  return names;
}

std::span<const GgufName> qwen2moe_names() {
  static const auto names = with_expert_rows(
      std::vector<GgufName>{{"blk.#.ffn_gate_inp_shexp.weight",
                             "model.layers.#.mlp.shared_expert_gate.weight", GgufChange::row}} +
      gguf_unit("_shexp", "model.layers.#.mlp.shared_expert"));
  return names;
}

std::span<const GgufName> ernie_names() {
  static const auto names = with_expert_rows(
      {{"blk.#.exp_probs_b.bias", "model.layers.#.mlp.moe_statics.e_score_correction_bias"}});
  return names;
}

std::span<const GgufName> gpt_oss_names() {
  static const auto names =
      with_expert_rows(std::vector<GgufName>{{"blk.#.attn_sinks.weight", "model.layers.#.self_attn.sinks"},
                                             {"blk.#.ffn_gate_inp.*", "model.layers.#.mlp.router.*"}} +
                       gguf_unit("_exps", "model.layers.#.mlp.experts"));
  return names;
}

std::span<const GgufName> bailing_names() {
  static const auto names =
      with_expert_rows({{"token_embd.weight", "model.word_embeddings.weight"},
                        {"blk.#.attn_qkv.*", "model.layers.#.attention.query_key_value.*"},
                        {"blk.#.attn_output.*", "model.layers.#.attention.dense.*"},
                        {"blk.#.attn_q_norm.weight", "model.layers.#.attention.query_layernorm.weight"},
                        {"blk.#.attn_k_norm.weight", "model.layers.#.attention.key_layernorm.weight"},
                        {"blk.#.exp_probs_b.bias", "model.layers.#.mlp.gate.expert_bias"}});
  return names;
}

/// The first generation: q, k and v apart, rows of q and k stored for adjacent-pair rotation.
std::span<const GgufName> old_bailing_names() {
  static const auto names = with_expert_rows(
      {{"token_embd.weight", "model.word_embeddings.weight"},
       {"blk.#.attn_q.weight", "model.layers.#.attention.q_proj.weight", GgufChange::unpermute_q},
       {"blk.#.attn_k.weight", "model.layers.#.attention.k_proj.weight", GgufChange::unpermute_k},
       {"blk.#.attn_v.weight", "model.layers.#.attention.v_proj.weight"},
       {"blk.#.attn_output.weight", "model.layers.#.attention.dense.weight"}});
  return names;
}

void complete_grouped(const GgufFacts& facts, ConfigDraft& config) {
  leave_out_gguf_prediction(facts, config);
  complete_gguf_rope(facts, config);
  complete_gguf_experts(facts, config);
  config.set("hidden_act", "silu");
  config.set("attention_bias", facts.has_tensor("blk.0.attn_q.bias"));
  set_gguf_mlp_types(facts, config);
}

void complete_qwen2moe(const GgufFacts& facts, ConfigDraft& config) {
  complete_gguf_rope(facts, config);
  complete_gguf_experts(facts, config);
  config.set("hidden_act", "silu");
  config.set("norm_topk_prob", false);  // fixed for this architecture in llama.cpp's graph
  config.set("qkv_bias", facts.has_tensor("blk.0.attn_q.bias"));
  config.set("decoder_sparse_step", 1);
  config.set("mlp_only_layers", std::vector<int64_t>{});
  config.set("use_sliding_window", false);
  if (config.contains("shared_expert_intermediate_size")) return;
  const auto shared = facts.file.tensors.find("blk.0.ffn_up_shexp.weight");
  if (shared == facts.file.tensors.end())
    fail(ErrorKind::bad_checkpoint, "{}: blk.0.ffn_up_shexp.weight: missing", facts.file.first.string());
  config.set("shared_expert_intermediate_size", shared->second.shape[0]);
}

void complete_deepseek(const GgufFacts& facts, ConfigDraft& config) {
  complete_grouped(facts, config);
  config.set("norm_topk_prob", false);  // fixed in llama.cpp's graph
}

/// DeepSeek-OCR's text: no latent attention.
void complete_ocr(const GgufFacts& facts, ConfigDraft& config) {
  complete_grouped(facts, config);
  config.set("use_mla", false);
  config.set("topk_method", "greedy");
  config.set("partial_rotary_factor", 1.0);  // the key holds the width of latent attention's, which is none
}

void complete_glm4moe(const GgufFacts& facts, ConfigDraft& config) {
  complete_grouped(facts, config);
  config.set("use_qk_norm", facts.has_tensor("blk.0.attn_q_norm.weight"));
  if (!config.contains("partial_rotary_factor")) config.set("partial_rotary_factor", 1.0);
}

void complete_exaone_moe(const GgufFacts& facts, ConfigDraft& config) {
  complete_grouped(facts, config);
  if (const auto window = facts.integer("attention.sliding_window", 0, int64_t{1} << 30);
      window && *window > 0) {
    config.set("sliding_window", *window);
    set_gguf_layer_types(facts, config, 4);
  }
}

void complete_ernie(const GgufFacts& facts, ConfigDraft& config) {
  complete_gguf_rope(facts, config);
  complete_gguf_experts(facts, config);
  config.set("hidden_act", "silu");
  config.set("use_bias", facts.has_tensor("blk.0.attn_q.bias"));
  // The format has no key for the last layer with experts.
  int64_t last = -1;
  for (int64_t i = 0; i < config.integer("num_hidden_layers"); ++i)
    if (facts.has_tensor(fmt::format("blk.{}.ffn_gate_inp.weight", i))) last = i;
  if (last < 0) fail(ErrorKind::bad_checkpoint, "{}: no layer has experts", facts.file.first.string());
  config.set("moe_layer_end_index", last);
}

void complete_gpt_oss(const GgufFacts& facts, ConfigDraft& config) {
  complete_gguf_rope(facts, config);
  config.set("attention_bias", facts.has_tensor("blk.0.attn_q.bias"));
  auto scaling = gguf_rope_scaling(facts, config.integer("max_position_embeddings"));
  if (scaling.empty()) return;
  scaling.set("truncate", false);  // as published; the format has no key
  config.set("rope_scaling", scaling);
}

void complete_lings(const GgufFacts& facts, ConfigDraft& config, int64_t scores) {
  leave_out_gguf_prediction(facts, config);
  complete_gguf_rope(facts, config);
  complete_gguf_experts(facts, config);
  config.set("hidden_act", "silu");
  config.set("use_qk_norm", facts.has_tensor("blk.0.attn_q_norm.weight"));
  config.set("use_qkv_bias", facts.has_tensor("blk.0.attn_qkv.bias"));
  config.set("use_bias", facts.has_tensor("blk.0.attn_output.bias"));
  if (!config.contains("partial_rotary_factor")) config.set("partial_rotary_factor", 1.0);
  const auto dense = config.contains("first_k_dense_replace") ? config.integer("first_k_dense_replace") : 0;
  config.set("moe_router_enable_expert_bias",
             facts.has_tensor(fmt::format("blk.{}.exp_probs_b.bias", dense)));
  config.set("score_function",
             facts.integer("expert_gating_func", 1, 4).value_or(scores) == 1 ? "softmax" : "sigmoid");
  // The file's key holds the width of one shared expert or of all together: the tensor tells.
  const auto shared = facts.file.tensors.find(fmt::format("blk.{}.ffn_up_shexp.weight", dense));
  const auto count = config.contains("num_shared_experts") ? config.integer("num_shared_experts") : 0;
  config.set("moe_router_enable_shared_expert", shared != facts.file.tensors.end() && count > 0);
  if (shared != facts.file.tensors.end() && count > 0)
    config.set("moe_shared_expert_intermediate_size", shared->second.shape[0] / count);
}

void complete_bailing(const GgufFacts& facts, ConfigDraft& config) { complete_lings(facts, config, 2); }
void complete_old_bailing(const GgufFacts& facts, ConfigDraft& config) { complete_lings(facts, config, 1); }

}  // namespace

std::span<const GgufArch> gguf_experts() {
  static const GgufArch archs[] = {
      {"qwen2moe", "qwen2_moe", "Qwen2MoeForCausalLM", qwen2moe_keys(), qwen2moe_names(), complete_qwen2moe},
      {"deepseek", "deepseek", "DeepseekForCausalLM", grouped_keys(), permuted_names(), complete_deepseek},
      {"deepseek2-ocr", "deepseek_v2", "DeepseekV2ForCausalLM", grouped_keys(), plain_names(), complete_ocr},
      {"dots1", "dots1", "Dots1ForCausalLM", grouped_keys(), plain_names(), complete_grouped},
      {"glm4moe", "glm4_moe", "Glm4MoeForCausalLM", grouped_keys(), plain_names(), complete_glm4moe},
      {"exaone-moe", "exaone_moe", "ExaoneMoeForCausalLM", grouped_keys(), plain_names(),
       complete_exaone_moe},
      {"ernie4_5-moe", "ernie4_5_moe", "Ernie4_5_MoeForCausalLM", ernie_keys(), ernie_names(),
       complete_ernie},
      {"gpt-oss", "gpt_oss", "GptOssForCausalLM", gpt_oss_keys(), gpt_oss_names(), complete_gpt_oss},
      {"bailingmoe", "bailing_moe", "BailingMoeForCausalLM", bailing_keys(), old_bailing_names(),
       complete_old_bailing},
      {"bailingmoe2", "bailing_moe", "BailingMoeV2ForCausalLM", bailing_keys(), bailing_names(),
       complete_bailing}};
  return archs;
}

}  // namespace mlxcel
