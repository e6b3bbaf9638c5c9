// What the decoders of the llama kind have in common.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>
#include <set>

#include "base/error.h"
#include "checkpoint/formats/gguf_blocks.h"
#include "checkpoint/rules/gguf_arch.h"

namespace mlxcel {

namespace {

using Kind = GgufKey::Kind;

constexpr GgufKey kKeys[] = {
    {"block_count", "num_hidden_layers", Kind::integer, true},
    {"context_length", "max_position_embeddings", Kind::integer, true},
    {"embedding_length", "hidden_size", Kind::integer, true},
    {"feed_forward_length", "intermediate_size"},
    {"attention.head_count", "num_attention_heads", Kind::integer, true},
    {"attention.head_count_kv", "num_key_value_heads"},
    {"attention.key_length", "head_dim"},
    {"rope.freq_base", "rope_theta", Kind::number},
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps", Kind::number, true},
};

constexpr GgufName kLlamaRows[] = {
    {"token_embd.weight", "model.embed_tokens.weight"},
    {"output_norm.*", "model.norm.*"},
    {"output.*", "lm_head.*"},
    {"rope_freqs.weight", ""},
    {"blk.#.attn_rot_embd", ""},
    {"blk.#.attn_norm.*", "model.layers.#.input_layernorm.*"},
    {"blk.#.attn_q_norm.weight", "model.layers.#.self_attn.q_norm.weight"},
    {"blk.#.attn_k_norm.weight", "model.layers.#.self_attn.k_norm.weight"},
    {"blk.#.attn_q.*", "model.layers.#.self_attn.q_proj.*"},
    {"blk.#.attn_k.*", "model.layers.#.self_attn.k_proj.*"},
    {"blk.#.attn_v.*", "model.layers.#.self_attn.v_proj.*"},
    {"blk.#.attn_output.*", "model.layers.#.self_attn.o_proj.*"},
    {"blk.#.ffn_norm.*", "model.layers.#.post_attention_layernorm.*"},
    {"blk.#.ffn_gate.*", "model.layers.#.mlp.gate_proj.*"},
    {"blk.#.ffn_up.*", "model.layers.#.mlp.up_proj.*"},
    {"blk.#.ffn_down.*", "model.layers.#.mlp.down_proj.*"},
};

/// Text of a table's row that is put together; tables live as long as the process.
const char* kept(std::string text) {
  static std::mutex mutex;
  static std::set<std::string> texts;
  const std::lock_guard lock(mutex);
  return texts.insert(std::move(text)).first->c_str();
}

}  // namespace

std::vector<double> gguf_divisors(const GgufFacts& facts, const std::string& name, int64_t wanted) {
  const GgufTensor& tensor = facts.file.tensors.at(name);
  if (tensor.type->type != GgmlType::f32 || tensor.shape.size() != 1 || tensor.shape[0] != wanted)
    fail(ErrorKind::bad_checkpoint, "{}: {}: expected F32 [{}], found {} {}", facts.file.first.string(), name,
         wanted, tensor.type->name, to_string(tensor.shape));
  const Weight weight = load_gguf_tensor(tensor, name);
  const float* values = weight.data.data<float>();
  std::vector<double> out(values, values + wanted);
  for (const double value : out)
    if (!std::isfinite(value) || value <= 0)
      fail(ErrorKind::bad_checkpoint, "{}: {}: expected positive divisors, found {}",
           facts.file.first.string(), name, value);
  return out;
}

ConfigDraft gguf_rope_scaling(const GgufFacts& facts, int64_t max_positions) {
  const auto type = gguf_string(facts.file.metadata, facts.prefix + "rope.scaling.type").value_or("none");
  auto factor = facts.number("rope.scaling.factor");
  if (!factor) factor = facts.number("rope.scale_linear");
  if (type == "none" && !(factor && *factor != 1.0 && facts.number("rope.scale_linear"))) return {};
  ConfigDraft scaling;
  if (type == "linear" || type == "none") {
    scaling.set("rope_type", "linear");
  } else if (type == "yarn") {
    scaling.set("rope_type", "yarn");
    const auto original = facts.integer("rope.scaling.original_context_length", 1, int64_t{1} << 30);
    scaling.set("original_max_position_embeddings", original.value_or(max_positions));
    constexpr std::pair<const char*, const char*> extra[] = {
        {"rope.scaling.yarn_ext_factor", "extrapolation_factor"},
        {"rope.scaling.attn_factor", "attention_factor"},
        {"rope.scaling.yarn_attn_factor", "attention_factor"},
        {"rope.scaling.yarn_beta_fast", "beta_fast"},
        {"rope.scaling.yarn_beta_slow", "beta_slow"}};
    for (const auto& [gguf, hf] : extra)
      if (const auto value = facts.number(gguf)) scaling.set(hf, *value);
  } else {
    fail(ErrorKind::unsupported, "{}: GGUF key {}rope.scaling.type: \"{}\" is not supported",
         facts.file.first.string(), facts.prefix, type);
  }
  if (!factor || *factor <= 0)
    fail(ErrorKind::bad_checkpoint, "{}: GGUF key {}rope.scaling.factor: expected a positive number",
         facts.file.first.string(), facts.prefix);
  scaling.set("factor", *factor);
  return scaling;
}

void leave_out_gguf_prediction(const GgufFacts& facts, ConfigDraft& config) {
  const auto blocks = config.integer("num_hidden_layers");
  const auto extra = facts.integer("nextn_predict_layers", 0, 64).value_or(0);
  if (extra >= blocks)
    fail(ErrorKind::bad_checkpoint,
         "{}: GGUF key {}nextn_predict_layers: expected less than {} blocks, found {}",
         facts.file.first.string(), facts.prefix, blocks, extra);
  config.set("num_hidden_layers", blocks - extra);
  config.set("num_nextn_predict_layers", extra);
}

void set_gguf_mlp_types(const GgufFacts& facts, ConfigDraft& config) {
  std::vector<std::string> types;
  for (int64_t i = 0; i < config.integer("num_hidden_layers"); ++i)
    types.emplace_back(facts.has_tensor(fmt::format("blk.{}.ffn_gate_inp.weight", i)) ? "sparse" : "dense");
  config.set("mlp_layer_types", types);
}

void complete_gguf_experts(const GgufFacts& facts, ConfigDraft& config) {
  config.set("norm_topk_prob", facts.flag("expert_weights_norm").value_or(false));
  config.set("routed_scaling_factor", facts.number("expert_weights_scale").value_or(1.0));
  if (config.contains("moe_intermediate_size")) return;
  for (const auto& [name, tensor] : facts.file.tensors)
    if (name.ends_with(".ffn_down_exps.weight") && tensor.shape.size() == 3)
      return config.set("moe_intermediate_size", tensor.shape[2]);
  fail(ErrorKind::bad_checkpoint, "{}: GGUF key {}expert_feed_forward_length: missing",
       facts.file.first.string(), facts.prefix);
}

std::span<const GgufKey> gguf_decoder_keys() { return kKeys; }
std::span<const GgufKey> gguf_size_keys() { return std::span(kKeys).first(std::size(kKeys) - 1); }

std::vector<GgufKey> gguf_keys_without(std::span<const GgufKey> keys,
                                       std::span<const std::string_view> left_out) {
  std::vector<GgufKey> kept_keys;
  for (const GgufKey& key : keys)
    if (std::find(left_out.begin(), left_out.end(), key.gguf) == left_out.end()) kept_keys.push_back(key);
  return kept_keys;
}

std::vector<GgufName> gguf_unit(std::string_view kind, std::string_view scope, const GgufUnitNames& names) {
  std::vector<GgufName> rows;
  for (const auto& [gguf, hf] :
       {std::pair("gate", names.gate), std::pair("up", names.up), std::pair("down", names.down)})
    rows.push_back(
        {kept(fmt::format("blk.#.ffn_{}{}.*", gguf, kind)), kept(fmt::format("{}.{}.*", scope, hf))});
  return rows;
}

std::vector<GgufName> operator+(std::vector<GgufName> a, std::span<const GgufName> b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::vector<GgufKey> operator+(std::vector<GgufKey> a, std::span<const GgufKey> b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::vector<GgufName> gguf_llama_names(std::vector<GgufName> own, bool permuted) {
  for (GgufName row : kLlamaRows) {
    if (permuted && std::string_view(row.gguf) == "blk.#.attn_q.*") row.change = GgufChange::unpermute_q;
    if (permuted && std::string_view(row.gguf) == "blk.#.attn_k.*") row.change = GgufChange::unpermute_k;
    own.push_back(row);
  }
  return own;
}

void set_gguf_layer_types(const GgufFacts& facts, ConfigDraft& config, int period) {
  const auto layers = static_cast<size_t>(config.integer("num_hidden_layers"));
  std::vector<std::string> types;
  for (size_t i = 0; i < layers; ++i)
    types.push_back((i + 1) % static_cast<size_t>(period) != 0 ? "sliding_attention" : "full_attention");
  const auto sliding = facts.flags("attention.sliding_window_pattern", static_cast<int64_t>(layers));
  for (size_t i = 0; i < sliding.size(); ++i) types[i] = sliding[i] ? "sliding_attention" : "full_attention";
  config.set("layer_types", types);
}

void require_gguf_number(const GgufFacts& facts, ConfigDraft& config, const char* gguf, const char* hf) {
  const auto value = facts.number(gguf);
  if (!value)
    fail(ErrorKind::bad_checkpoint, "{}: GGUF key {}{}: missing", facts.file.first.string(), facts.prefix,
         gguf);
  config.set(hf, *value);
}

void complete_gguf_rope(const GgufFacts& facts, ConfigDraft& config) {
  const std::string path = facts.file.first.string();
  const auto hidden = config.integer("hidden_size"), heads = config.integer("num_attention_heads");
  if (heads < 1 || hidden < 1)
    fail(ErrorKind::bad_checkpoint, "{}: {} heads over width {}", path, heads, hidden);
  if (!config.contains("num_key_value_heads")) config.set("num_key_value_heads", heads);
  if (!config.contains("head_dim")) config.set("head_dim", hidden / heads);
  const auto width = config.integer("head_dim");
  if (const auto value = facts.integer("attention.value_length", 1, int64_t{1} << 20);
      value && *value != width)
    fail(ErrorKind::unsupported, "{}: keys of width {} with values of width {} are not supported", path,
         width, *value);
  if (!config.contains("rope_theta")) config.set("rope_theta", 10000.0);

  const auto rotated = facts.integer("rope.dimension_count", 0, int64_t{1} << 20).value_or(width);
  if (rotated > width || rotated % 2 != 0)
    fail(ErrorKind::bad_checkpoint, "{}: GGUF key {}rope.dimension_count: {} of a head of {}", path,
         facts.prefix, rotated, width);
  if (rotated != width)
    config.set("partial_rotary_factor", static_cast<double>(rotated) / static_cast<double>(width));

  const auto positions = config.integer("max_position_embeddings");
  const ConfigDraft scaling = gguf_rope_scaling(facts, positions);
  if (facts.has_tensor("rope_freqs.weight")) {
    // llama3's scaling, already applied to each frequency: longrope with one list for every length.
    if (!scaling.empty())
      fail(ErrorKind::unsupported, "{}: rope_freqs.weight beside {}rope.scaling is not supported", path,
           facts.prefix);
    const auto divisors = gguf_divisors(facts, "rope_freqs.weight", rotated / 2);
    ConfigDraft longrope;
    longrope.set("rope_type", "longrope");
    longrope.set("short_factor", divisors);
    longrope.set("long_factor", divisors);
    longrope.set("attention_factor", 1.0);
    longrope.set("factor", 1.0);
    longrope.set("original_max_position_embeddings", positions);
    config.set("rope_scaling", longrope);
  } else if (!scaling.empty()) {
    config.set("rope_scaling", scaling);
  } else if (facts.prefix == "apertus." || facts.prefix == "gpt-oss.") {
    // Where these families' configs say nothing, they mean the published scaling.
    ConfigDraft plain;
    plain.set("rope_type", "default");
    config.set("rope_scaling", plain);
  }
}

}  // namespace mlxcel
