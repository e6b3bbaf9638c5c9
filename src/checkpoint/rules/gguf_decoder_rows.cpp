// What the decoders of the llama kind have in common.
#include <cmath>
#include <cstring>

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
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps", Kind::number, true},
    {"rope.freq_base", "rope_theta", Kind::number},
};

std::vector<double> read_divisors(const GgufFacts& facts, const std::string& name, int64_t wanted) {
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

/// rope.scaling.* keys as `rope_scaling`; nothing where there is none.
ConfigDraft read_scaling(const GgufFacts& facts, int64_t max_positions) {
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

}  // namespace

std::span<const GgufKey> gguf_decoder_keys() { return kKeys; }

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
  const ConfigDraft scaling = read_scaling(facts, positions);
  if (facts.has_tensor("rope_freqs.weight")) {
    // llama3's scaling, already applied to each frequency: longrope with one list for every length.
    if (!scaling.empty())
      fail(ErrorKind::unsupported, "{}: rope_freqs.weight beside {}rope.scaling is not supported", path,
           facts.prefix);
    const auto divisors = read_divisors(facts, "rope_freqs.weight", rotated / 2);
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
  }
}

}  // namespace mlxcel
