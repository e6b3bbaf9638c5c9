// Which tensor becomes what: the choices of mlx-lm's converter, made from headers alone.
#include <algorithm>
#include <set>

#include "base/error.h"
#include "checkpoint/formats/quant_map.h"
#include "checkpoint/rules.h"
#include "checkpoint/rules/pattern.h"
#include "checkpoint/text_config.h"
#include "models/arch.h"
#include "models/export.h"
#include "models/fitted.h"

namespace mlxcel {
namespace {

bool is_float(mx::Dtype dtype) {
  return dtype == mx::float32 || dtype == mx::float16 || dtype == mx::bfloat16;
}

std::string module_of(const std::string& name) {
  constexpr std::string_view kWeight = ".weight";
  return name.ends_with(kWeight) ? name.substr(0, name.size() - kWeight.size()) : name;
}

bool has_part(const std::string& module, std::string_view part) {
  return module.find(part) != std::string::npos;
}

/// Routers decide which experts run: little weight, much effect.
bool is_router(const std::string& module) {
  return module.ends_with(".mlp.gate") || module.ends_with(".block_sparse_moe.gate") ||
         module.ends_with(".router") || module.ends_with(".mlp.router.gate") ||
         module.ends_with(".feed_forward.gate");
}

/// A matrix that multiplies or is looked up; convolutions and state matrices are something else.
bool is_matrix(const std::string& name, const Shape& shape) {
  if (!name.ends_with(".weight") || has_part(name, "norm") || has_part(name, "conv")) return false;
  if (shape.size() == 2) return true;
  return shape.size() == 3 && (has_part(name, "switch_mlp") || has_part(name, "experts"));
}

struct Recipe {
  int low = 0, high = 0;
};
Recipe recipe_of(const std::string& name) {
  if (name == "mixed_2_6") return {2, 6};
  if (name == "mixed_3_4") return {3, 4};
  if (name == "mixed_3_6") return {3, 6};
  if (name == "mixed_4_6") return {4, 6};
  fail(ErrorKind::invalid_request, "recipe {}: expected mixed_2_6, mixed_3_4, mixed_3_6 or mixed_4_6", name);
}

/// The number that stands at one place of a dotted name.
int number_at(const std::string& module, size_t place) {
  size_t begin = 0;
  for (size_t i = 0; i < place; ++i) {
    const auto dot = module.find('.', begin);
    if (dot == std::string::npos) return 0;
    begin = dot + 1;
  }
  const std::string part = module.substr(begin, module.find('.', begin) - begin);
  return !part.empty() && part.size() < 8 && part.find_first_not_of("0123456789") == std::string::npos
             ? std::stoi(part)
             : 0;
}

/// Source of the choice: mlx-lm's mixed recipes (after llama.cpp's Q4_K_M): the outer eighths and every third
/// layer between keep more bits in v_proj and down_proj, lm_head always.
class Mixed {
 public:
  Mixed(const std::string& recipe, const std::vector<std::string>& names, int layers)
      : bits_(recipe_of(recipe)), layers_(layers) {
    for (const std::string& name : names) {
      if (!has_part(name, "down_proj")) continue;
      size_t place = 0;
      for (size_t begin = 0; begin <= name.size(); ++place) {
        const auto end = std::min(name.find('.', begin), name.size());
        const std::string part = name.substr(begin, end - begin);
        if (!part.empty() && part.find_first_not_of("0123456789") == std::string::npos) {
          place_ = place;
          return;
        }
        begin = end + 1;
      }
    }
    fail(ErrorKind::invalid_request,
         "recipe {}: the model has no numbered down_proj that a recipe could favour", recipe);
  }
  int bits(const std::string& module) const {
    const int index = number_at(module, place_);
    const bool more = index < layers_ / 8 || index >= 7 * layers_ / 8 || (index - layers_ / 8) % 3 == 2;
    const bool favoured = has_part(module, "v_proj") || has_part(module, "v_a_proj") ||
                          has_part(module, "v_b_proj") || has_part(module, "down_proj");
    return (favoured && more) || has_part(module, "lm_head") ? bits_.high : bits_.low;
  }

