// Latent attention. deepseek2: that of DeepSeek-V2 and V3, Kimi K2, GLM-4.7-Flash (sigmoid experts with a
// correction) and Youtu (no experts); mistral4, whose queries grow with their position; kimi-linear and
// kimi-k3, where most layers are delta layers. Newer files hold kv_b as its two banks, which are what the
// parts ask for.
#include <array>
#include <string_view>

#include "base/error.h"
#include "checkpoint/rules/gguf_tables.h"

namespace mlxcel {

namespace {

using Kind = GgufKey::Kind;

constexpr GgufKey kKeys[] = {
    {"block_count", "num_hidden_layers", Kind::integer, true},
    {"context_length", "max_position_embeddings", Kind::integer, true},
    {"embedding_length", "hidden_size", Kind::integer, true},
    {"feed_forward_length", "intermediate_size", Kind::integer, true},
    {"attention.head_count", "num_attention_heads", Kind::integer, true},
    {"attention.q_lora_rank", "q_lora_rank"},
    {"attention.kv_lora_rank", "kv_lora_rank", Kind::integer, true},
    {"rope.dimension_count", "qk_rope_head_dim", Kind::integer, true},
    {"rope.freq_base", "rope_theta", Kind::number},
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps", Kind::number, true},
    {"expert_used_count", "num_experts_per_tok"},
    {"expert_feed_forward_length", "moe_intermediate_size"},
    {"expert_shared_count", "n_shared_experts"},
    {"leading_dense_block_count", "first_k_dense_replace"},
};

std::span<const GgufName> names() {
  static const auto rows =
      gguf_llama_names(std::vector<GgufName>{
                           {"blk.#.nextn.*", "model.layers.#.nextn.*"},
                           {"blk.#.attn_q_a.*", "model.layers.#.self_attn.q_a_proj.*"},
                           {"blk.#.attn_q_a_norm.weight", "model.layers.#.self_attn.q_a_layernorm.weight"},
                           {"blk.#.attn_q_b.weight", "model.layers.#.self_attn.q_b_proj.weight"},
                           {"blk.#.attn_kv_a_mqa.*", "model.layers.#.self_attn.kv_a_proj_with_mqa.*"},
                           {"blk.#.attn_kv_a_norm.weight", "model.layers.#.self_attn.kv_a_layernorm.weight"},
                           {"blk.#.attn_kv_b.weight", "model.layers.#.self_attn.kv_b_proj.weight"},
                           {"blk.#.attn_k_b.weight", "model.layers.#.self_attn.embed_q.weight"},
                           {"blk.#.attn_v_b.weight", "model.layers.#.self_attn.unembed_out.weight"},
                           {"blk.#.ffn_gate_inp.weight", "model.layers.#.mlp.gate.weight"},
                           {"blk.#.exp_probs_b.bias", "model.layers.#.mlp.gate.e_score_correction_bias"},
                       } +
                       gguf_unit("_exps", "model.layers.#.mlp.switch_mlp") +
                       gguf_unit("_shexp", "model.layers.#.mlp.shared_experts"));
  return rows;
}

/// With the small heads that choose keys.
std::span<const GgufName> chosen_names() {
  static const auto rows =
      std::vector<GgufName>{
          {"blk.#.indexer.k_norm.*", "model.layers.#.self_attn.indexer.k_norm.*"},
          {"blk.#.indexer.proj.weight", "model.layers.#.self_attn.indexer.weights_proj.weight"},
          {"blk.#.indexer.attn_k.weight", "model.layers.#.self_attn.indexer.wk.weight"},
          {"blk.#.indexer.attn_q_b.weight", "model.layers.#.self_attn.indexer.wq_b.weight"}} +
      names();
  return rows;
}

std::span<const GgufName> mistral4_names() {
  static const auto rows =
      std::vector<GgufName>{{"blk.#.ffn_gate_up_exps.weight", "model.layers.#.mlp.experts.gate_up_proj"}} +
      names();
  return rows;
}

std::span<const GgufName> minicpm3_names() {
  static const auto rows =
      std::vector<GgufName>{{"rope_factors_long.weight", ""}, {"rope_factors_short.weight", ""}} + names();
  return rows;
}

constexpr GgufKey kKimiKeys[] = {
    {"block_count", "num_hidden_layers", Kind::integer, true},
    {"context_length", "model_max_length", Kind::integer, true},
    {"embedding_length", "hidden_size", Kind::integer, true},
    {"feed_forward_length", "intermediate_size", Kind::integer, true},
    {"attention.head_count", "num_attention_heads", Kind::integer, true},
    {"attention.q_lora_rank", "q_lora_rank"},
    {"attention.kv_lora_rank", "kv_lora_rank", Kind::integer, true},
    {"rope.dimension_count", "qk_rope_head_dim", Kind::integer, true},
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps", Kind::number, true},
    {"expert_count", "num_experts", Kind::integer, true},
    {"expert_used_count", "num_experts_per_token", Kind::integer, true},
    {"expert_feed_forward_length", "moe_intermediate_size"},
    {"expert_shared_count", "num_shared_experts"},
    {"expert_group_count", "num_expert_group"},
    {"expert_group_used_count", "topk_group"},
    {"leading_dense_block_count", "first_k_dense_replace"},
};

std::span<const GgufName> kimi_names() {
  static const auto rows =
      std::vector<GgufName>{{"blk.#.ssm_conv1d_q.weight", "model.layers.#.self_attn.q_conv1d.weight"},
                            {"blk.#.ssm_conv1d_k.weight", "model.layers.#.self_attn.k_conv1d.weight"},
                            {"blk.#.ssm_conv1d_v.weight", "model.layers.#.self_attn.v_conv1d.weight"},
                            {"blk.#.ssm_f_a.weight", "model.layers.#.self_attn.f_a_proj.weight"},
                            {"blk.#.ssm_f_b.weight", "model.layers.#.self_attn.f_b_proj.weight"},
                            {"blk.#.ssm_g_a.weight", "model.layers.#.self_attn.g_a_proj.weight"},
                            {"blk.#.ssm_g_b.weight", "model.layers.#.self_attn.g_b_proj.weight"},
                            {"blk.#.ssm_beta.weight", "model.layers.#.self_attn.b_proj.weight"},
                            {"blk.#.ssm_norm.weight", "model.layers.#.self_attn.o_norm.weight"},
                            {"blk.#.ssm_dt.bias", "model.layers.#.self_attn.dt_bias"},
                            {"blk.#.ssm_a", "model.layers.#.self_attn.A_log", GgufChange::log_negated}} +
      names();
  return rows;
}

constexpr GgufKey kKimiK3Keys[] = {
    {"context_length", "max_position_embeddings"},
    {"attention.q_lora_rank", "q_lora_rank"},
    {"expert_latent_length", "routed_expert_hidden_size"},
    {"attn_res.block_size", "attn_res_block_size", Kind::integer, true},
    {"activation.situ_beta", "activation_situ_beta", Kind::number, true},
    {"activation.situ_linear_beta", "activation_situ_linear_beta", Kind::number},
};

std::span<const GgufKey> kimi_k3_keys() {
  static const auto keys = std::vector<GgufKey>(std::begin(kKimiK3Keys), std::end(kKimiK3Keys)) +
                           gguf_keys_without(kKimiKeys, std::array<std::string_view, 2>{
                                                            "context_length", "attention.q_lora_rank"});
  return keys;
}

/// The mixes of earlier blocks hold norm and projection as their product.
std::span<const GgufName> kimi_k3_names() {
  static const auto rows =
      std::vector<GgufName>{
          {"blk.#.ssm_g.weight", "model.layers.#.self_attn.g_proj.weight"},
          {"blk.#.attn_gate.weight", "model.layers.#.self_attn.g_proj.weight"},
          {"blk.#.attn_res_score.weight", "model.layers.#.self_attention_res_score.weight", GgufChange::row},
          {"blk.#.ffn_res_score.weight", "model.layers.#.mlp_res_score.weight", GgufChange::row},
          {"output_res_score.weight", "model.output_attn_res_score.weight", GgufChange::row},
          {"blk.#.exp_probs_b.bias", "model.layers.#.mlp.e_score_correction_bias"},
          {"blk.#.ffn_routed_down.weight", "model.layers.#.mlp.routed_expert_down_proj.weight"},
          {"blk.#.ffn_routed_up.weight", "model.layers.#.mlp.routed_expert_up_proj.weight"},
          {"blk.#.ffn_routed_norm.weight", "model.layers.#.mlp.routed_expert_norm.weight"}} +
      kimi_names();
  return rows;
}

/// Widths of a head; files without the _mla keys have them under the plain ones.
void set_head_widths(const GgufFacts& facts, ConfigDraft& config) {
  constexpr int64_t most = 1 << 16;
  const auto width_of = [&](const char* key, const char* older) {
    const auto found = facts.integer(key, 1, most);
    const auto width = found ? found : facts.integer(older, 1, most);
    if (!width)
      fail(ErrorKind::bad_checkpoint, "{}: GGUF key {}{}: missing", facts.file.first.string(), facts.prefix,
           key);
    return *width;
  };
  const auto key = width_of("attention.key_length_mla", "attention.key_length");
  const auto rotated = config.integer("qk_rope_head_dim");
  if (key <= rotated)
    fail(ErrorKind::bad_checkpoint, "{}: keys of width {}: expected more than the rotated {}",
         facts.file.first.string(), key, rotated);
  config.set("qk_nope_head_dim", key - rotated);
  config.set("v_head_dim", width_of("attention.value_length_mla", "attention.value_length"));
}

void set_scaling(const GgufFacts& facts, ConfigDraft& config, std::optional<double> beta = {}) {
  auto scaling = gguf_rope_scaling(facts, config.integer("max_position_embeddings"));
  if (scaling.empty() && beta)
    fail(ErrorKind::unsupported, "{}: {}attention.temperature_scale without yarn is not mapped",
         facts.file.first.string(), facts.prefix);
  if (scaling.empty()) return;
  if (beta) scaling.set("llama_4_scaling_beta", *beta);
  // A tenth of mscale_all_dim, which published models have equal to mscale.
  if (const auto log = facts.number("rope.scaling.yarn_log_multiplier"); log && *log > 0) {
    scaling.set("mscale", *log * 10.0);
    scaling.set("mscale_all_dim", *log * 10.0);
  }
  config.set("rope_scaling", scaling);
}

void set_groups(const GgufFacts& facts, ConfigDraft& config, int64_t experts, bool corrected) {
  // Older files leave the groups out; only the largest published model has them.
  const bool largest = corrected && experts == 256;
  const auto groups = facts.integer("expert_group_count", 0, experts).value_or(largest ? 8 : 1);
  const auto used = facts.integer("expert_group_used_count", 0, experts).value_or(largest ? 4 : 1);
  config.set("n_group", groups > 0 ? groups : int64_t{1});
  config.set("topk_group", used > 0 ? used : int64_t{1});
  if (!corrected) config.set("topk_method", groups > 1 ? "group_limited_greedy" : "greedy");
}

void complete_attention(const GgufFacts& facts, ConfigDraft& config) {
  leave_out_gguf_prediction(facts, config);
  set_head_widths(facts, config);
  config.set("num_key_value_heads", config.integer("num_attention_heads"));
  config.set("hidden_act", "silu");
  config.set("attention_bias", facts.has_tensor("blk.0.attn_kv_a_mqa.bias"));
  config.set("rope_interleave", true);
  if (!config.contains("rope_theta")) config.set("rope_theta", 10000.0);
}

void complete_deepseek2(const GgufFacts& facts, ConfigDraft& config) {
  complete_attention(facts, config);
  set_scaling(facts, config);
  const auto experts = facts.integer("expert_count", 0, 1 << 16).value_or(0);
  const auto layers = config.integer("num_hidden_layers");
  if (experts == 0) {
    config.set("model_type", "youtu_llm");
    config.set("architectures", std::vector<std::string>{"YoutuForCausalLM"});
    return;
  }
  const bool corrected = facts.has_tensor(fmt::format("blk.{}.exp_probs_b.bias", layers - 1)) ||
                         facts.integer("expert_gating_func", 0, 4).value_or(1) == 2;
  if (!corrected) {
    config.set("model_type", "deepseek_v2");
    config.set("architectures", std::vector<std::string>{"DeepseekV2ForCausalLM"});
  }
  config.set("n_routed_experts", experts);
  complete_gguf_experts(facts, config);
  set_groups(facts, config, experts, corrected);
  set_gguf_mlp_types(facts, config);
}

/// DeepSeek-V3.2 and GLM-5: sigmoid experts, keys chosen by an indexer.
void complete_chosen(const GgufFacts& facts, ConfigDraft& config) {
  complete_attention(facts, config);
  set_scaling(facts, config);
  const auto experts = facts.integer("expert_count", 1, 1 << 16);
  constexpr std::pair<const char*, const char*> index[] = {{"attention.indexer.head_count", "index_n_heads"},
                                                           {"attention.indexer.key_length", "index_head_dim"},
                                                           {"attention.indexer.top_k", "index_topk"}};
  for (const auto& [gguf, hf] : index) {
    const auto value = facts.integer(gguf, 1, 1 << 20);
    if (!value || !experts)
      fail(ErrorKind::bad_checkpoint, "{}: GGUF keys {}{} and expert_count: expected both",
           facts.file.first.string(), facts.prefix, gguf);
    config.set(hf, *value);
  }
  config.set("n_routed_experts", *experts);
  complete_gguf_experts(facts, config);
  set_groups(facts, config, *experts, true);
  set_gguf_mlp_types(facts, config);
}

void complete_glm_chosen(const GgufFacts& facts, ConfigDraft& config) {
  complete_chosen(facts, config);
  if (!facts.integer("expert_group_count", 0, 1 << 16)) {
    config.set("n_group", 1);
    config.set("topk_group", 1);
  }
  const auto blocks = facts.integer("block_count", 1, 4096).value_or(0);
  const auto own = facts.flags("attention.indexer.types", blocks);
  std::vector<std::string> types;
  for (int64_t i = 0; i < config.integer("num_hidden_layers"); ++i)
    types.emplace_back(own.empty() || own[static_cast<size_t>(i)] ? "full" : "shared");
  config.set("indexer_types", types);
}

/// The format has no keys for MiniCPM's scales: llama.cpp's graph has the published ones.
void complete_minicpm3(const GgufFacts& facts, ConfigDraft& config) {
  const auto key = facts.integer("attention.key_length", 1, 1 << 16);
  const auto rotated = config.integer("qk_rope_head_dim"), heads = config.integer("num_attention_heads");
  const auto shared = facts.file.tensors.find("blk.0.attn_kv_b.weight");
  if (!key || *key <= rotated || heads < 1 || shared == facts.file.tensors.end() ||
      shared->second.shape[0] <= heads * (*key - rotated))
    fail(ErrorKind::bad_checkpoint,
         "{}: GGUF key {}attention.key_length: expected more than the rotated {}, and blk.0.attn_kv_b.weight "
         "with rows for {} heads",
         facts.file.first.string(), facts.prefix, rotated, heads);
  config.set("qk_nope_head_dim", *key - rotated);
  config.set("v_head_dim", shared->second.shape[0] / heads - (*key - rotated));
  config.set("hidden_act", "silu");
  config.set("scale_emb", 12);
  config.set("scale_depth", 1.4);
  config.set("dim_model_base", 256);
  if (!facts.has_tensor("rope_factors_long.weight")) return;
  ConfigDraft scaling;
  scaling.set("rope_type", "longrope");
  scaling.set("short_factor", gguf_divisors(facts, "rope_factors_short.weight", rotated / 2));
  scaling.set("long_factor", gguf_divisors(facts, "rope_factors_long.weight", rotated / 2));
  scaling.set("original_max_position_embeddings",
              facts.integer("rope.scaling.original_context_length", 1, int64_t{1} << 30)
                  .value_or(config.integer("max_position_embeddings")));
  config.set("rope_scaling", scaling);
}

void complete_mistral4(const GgufFacts& facts, ConfigDraft& config) {
  complete_attention(facts, config);
  set_scaling(facts, config, facts.number("attention.temperature_scale"));
  const auto experts = facts.integer("expert_count", 1, 1 << 16);
  if (!experts)
    fail(ErrorKind::bad_checkpoint, "{}: GGUF key {}expert_count: missing", facts.file.first.string(),
         facts.prefix);
  config.set("n_routed_experts", *experts);
  complete_gguf_experts(facts, config);
  set_groups(facts, config, *experts, false);
}

/// The block of the delta layers, all but which layers they are.
ConfigDraft kimi_deltas(const GgufFacts& facts, const ConfigDraft& config, const char* key,
                        bool listed_full) {
  const auto layers = config.integer("num_hidden_layers");
  // Delta layers have no keys and values.
  const auto kept = facts.per_layer("attention.head_count_kv", layers, 1 << 16, 0);
  std::vector<int64_t> listed;
  int64_t heads = config.integer("num_attention_heads");
  for (int64_t i = 0; i < layers; ++i) {
    if ((kept[static_cast<size_t>(i)] > 0) == listed_full) listed.push_back(i + 1);
    const auto beta = facts.file.tensors.find(fmt::format("blk.{}.ssm_beta.weight", i));
    if (beta != facts.file.tensors.end()) heads = beta->second.shape[0];
  }
  ConfigDraft delta;
  const auto width = facts.integer("kda.head_dim", 1, 1 << 16),
             taps = facts.integer("ssm.conv_kernel", 2, 64);
  if (!width || !taps)
    fail(ErrorKind::bad_checkpoint, "{}: GGUF keys {}kda.head_dim and {}ssm.conv_kernel: missing",
         facts.file.first.string(), facts.prefix, facts.prefix);
  delta.set("head_dim", *width);
  delta.set("short_conv_kernel_size", *taps);
  delta.set("num_heads", heads);
  delta.set(key, listed);
  return delta;
}

void complete_kimi(const GgufFacts& facts, ConfigDraft& config) {
  set_head_widths(facts, config);
  complete_gguf_experts(facts, config);
  config.set("hidden_act", "silu");
  config.set("moe_renormalize", true);  // fixed in llama.cpp's graph
  config.set("linear_attn_config", kimi_deltas(facts, config, "full_attn_layers", true));
}

void complete_kimi_k3(const GgufFacts& facts, ConfigDraft& config) {
  set_head_widths(facts, config);
  complete_gguf_experts(facts, config);
  config.set("hidden_act", "situ");
  config.set("moe_renormalize", facts.flag("expert_weights_norm").value_or(false));
  auto delta = kimi_deltas(facts, config, "kda_layers", false);
  if (const auto lowest = facts.number("kda.gate_lower_bound")) delta.set("gate_lower_bound", *lowest);
  bool whole = false, gated = false, normed = false;
  for (int64_t i = 0; i < config.integer("num_hidden_layers"); ++i) {
    whole = whole || facts.has_tensor(fmt::format("blk.{}.ssm_g.weight", i));
    gated = gated || facts.has_tensor(fmt::format("blk.{}.attn_gate.weight", i));
    normed = normed || facts.has_tensor(fmt::format("blk.{}.ffn_routed_norm.weight", i));
  }
  delta.set("use_full_rank_gate", whole);
  config.set("linear_attn_config", delta);
  config.set("mla_use_nope", true);
  config.set("mla_use_output_gate", gated);
  config.set("latent_moe_use_norm", normed);
}

}  // namespace

std::span<const GgufArch> gguf_latent() {
  static const GgufArch archs[] = {
      {"deepseek2", "deepseek_v3", "DeepseekV3ForCausalLM", kKeys, names(), complete_deepseek2},
      {"deepseek32", "deepseek_v32", "DeepseekV32ForCausalLM", kKeys, chosen_names(), complete_chosen},
      {"glm-dsa", "glm_moe_dsa", "GlmMoeDsaForCausalLM", kKeys, chosen_names(), complete_glm_chosen},
      {"minicpm3", "minicpm3", "MiniCPM3ForCausalLM", kKeys, minicpm3_names(), complete_minicpm3},
      {"mistral4", "mistral4", "Mistral4ForCausalLM", kKeys, mistral4_names(), complete_mistral4},
      {"kimi-linear", "kimi_linear", "KimiLinearForCausalLM", kKimiKeys, kimi_names(), complete_kimi},
      {"kimi-k3", "kimi_k3", "KimiK3ForConditionalGeneration", kimi_k3_keys(), kimi_k3_names(),
       complete_kimi_k3}};
  return archs;
}

}  // namespace mlxcel
