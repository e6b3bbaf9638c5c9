// qwen3next, qwen35, qwen35moe: gated delta layers, every few a gated full attention. qwen35's value heads
// lie so that neighbours belong to different key heads (linear_value_heads_tiled); norms hold the +1 already,
// which the convolution's flat shape tells the rules.
#include "base/error.h"
#include "checkpoint/rules/gguf_tables.h"

namespace mlxcel {

namespace {

using Kind = GgufKey::Kind;

constexpr GgufKey kOwnKeys[] = {
    {"ssm.conv_kernel", "linear_conv_kernel_dim", Kind::integer, true},
    {"ssm.state_size", "linear_key_head_dim", Kind::integer, true},
    {"ssm.group_count", "linear_num_key_heads", Kind::integer, true},
    {"ssm.time_step_rank", "linear_num_value_heads", Kind::integer, true},
    {"expert_count", "num_experts"},
    {"expert_used_count", "num_experts_per_tok"},
    {"expert_feed_forward_length", "moe_intermediate_size"},
    {"expert_shared_feed_forward_length", "shared_expert_intermediate_size"},
};

std::span<const GgufKey> keys() {
  static const auto all =
      std::vector<GgufKey>(std::begin(kOwnKeys), std::end(kOwnKeys)) + gguf_decoder_keys();
  return all;
}

std::span<const GgufName> names() {
  static const auto rows = gguf_llama_names(
      std::vector<GgufName>{
          {"blk.#.nextn.*", "model.layers.#.nextn.*"},
          {"blk.#.post_attention_norm.weight", "model.layers.#.post_attention_layernorm.weight"},
          {"blk.#.attn_qkv.weight", "model.layers.#.linear_attn.in_proj_qkv.weight"},
          {"blk.#.attn_gate.weight", "model.layers.#.linear_attn.in_proj_z.weight"},
          {"blk.#.ssm_in.weight", "model.layers.#.linear_attn.in_proj_qkvz.weight"},
          {"blk.#.ssm_ba.weight", "model.layers.#.linear_attn.in_proj_ba.weight"},
          {"blk.#.ssm_beta.weight", "model.layers.#.linear_attn.in_proj_b.weight"},
          {"blk.#.ssm_alpha.weight", "model.layers.#.linear_attn.in_proj_a.weight"},
          {"blk.#.ssm_conv1d.weight", "model.layers.#.linear_attn.conv1d.weight"},
          {"blk.#.ssm_dt.bias", "model.layers.#.linear_attn.dt_bias"},
          {"blk.#.ssm_a", "model.layers.#.linear_attn.A_log", GgufChange::log_negated},
          {"blk.#.ssm_norm.weight", "model.layers.#.linear_attn.norm.weight"},
          {"blk.#.ssm_out.weight", "model.layers.#.linear_attn.out_proj.weight"},
          {"blk.#.ffn_gate_inp.weight", "model.layers.#.mlp.gate.weight"},
          {"blk.#.ffn_gate_inp_shexp.weight", "model.layers.#.mlp.shared_expert_gate.weight",
           GgufChange::row},
      } +
      gguf_unit("_exps", "model.layers.#.mlp.switch_mlp") +
      gguf_unit("_shexp", "model.layers.#.mlp.shared_expert"));
  return rows;
}

void complete(const GgufFacts& facts, ConfigDraft& config) {
  leave_out_gguf_prediction(facts, config);
  complete_gguf_rope(facts, config);
  const auto inner = facts.integer("ssm.inner_size", 1, int64_t{1} << 30);
  const auto heads = config.integer("linear_num_value_heads");
  if (!inner || heads < 1 || *inner % heads != 0)
    fail(ErrorKind::bad_checkpoint, "{}: GGUF key {}ssm.inner_size: expected a multiple of {} heads",
         facts.file.first.string(), facts.prefix, heads);
  config.set("linear_value_head_dim", *inner / heads);
  config.set("hidden_act", "silu");
  config.set("attention_bias", false);
  if (!config.contains("partial_rotary_factor")) config.set("partial_rotary_factor", 1.0);
  std::vector<std::string> kinds;
  const auto layers = config.integer("num_hidden_layers");
  if (layers < 1 || layers > 4096)
    fail(ErrorKind::bad_checkpoint, "{}: {} layers: expected 1 to 4096", facts.file.first.string(), layers);
  for (int64_t i = 0; i < layers; ++i)
    kinds.push_back(facts.has_tensor(fmt::format("blk.{}.ssm_out.weight", i)) ? "linear_attention"
                                                                              : "full_attention");
  config.set("layer_types", kinds);
  if (!config.contains("num_experts")) config.set("num_experts", 0);
  config.set("norm_topk_prob", true);
  config.set("decoder_sparse_step", 1);
  config.set("mlp_only_layers", std::vector<int64_t>{});
}

void complete_tiled(const GgufFacts& facts, ConfigDraft& config) {
  complete(facts, config);
  config.set("linear_value_heads_tiled", true);
}

}  // namespace

std::span<const GgufArch> gguf_deltas() {
  static const GgufArch archs[] = {
      {"qwen3next", "qwen3_next", "Qwen3NextForCausalLM", keys(), names(), complete},
      {"qwen35", "qwen3_5_text", "Qwen3_5ForCausalLM", keys(), names(), complete_tiled},
      {"qwen35moe", "qwen3_5_moe_text", "Qwen3_5MoeForCausalLM", keys(), names(), complete_tiled}};
  return archs;
}

}  // namespace mlxcel