 private:
  Recipe bits_;
  int layers_;
  size_t place_ = 0;
};

/// The type mlx-lm casts to: the configuration's word.
std::optional<mx::Dtype> declared_dtype(const Config& config) {
  for (const Config& block : {config, text_config(config)})
    for (const char* key : {"torch_dtype", "dtype"}) {
      if (!block.is_string(key)) continue;
      const auto word = block.get<std::string>(key);
      if (word == "float16") return mx::float16;
      if (word == "bfloat16") return mx::bfloat16;
      if (word == "float32") return mx::float32;
    }
  return std::nullopt;
}

bool matches(const std::string& pattern, const std::string& name) {
  return match(pattern, module_of(name)).has_value() || match(pattern, name).has_value();
}

std::uint64_t elements(const Shape& shape) {
  std::uint64_t count = 1;
  for (const int extent : shape) count *= static_cast<std::uint64_t>(extent);
  return count;
}

/// Experts come stacked in MLX's layout; the other rules are our own spelling.
std::shared_ptr<Source> stacked(const Checkpoint& checkpoint) {
  std::vector<Rule> rules;
  for (Rule& rule : detect_arch(checkpoint.config).arch.weights(checkpoint.config, *checkpoint.source))
    if (rule.kind == Rule::Kind::stack) rules.push_back(std::move(rule));
  return apply_rules(checkpoint.source, std::move(rules));
}

/// The same with adapters in its weights. Pairs that fit no weight end here, before anything is written.
std::shared_ptr<Source> adapted(std::shared_ptr<Source> source, const std::vector<FusedAdapter>& adapters) {
  for (const FusedAdapter& one : adapters) {
    for (const std::string& name : source->names())
      if (const auto info = source->find(name); info && info->shape.size() >= 2)
        fitted(*source, one.files, name, info->shape);
    refuse_unused(one.files);
    check_copies(*source, one.files);
  }
  return fused(std::move(source), adapters);
}

}  // namespace

std::string ExportTensor::becomes() const {
  if (format) return to_string(*format);
  return dtype == mx::float32    ? "F32"
         : dtype == mx::float16  ? "F16"
         : dtype == mx::bfloat16 ? "BF16"
                                 : stored_as;
}

ExportPlan plan_export(const Checkpoint& checkpoint, const ExportOptions& options) {
  ExportPlan plan;
  plan.source = adapted(options.names_are_final ? checkpoint.source : stacked(checkpoint), options.adapters);
  const auto names = plan.source->names();
  const Config text = text_config(checkpoint.config);
  const bool tied =
      text.get("tie_word_embeddings", false) || checkpoint.config.get("tie_word_embeddings", false);
  const auto declared = options.dtype ? options.dtype
                        : checkpoint.format == Checkpoint::Format::gguf
                            ? std::optional<mx::Dtype>(mx::float16)
                            : declared_dtype(checkpoint.config);
  std::optional<Mixed> mixed;
  if (!options.recipe.empty())
    mixed.emplace(options.recipe, names, text.integer("num_hidden_layers", 1, 1 << 16));
  std::set<std::string> unused;
  for (const auto& entry : options.overrides) unused.insert(entry.pattern);
  for (const auto& pattern : options.skip) unused.insert(pattern);
  bool requantised = false;

  for (const std::string& name : names) {
    if (name.ends_with("rotary_emb.inv_freq")) continue;
    if (tied && name == "lm_head.weight") {
      plan.warnings.emplace_back("lm_head.weight: left out, the embedding is the head (tie_word_embeddings)");
      continue;
    }
    const WeightInfo info = *plan.source->find(name);
    ExportTensor tensor{name, info.shape, info.stored_as, std::nullopt, info.dtype, "", 0};
    const bool values = info.format || is_float(info.dtype);
    if (values && declared) tensor.dtype = *declared;
    if (!declared && info.format && !is_float(info.dtype)) tensor.dtype = mx::bfloat16;
    const std::string module = module_of(name);
    if (values && !options.dequantize && is_matrix(name, info.shape)) {
      QuantFormat format = options.format;
      if (mixed) format.bits = mixed->bits(module);
      if (mixed && format.bits != recipe_of(options.recipe).low) tensor.why = "recipe";
      if (is_router(module)) {
        format = {QuantMode::affine, 8, 64};
        tensor.why = "router";
      }
      bool skip = false;
      for (const auto& entry : options.overrides)
        if (matches(entry.pattern, name)) {
          unused.erase(entry.pattern);
          format = entry.format;
          tensor.why = "override";
        }
      for (const auto& pattern : options.skip)
        if (matches(pattern, name)) {
          unused.erase(pattern);
          skip = true;
          tensor.why = "skipped";
        }
      if (!skip && info.shape.back() % format.group_size != 0) {
        skip = true;
        tensor.why = fmt::format("width {} is no multiple of {}", info.shape.back(), format.group_size);
      }
      if (!skip) tensor.format = format;
      requantised |= info.format && !skip;
    }
    const std::uint64_t count = elements(info.shape);
    if (tensor.format) {
      const QuantFormat& f = *tensor.format;
      const std::uint64_t groups = count / static_cast<std::uint64_t>(f.group_size);
      tensor.bytes = count * static_cast<std::uint64_t>(f.bits) / 8 +
                     groups * (f.mode == QuantMode::affine ? 2 * mx::size_of(tensor.dtype) : 1);
    } else {
      tensor.bytes = count * mx::size_of(tensor.dtype);
    }
    plan.parameters += static_cast<long long>(count);
    plan.bytes += tensor.bytes;
    plan.tensors.push_back(std::move(tensor));
  }
  if (!unused.empty())
    fail(ErrorKind::invalid_request, "{}: matches no weight matrix of this model", *unused.begin());
  if (requantised)
    plan.warnings.emplace_back(
        "the source is quantised already: its values are expanded and rounded a second time");
  if (plan.parameters > 0)
    plan.bits_per_weight = 8.0 * static_cast<double>(plan.bytes) / static_cast<double>(plan.parameters);
  return plan;
}

}  // namespace mlxcel
