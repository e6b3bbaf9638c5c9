#include "checkpoint/formats/quant_map.h"

#include <array>

#include "base/error.h"

namespace mlxcel {

namespace {

/// "model.language_model.layers.0" and "language_model.model.layers.0" are both "layers.0".
std::string_view without_prefixes(std::string_view module) {
  for (bool again = true; again;) {
    again = false;
    for (const std::string_view prefix : {"language_model.", "model."}) {
      if (!module.starts_with(prefix)) continue;
      module.remove_prefix(prefix.size());
      again = true;
    }
  }
  return module;
}

QuantFormat read_format(const Config& block, const std::string& field, const QuantFormat& base) {
  QuantFormat format = base;
  if (block.has("mode")) {
    const auto text = block.get<std::string>("mode");
    const auto mode = parse_quant_mode(text);
    if (!mode)
      fail(ErrorKind::bad_checkpoint, "{}: {}.mode: expected affine, mxfp4, nvfp4 or mxfp8, found \"{}\"",
           block.where(), field, text);
    if (*mode != base.mode) format = default_format(*mode);
  }
  format.bits = block.integer("bits", 1, 32, format.bits);
  format.group_size = block.integer("group_size", 1, 1 << 16, format.group_size);
  if (!supported(format))
    fail(ErrorKind::bad_checkpoint, "{}: {}: {}", block.where(), field, format_rule(format));
  return format;
}

bool declares_default(const Config& block) {
  return block.has("bits") || block.has("group_size") || block.has("mode");
}

}  // namespace

std::optional<QuantMode> parse_quant_mode(std::string_view text) {
  for (const QuantMode mode : {QuantMode::affine, QuantMode::mxfp4, QuantMode::nvfp4, QuantMode::mxfp8})
    if (text == to_string(mode)) return mode;
  return std::nullopt;
}

QuantFormat default_format(QuantMode mode) {
  switch (mode) {
    case QuantMode::affine:
      return {mode, 4, 64};
    case QuantMode::mxfp4:
      return {mode, 4, 32};
    case QuantMode::nvfp4:
      return {mode, 4, 16};
    case QuantMode::mxfp8:
      return {mode, 8, 32};
  }
  return {};
}

bool supported(const QuantFormat& format) {
  if (format.mode != QuantMode::affine) return format == default_format(format.mode);
  const bool bits = (format.bits >= 2 && format.bits <= 6) || format.bits == 8;
  return bits && (format.group_size == 32 || format.group_size == 64 || format.group_size == 128);
}

std::string format_rule(const QuantFormat& format) {
  if (format.mode == QuantMode::affine)
    return fmt::format(
        "bits {} with group_size {}: expected bits 2, 3, 4, 5, 6 or 8 and group_size 32, 64 or 128",
        format.bits, format.group_size);
  const QuantFormat only = default_format(format.mode);
  return fmt::format("bits {} with group_size {}: {} has {} bits and groups of {}, nothing else", format.bits,
                     format.group_size, to_string(format.mode), only.bits, only.group_size);
}

std::string to_string(const QuantFormat& format) {
  if (format.mode != QuantMode::affine) return to_string(format.mode);
  return fmt::format("affine{}g{}", format.bits, format.group_size);
}

QuantMap QuantMap::from(const Config& config) {
  const Config own = config.child("quantization");
  const Config foreign = config.child("quantization_config");
  if (own.empty() && foreign.has("quant_method")) return {};  // another quantiser's: foreign.h
  const Config& block = own.empty() ? foreign : own;
  const char* field = own.empty() ? "quantization_config" : "quantization";

  QuantMap map;
  if (declares_default(block)) map.fallback_ = read_format(block, field, default_format(QuantMode::affine));
  if (!own.empty() && declares_default(foreign) && !foreign.has("quant_method")) {
    const QuantFormat other = read_format(foreign, "quantization_config", default_format(QuantMode::affine));
    if (map.fallback_ && other != *map.fallback_)
      fail(ErrorKind::bad_checkpoint, "{}: quantization says {}, quantization_config says {}", config.where(),
           to_string(*map.fallback_), to_string(other));
  }
  const Config nested = config.child("text_config").child("quantization");
  if (declares_default(nested)) {
    const QuantFormat other =
        read_format(nested, "text_config.quantization", default_format(QuantMode::affine));
    if (map.fallback_ && other != *map.fallback_)
      fail(ErrorKind::bad_checkpoint, "{}: {} says {}, text_config.quantization says {}", config.where(),
           field, to_string(*map.fallback_), to_string(other));
    map.fallback_ = other;
  }

  const QuantFormat base = map.fallback_.value_or(default_format(QuantMode::affine));
  const auto read_modules = [&](const Config& from, const std::string& name) {
    for (const std::string& key : from.keys()) {
      if (from.is_object(key)) {
        const Config entry = from.child(key);
        if (!declares_default(entry)) continue;  // another setting, not a module
        map.modules_.insert_or_assign(key, read_format(entry, name + "." + key, base));
      } else if (from.is_bool(key) && key.find('.') != std::string::npos) {
        map.modules_.insert_or_assign(key, from.get<bool>(key) ? std::optional(base) : std::nullopt);
      } else if (from.is_bool(key) && !from.get<bool>(key)) {
        map.modules_.insert_or_assign(key, std::nullopt);  // "lm_head": false
      }
    }
  };
  read_modules(nested, "text_config.quantization");
  read_modules(block, field);
  for (const auto& [module, format] : map.modules_) map.canonical_.emplace(without_prefixes(module), format);
  return map;
}

std::optional<QuantMap::Entry> QuantMap::find(std::string_view module) const {
  if (const auto exact = modules_.find(module); exact != modules_.end()) return Entry{exact->second, true};
  if (const auto alias = canonical_.find(without_prefixes(module)); alias != canonical_.end())
    return Entry{alias->second, true};
  if (fallback_) return Entry{fallback_, false};
  return std::nullopt;
}

}  // namespace mlxcel
