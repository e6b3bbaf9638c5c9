// Families with selective scans: mamba (and Falcon-Mamba), jamba, plamo2, falcon-h1, granitehybrid,
// nemotron_h and its sparse kin. Which kind a layer is follows from its tensors. ssm_a holds -exp(A_log).
#include <algorithm>

#include "base/error.h"
#include "checkpoint/rules/gguf_tables.h"

namespace mlxcel {

namespace {

using Kind = GgufKey::Kind;

constexpr int64_t kMost = int64_t{1} << 30;

std::vector<GgufKey> with_sizes(std::vector<GgufKey> own) {
  own.insert(own.end(), {{"block_count", "num_hidden_layers", Kind::integer, true},
                         {"embedding_length", "hidden_size", Kind::integer, true}});
  return own;
}

std::vector<GgufKey> with_attention(std::vector<GgufKey> own) {
  own.insert(own.end(), {{"context_length", "max_position_embeddings", Kind::integer, true},
                         {"attention.head_count", "num_attention_heads", Kind::integer, true}});
  return with_sizes(std::move(own));
}

std::span<const GgufKey> mamba_keys() {
  static const auto keys =
      with_sizes({{"ssm.conv_kernel", "conv_kernel", Kind::integer, true},
                  {"ssm.state_size", "state_size", Kind::integer, true},
                  {"ssm.time_step_rank", "time_step_rank", Kind::integer, true},
                  {"attention.layer_norm_rms_epsilon", "layer_norm_epsilon", Kind::number, true}});
  return keys;
}

std::span<const GgufKey> jamba_keys() {
  static const auto keys =
      with_attention({{"feed_forward_length", "intermediate_size", Kind::integer, true},
                      {"ssm.conv_kernel", "mamba_d_conv", Kind::integer, true},
                      {"ssm.state_size", "mamba_d_state", Kind::integer, true},
                      {"ssm.time_step_rank", "mamba_dt_rank", Kind::integer, true},
                      {"expert_count", "num_experts"},
                      {"expert_used_count", "num_experts_per_tok"},
                      {"attention.layer_norm_rms_epsilon", "rms_norm_eps", Kind::number, true}});
  return keys;
}

/// Mamba 2 as Falcon-H1 and Granite 4 spell it.
std::vector<GgufKey> with_mamba2(std::vector<GgufKey> own) {
  own.insert(own.end(), {{"feed_forward_length", "intermediate_size", Kind::integer, true},
                         {"ssm.conv_kernel", "mamba_d_conv", Kind::integer, true},
                         {"ssm.state_size", "mamba_d_state", Kind::integer, true},
                         {"ssm.group_count", "mamba_n_groups", Kind::integer, true},
                         {"ssm.time_step_rank", "mamba_n_heads", Kind::integer, true},
                         {"rope.freq_base", "rope_theta", Kind::number},
                         {"attention.layer_norm_rms_epsilon", "rms_norm_eps", Kind::number, true}});
  return with_attention(std::move(own));
}

std::span<const GgufKey> falcon_h1_keys() {
  static const auto keys =
      with_mamba2({{"attention.head_count_kv", "num_key_value_heads", Kind::integer, true},
                   {"attention.key_length", "head_dim"},
                   {"ssm.inner_size", "mamba_d_ssm", Kind::integer, true}});
  return keys;
}

std::span<const GgufKey> granite_keys() {
  static const auto keys = with_mamba2({{"expert_count", "num_local_experts"},
                                        {"expert_used_count", "num_experts_per_tok"},
                                        {"expert_shared_feed_forward_length", "shared_intermediate_size"}});
  return keys;
}

std::span<const GgufKey> nemotron_keys() {
  static const auto keys =
      with_attention({{"attention.key_length", "head_dim", Kind::integer, true},
                      {"ssm.conv_kernel", "conv_kernel", Kind::integer, true},
                      {"ssm.state_size", "ssm_state_size", Kind::integer, true},
                      {"ssm.group_count", "n_groups", Kind::integer, true},
                      {"ssm.time_step_rank", "mamba_num_heads", Kind::integer, true},
                      {"attention.layer_norm_rms_epsilon", "layer_norm_epsilon", Kind::number},
                      {"attention.layer_norm_epsilon", "layer_norm_epsilon", Kind::number}});
  return keys;
}

// The scan's tensors, by where a family keeps them.
constexpr GgufName kMixerRows[] = {
    {"blk.#.ssm_in.*", "backbone.layers.#.mixer.in_proj.*"},
    {"blk.#.ssm_conv1d.weight", "backbone.layers.#.mixer.conv1d.weight", GgufChange::convolution},
    {"blk.#.ssm_conv1d.bias", "backbone.layers.#.mixer.conv1d.bias"},
    {"blk.#.ssm_x.weight", "backbone.layers.#.mixer.x_proj.weight"},
    {"blk.#.ssm_dt.weight", "backbone.layers.#.mixer.dt_proj.weight"},
    {"blk.#.ssm_dt_norm.weight", "backbone.layers.#.mixer.dt_layernorm.weight"},
    {"blk.#.ssm_b_norm.weight", "backbone.layers.#.mixer.b_layernorm.weight"},
    {"blk.#.ssm_c_norm.weight", "backbone.layers.#.mixer.c_layernorm.weight"},
    {"blk.#.ssm_a", "backbone.layers.#.mixer.A_log", GgufChange::log_negated},
    {"blk.#.ssm_d", "backbone.layers.#.mixer.D", GgufChange::flatten},
    {"blk.#.ssm_norm.weight", "backbone.layers.#.mixer.norm.weight", GgufChange::flatten},
    {"blk.#.ssm_out.*", "backbone.layers.#.mixer.out_proj.*"},
};

constexpr GgufName kMambaRows[] = {
    {"blk.#.ssm_in.*", "model.layers.#.mamba.in_proj.*"},
    {"blk.#.ssm_conv1d.weight", "model.layers.#.mamba.conv1d.weight", GgufChange::convolution},
    {"blk.#.ssm_conv1d.bias", "model.layers.#.mamba.conv1d.bias"},
    {"blk.#.ssm_x.weight", "model.layers.#.mamba.x_proj.weight"},
    {"blk.#.ssm_dt.weight", "model.layers.#.mamba.dt_proj.weight"},
    {"blk.#.ssm_dt_norm.weight", "model.layers.#.mamba.dt_layernorm.weight"},
    {"blk.#.ssm_b_norm.weight", "model.layers.#.mamba.b_layernorm.weight"},
    {"blk.#.ssm_c_norm.weight", "model.layers.#.mamba.c_layernorm.weight"},
    {"blk.#.ssm_a", "model.layers.#.mamba.A_log", GgufChange::log_negated},
    {"blk.#.ssm_d", "model.layers.#.mamba.D", GgufChange::flatten},
    {"blk.#.ssm_norm.weight", "model.layers.#.mamba.norm.weight", GgufChange::flatten},
    {"blk.#.ssm_out.*", "model.layers.#.mamba.out_proj.*"},
};

std::span<const GgufName> mamba_names() {
  static const auto names =
      std::vector<GgufName>{{"token_embd.weight", "backbone.embeddings.weight"},
                            {"output_norm.weight", "backbone.norm_f.weight"},
                            {"output.weight", "lm_head.weight"},
                            {"blk.#.ssm_dt.bias", "backbone.layers.#.mixer.dt_proj.bias"},
                            {"blk.#.attn_norm.weight", "backbone.layers.#.norm.weight"}} +
      kMixerRows;
  return names;
}

std::span<const GgufName> jamba_names() {
  static const auto names = gguf_llama_names(
      std::vector<GgufName>{{"output_norm.weight", "model.final_layernorm.weight"},
                            {"blk.#.ssm_dt.bias", "model.layers.#.mamba.dt_proj.bias"},
                            {"blk.#.ffn_norm.weight", "model.layers.#.pre_ff_layernorm.weight"},
                            {"blk.#.ffn_gate_inp.weight", "model.layers.#.feed_forward.router.weight"}} +
      kMambaRows + gguf_unit("_exps", "model.layers.#.feed_forward.switch_mlp") +
      gguf_unit("", "model.layers.#.feed_forward"));
  return names;
}

std::span<const GgufName> falcon_h1_names() {
  static const auto names = gguf_llama_names(
      std::vector<GgufName>{{"output_norm.weight", "model.final_layernorm.weight"},
                            {"blk.#.ssm_dt.bias", "model.layers.#.mamba.dt_bias"},
                            {"blk.#.ffn_norm", "model.layers.#.pre_ff_layernorm.weight"},
                            {"blk.#.ffn_norm.weight", "model.layers.#.pre_ff_layernorm.weight"}} +
      kMambaRows + gguf_unit("", "model.layers.#.feed_forward"));
  return names;
}

std::span<const GgufName> granite_names() {
  static const auto names = gguf_llama_names(
      std::vector<GgufName>{
          {"blk.#.ssm_dt.bias", "model.layers.#.mamba.dt_bias"},
          {"blk.#.ffn_gate_inp.weight", "model.layers.#.block_sparse_moe.router.layer.weight"}} +
          kMambaRows + gguf_unit("_exps", "model.layers.#.block_sparse_moe.switch_mlp") +
          gguf_unit("_shexp", "model.layers.#.shared_mlp") + gguf_unit("", "model.layers.#.shared_mlp"),
      true);
  return names;
}

std::span<const GgufName> nemotron_names() {
  static const auto names =
      std::vector<GgufName>{
          {"token_embd.weight", "backbone.embeddings.weight"},
          {"output_norm.weight", "backbone.norm_f.weight"},
          {"output.weight", "lm_head.weight"},
          {"blk.#.attn_norm.weight", "backbone.layers.#.norm.weight"},
          {"blk.#.ssm_dt.bias", "backbone.layers.#.mixer.dt_bias"},
          {"blk.#.attn_q.weight", "backbone.layers.#.mixer.q_proj.weight"},
          {"blk.#.attn_k.weight", "backbone.layers.#.mixer.k_proj.weight"},
          {"blk.#.attn_v.weight", "backbone.layers.#.mixer.v_proj.weight"},
          {"blk.#.attn_output.weight", "backbone.layers.#.mixer.o_proj.weight"},
          {"blk.#.ffn_up.*", "backbone.layers.#.mixer.up_proj.*"},
          {"blk.#.ffn_down.*", "backbone.layers.#.mixer.down_proj.*"},
          {"blk.#.ffn_gate_inp.weight", "backbone.layers.#.mixer.gate.weight"},
          {"blk.#.exp_probs_b.bias", "backbone.layers.#.mixer.gate.e_score_correction_bias"},
          {"blk.#.ffn_latent_down.*", "backbone.layers.#.mixer.fc1_latent_proj.*"},
          {"blk.#.ffn_latent_up.*", "backbone.layers.#.mixer.fc2_latent_proj.*"},
          {"blk.#.ffn_up_exps.weight", "backbone.layers.#.mixer.switch_mlp.up_proj.weight"},
          {"blk.#.ffn_down_exps.weight", "backbone.layers.#.mixer.switch_mlp.down_proj.weight"},
          {"blk.#.ffn_up_shexp.*", "backbone.layers.#.mixer.shared_experts.up_proj.*"},
          {"blk.#.ffn_down_shexp.*", "backbone.layers.#.mixer.shared_experts.down_proj.*"}} +
      kMixerRows;
  return names;
}

/// A multiple of the model's width.
int64_t expansion(const GgufFacts& facts, const ConfigDraft& config) {
  const auto inner = facts.integer("ssm.inner_size", 1, kMost);
  const auto hidden = config.integer("hidden_size");
  if (!inner || hidden < 1 || *inner % hidden != 0)
    fail(ErrorKind::bad_checkpoint, "{}: GGUF key {}ssm.inner_size: expected a multiple of {}",
         facts.file.first.string(), facts.prefix, hidden);
  return *inner / hidden;
}

/// The width of Mamba 2's heads.
int64_t scan_head(const GgufFacts& facts, const ConfigDraft& config, const char* heads_key) {
  const auto inner = facts.integer("ssm.inner_size", 1, kMost);
  const auto heads = config.integer(heads_key);
  if (!inner || heads < 1 || *inner % heads != 0)
    fail(ErrorKind::bad_checkpoint, "{}: GGUF key {}ssm.inner_size: expected a multiple of {} heads",
         facts.file.first.string(), facts.prefix, heads);
  return *inner / heads;
}

std::vector<bool> layers_with(const GgufFacts& facts, const ConfigDraft& config, const char* tensor) {
  const auto layers = config.integer("num_hidden_layers");
  if (layers < 1 || layers > 4096)
    fail(ErrorKind::bad_checkpoint, "{}: {} layers: expected 1 to 4096", facts.file.first.string(), layers);
  std::vector<bool> list;
  for (int64_t i = 0; i < layers; ++i) list.push_back(facts.has_tensor(fmt::format("blk.{}.{}", i, tensor)));
  return list;
}

bool any_layer_has(const GgufFacts& facts, const ConfigDraft& config, const char* tensor) {
  const auto list = layers_with(facts, config, tensor);
  return std::find(list.begin(), list.end(), true) != list.end();
}

void set_kv_heads(const GgufFacts& facts, ConfigDraft& config) {
  const auto heads = facts.per_layer("attention.head_count_kv", config.integer("num_hidden_layers"), 1 << 16,
                                     config.integer("num_attention_heads"));
  config.set("num_key_value_heads", std::max<int64_t>(1, *std::max_element(heads.begin(), heads.end())));
}

/// Those of `marked` as every period-th layer from an offset.
void set_period(const GgufFacts& facts, ConfigDraft& config, const std::vector<bool>& marked,
                const char* period_key, const char* offset_key) {
  const auto layers = static_cast<int64_t>(marked.size());
  int64_t offset = layers, period = layers + 1;
  for (int64_t i = 0; i < layers; ++i) {
    if (!marked[static_cast<size_t>(i)]) continue;
    if (offset == layers)
      offset = i;
    else if (period > layers)
      period = i - offset;
  }
  if (offset >= period) period = offset + 1;
  for (int64_t i = 0; i < layers; ++i)
    if (marked[static_cast<size_t>(i)] != (offset < layers && i >= offset && (i - offset) % period == 0))
      fail(ErrorKind::unsupported, "{}: {}: layers of this kind do not stand at a fixed period",
           facts.file.first.string(), period_key);
  config.set(period_key, period);
  config.set(offset_key, offset);
}

void complete_mamba(const GgufFacts& facts, ConfigDraft& config) {
  config.set("expand", expansion(facts, config));
  config.set("hidden_act", "silu");
  config.set("use_conv_bias", facts.has_tensor("blk.0.ssm_conv1d.bias"));
  config.set("use_bias", facts.has_tensor("blk.0.ssm_in.bias"));
  if (!facts.flag("ssm.dt_b_c_rms").value_or(false)) return;
  config.set("model_type", "falcon_mamba");
  config.set("architectures", std::vector<std::string>{"FalconMambaForCausalLM"});
}

void complete_jamba(const GgufFacts& facts, ConfigDraft& config) {
  set_kv_heads(facts, config);
  config.set("mamba_expand", expansion(facts, config));
  config.set("hidden_act", "silu");
  config.set("mamba_conv_bias", any_layer_has(facts, config, "ssm_conv1d.bias"));
  config.set("mamba_proj_bias", any_layer_has(facts, config, "ssm_in.bias"));
  set_period(facts, config, layers_with(facts, config, "attn_q.weight"), "attn_layer_period",
             "attn_layer_offset");
  const auto sparse = layers_with(facts, config, "ffn_gate_inp.weight");
  const bool any = std::find(sparse.begin(), sparse.end(), true) != sparse.end();
  if (!any) return config.set("num_experts", 1);
  set_period(facts, config, sparse, "expert_layer_period", "expert_layer_offset");
}

/// Its multipliers are in the weights already.
void complete_falcon_h1(const GgufFacts& facts, ConfigDraft& config) {
  complete_gguf_rope(facts, config);
  config.set("mamba_d_head", scan_head(facts, config, "mamba_n_heads"));
  config.set("hidden_act", "silu");
  config.set("mamba_rms_norm", facts.has_tensor("blk.0.ssm_norm.weight"));
  config.set("mamba_norm_before_gate", false);
  config.set("mamba_proj_bias", facts.has_tensor("blk.0.ssm_in.bias"));
  config.set("projectors_bias", facts.has_tensor("blk.0.ssm_out.bias"));
  config.set("mamba_conv_bias", facts.has_tensor("blk.0.ssm_conv1d.bias"));
  config.set("attention_bias", facts.has_tensor("blk.0.attn_q.bias"));
  config.set("mlp_bias", facts.has_tensor("blk.0.ffn_gate.bias"));
}

void complete_granite(const GgufFacts& facts, ConfigDraft& config) {
  set_kv_heads(facts, config);
  complete_gguf_rope(facts, config);
  config.set("mamba_expand", expansion(facts, config));
  config.set("mamba_d_head", scan_head(facts, config, "mamba_n_heads"));
  config.set("hidden_act", "silu");
  std::vector<std::string> kinds;
  for (const bool scans : layers_with(facts, config, "ssm_in.weight"))
    kinds.push_back(scans ? "mamba" : "attention");
  config.set("layer_types", kinds);
  config.set("position_embedding_type",
             facts.flag("rope.scaling.finetuned").value_or(false) ? "rope" : "nope");
  config.set("attention_bias", any_layer_has(facts, config, "attn_q.bias"));
  config.set("mamba_proj_bias", any_layer_has(facts, config, "ssm_in.bias"));
  config.set("mamba_conv_bias", any_layer_has(facts, config, "ssm_conv1d.bias"));
  config.set("embedding_multiplier", facts.number("embedding_scale").value_or(1.0));
  config.set("attention_multiplier", facts.number("attention.scale").value_or(1.0));
  config.set("residual_multiplier", facts.number("residual_scale").value_or(1.0));
  config.set("logits_scaling", facts.number("logit_scale").value_or(1.0));
  if (!config.contains("num_local_experts")) config.set("num_local_experts", 0);
  if (!config.contains("shared_intermediate_size"))
    config.set("shared_intermediate_size", config.integer("intermediate_size"));
}

void complete_nemotron(const GgufFacts& facts, ConfigDraft& config) {
  set_kv_heads(facts, config);
  config.set("mamba_head_dim", scan_head(facts, config, "mamba_num_heads"));
  if (!config.contains("layer_norm_epsilon")) config.set("layer_norm_epsilon", 1e-5);
  const auto attends = layers_with(facts, config, "attn_q.weight"),
             scans = layers_with(facts, config, "ssm_in.weight"),
             sparse = layers_with(facts, config, "ffn_gate_inp.weight");
  std::vector<std::string> kinds;
  for (size_t i = 0; i < attends.size(); ++i)
    kinds.push_back(scans[i] ? "mamba" : attends[i] ? "attention" : sparse[i] ? "moe" : "mlp");
  config.set("layers_block_type", kinds);
  const auto widths = facts.per_layer("feed_forward_length", config.integer("num_hidden_layers"), kMost, 0);
  int64_t width = *std::max_element(widths.begin(), widths.end());
  for (size_t i = 0; width == 0 && i < kinds.size(); ++i)  // some files say zero for every layer
    if (kinds[i] == "mlp") width = facts.rows(fmt::format("blk.{}.ffn_up.weight", i)).value_or(0);
  config.set("intermediate_size", std::max<int64_t>(1, width));
  config.set("mlp_hidden_act", "relu2");
  config.set("mamba_hidden_act", "silu");
  config.set("use_bias", any_layer_has(facts, config, "ssm_in.bias"));
  config.set("use_conv_bias", any_layer_has(facts, config, "ssm_conv1d.bias"));
  config.set("mlp_bias", any_layer_has(facts, config, "ffn_up.bias") ||
                             any_layer_has(facts, config, "ffn_up_shexp.bias"));
  const auto experts = facts.integer("expert_count", 0, 1 << 16).value_or(0);
  if (experts == 0) return;
  config.set("n_routed_experts", experts);
  constexpr std::pair<const char*, const char*> more[] = {
      {"expert_used_count", "num_experts_per_tok"},
      {"expert_feed_forward_length", "moe_intermediate_size"},
      {"expert_shared_feed_forward_length", "moe_shared_expert_intermediate_size"},
      {"expert_group_count", "n_group"},
      {"expert_group_used_count", "topk_group"},
      {"moe_latent_size", "moe_latent_size"}};
  for (const auto& [gguf, hf] : more)
    if (const auto value = facts.integer(gguf, 1, kMost)) config.set(hf, *value);
  complete_gguf_experts(facts, config);
}

std::span<const GgufKey> plamo2_keys() {
  static const auto keys =
      with_sizes({{"context_length", "max_position_embeddings", Kind::integer, true},
                  {"feed_forward_length", "intermediate_size", Kind::integer, true},
                  {"attention.key_length", "hidden_size_per_head", Kind::integer, true},
                  {"ssm.conv_kernel", "mamba_d_conv", Kind::integer, true},
                  {"ssm.state_size", "mamba_d_state", Kind::integer, true},
                  {"ssm.time_step_rank", "mamba_num_heads", Kind::integer, true},
                  {"rope.freq_base", "rope_theta", Kind::number},
                  {"attention.layer_norm_rms_epsilon", "rms_norm_eps", Kind::number, true}});
  return keys;
}

constexpr GgufName kPlamo2Names[] = {
    {"token_embd.weight", "model.embed_tokens.weight"},
    {"output_norm.weight", "model.norm.weight", GgufChange::minus_one},
    {"output.weight", "lm_head.weight"},
    {"blk.#.attn_norm.weight", "model.layers.#.pre_mixer_norm.weight", GgufChange::minus_one},
    {"blk.#.post_attention_norm", "model.layers.#.post_mixer_norm.weight", GgufChange::minus_fifth},
    {"blk.#.ffn_norm.weight", "model.layers.#.pre_mlp_norm.weight", GgufChange::minus_one},
    {"blk.#.post_ffw_norm", "model.layers.#.post_mlp_norm.weight", GgufChange::minus_fifth_power},
    {"blk.#.ffn_up.weight", "model.layers.#.mlp.gate_up_proj.weight"},
    {"blk.#.ffn_down.weight", "model.layers.#.mlp.down_proj.weight"},
    {"blk.#.attn_qkv.weight", "model.layers.#.mixer.qkv_proj.weight"},
    {"blk.#.attn_q_norm.weight", "model.layers.#.mixer.q_weight"},
    {"blk.#.attn_k_norm.weight", "model.layers.#.mixer.k_weight"},
    {"blk.#.attn_output.weight", "model.layers.#.mixer.o_proj.weight"},
    {"blk.#.ssm_in.weight", "model.layers.#.mixer.in_proj.weight"},
    {"blk.#.ssm_conv1d.weight", "model.layers.#.mixer.conv1d.weight", GgufChange::convolution},
    {"blk.#.ssm_x.weight", "model.layers.#.mixer.bcdt_proj.weight"},
    {"blk.#.ssm_dt.weight", "model.layers.#.mixer.dt_proj.weight"},
    {"blk.#.ssm_dt.bias", "model.layers.#.mixer.dt_bias"},
    {"blk.#.ssm_dt_norm", "model.layers.#.mixer.dt_norm_weight"},
    {"blk.#.ssm_b_norm", "model.layers.#.mixer.B_norm_weight"},
    {"blk.#.ssm_c_norm", "model.layers.#.mixer.C_norm_weight"},
    {"blk.#.ssm_a", "model.layers.#.mixer.A_log", GgufChange::log_negated},
    {"blk.#.ssm_d", "model.layers.#.mixer.D"},
    {"blk.#.ssm_out.weight", "model.layers.#.mixer.out_proj.weight"},
};

/// Which layers attend follows from a step, which files do not keep; llama.cpp's graph has no windows.
void complete_plamo2(const GgufFacts& facts, ConfigDraft& config) {
  const auto layers = config.integer("num_hidden_layers");
  const auto heads = facts.per_layer("attention.head_count", layers, 4096, 0),
             keys = facts.per_layer("attention.head_count_kv", layers, 4096, 0);
  config.set("num_attention_heads", std::max<int64_t>(1, *std::max_element(heads.begin(), heads.end())));
  config.set("num_key_value_heads", std::max<int64_t>(1, *std::max_element(keys.begin(), keys.end())));
  const auto scans = layers_with(facts, config, "ssm_in.weight");
  const auto fits = [&](int64_t step) {
    for (int64_t i = 0; i < layers; ++i) {
      const bool attends = layers <= step / 2 ? i == layers - 1 : i % step == step / 2;
      if (attends == scans[static_cast<size_t>(i)]) return false;
    }
    return true;
  };
  int64_t step = 2;
  while (step <= 2 * layers && !fits(step)) ++step;
  if (step > 2 * layers)
    fail(ErrorKind::unsupported, "{}: layers with attention do not stand at a fixed step",
         facts.file.first.string());
  config.set("mamba_step", step);
  config.set("mamba_enabled", true);
  config.set("attention_window_size", config.integer("max_position_embeddings"));
}

}  // namespace

std::span<const GgufArch> gguf_scans() {
  static const GgufArch archs[] = {
      {"mamba", "mamba", "MambaForCausalLM", mamba_keys(), mamba_names(), complete_mamba},
      {"jamba", "jamba", "JambaForCausalLM", jamba_keys(), jamba_names(), complete_jamba},
      {"plamo2", "plamo2", "Plamo2ForCausalLM", plamo2_keys(), kPlamo2Names, complete_plamo2},
      {"falcon-h1", "falcon_h1", "FalconH1ForCausalLM", falcon_h1_keys(), falcon_h1_names(),
       complete_falcon_h1},
      {"granitehybrid", "granitemoehybrid", "GraniteMoeHybridForCausalLM", granite_keys(), granite_names(),
       complete_granite},
      {"nemotron_h", "nemotron_h", "NemotronHForCausalLM", nemotron_keys(), nemotron_names(),
       complete_nemotron},
      {"nemotron_h_moe", "nemotron_h", "NemotronHForCausalLM", nemotron_keys(), nemotron_names(),
       complete_nemotron}};
  return archs;
}

}  // namespace mlxcel
