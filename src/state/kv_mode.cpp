#include "state/kv_mode.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "kernels/attention.h"

namespace mlxcel {
namespace {

using kernels::PageType;

constexpr std::array<std::pair<std::string_view, KvMode>, 14> kNames = {{
    {"fp16", KvMode::fp16},
    {"float16", KvMode::fp16},
    {"f32", KvMode::f32},
    {"int8", KvMode::int8},
    {"i8", KvMode::int8},
    {"turbo4", KvMode::turbo4},
    {"turbo4-sym", KvMode::turbo4},
    {"turbo4-asym", KvMode::turbo4_asym},
    {"fp16+turbo4", KvMode::turbo4_asym},
    {"turbo4-delegated", KvMode::turbo4_delegated},
    {"fp16+turbo4-delegated", KvMode::turbo4_delegated},
    {"turbo3-asym", KvMode::turbo3_asym},
    {"turbo3", KvMode::turbo3_asym},
    {"fp16+turbo3", KvMode::turbo3_asym},
}};

bool turnable(int width) { return width >= 2 && width <= kernels::kMostTurned && (width & (width - 1)) == 0; }

/// Keys as they are, values in codes.
bool asymmetric(KvMode mode) {
  return mode == KvMode::turbo4_asym || mode == KvMode::turbo4_delegated || mode == KvMode::turbo3_asym;
}
bool turbo(KvMode mode) { return mode == KvMode::turbo4 || asymmetric(mode); }

/// What a slot's heads are in one mode, boundaries apart; dense where they cannot take it.
KvFormat format_of(const KvSpec& spec, KvMode mode, PageType dense) {
  const KvFormat plain{dense, dense};
  switch (mode) {
    case KvMode::fp16:
    case KvMode::f32:
      return plain;
    case KvMode::int8:
      return {PageType::i8, PageType::i8};
    case KvMode::turbo4: {
      const int second = spec.latent > 0 ? spec.key_dim - spec.latent : 0;
      const bool keys = turnable(spec.key_dim - second) && (second == 0 || turnable(second));
      return keys && (spec.latent > 0 || turnable(spec.value_dim)) ? KvFormat{PageType::t4, PageType::t4}
                                                                   : plain;
    }
    case KvMode::turbo4_asym:
      return turnable(spec.value_dim) ? KvFormat{dense, PageType::t4} : plain;
    case KvMode::turbo4_delegated:
      // A window that is all recent needs no codes.
      return turnable(spec.value_dim) && (spec.window == 0 || spec.window > kRecentTokens)
                 ? KvFormat{dense, PageType::t4}
                 : plain;
    case KvMode::turbo3_asym:
      return turnable(spec.value_dim) ? KvFormat{dense, PageType::t3} : plain;
  }
  return plain;
}

const char* label_of(PageType type) {
  return type == PageType::f32 ? "f32" : type == PageType::bf16 ? "bf16" : "f16";
}

}  // namespace

KvMode parse_kv_mode(std::string_view name) {
  for (const auto& [known, mode] : kNames)
    if (known == name) return mode;
  fail_param("kv-cache-mode",
             "kv-cache-mode {}: expected fp16, int8, turbo4-asym, turbo4-delegated, turbo4 or turbo3-asym",
             name);
}

KvMode kv_mode_of_types(std::string_view keys, std::string_view values) {
  const auto plain = [](std::string_view name) -> std::string_view {
    if (name == "f16" || name == "fp16" || name == "float16") return "fp16";
    if (name == "q8_0" || name == "int8" || name == "i8") return "int8";
    if (name == "q4_0" || name == "q4_1") return "turbo4";
    return name;
  };
  const std::string_view k = plain(keys), v = plain(values);
  if (k != "fp16" && k != "int8" && k != "turbo4")
    fail_param("cache-type-k",
               "cache-type-k {}: expected f16, int8 (q8_0) or turbo4 (q4_0); the nearest is {}", keys,
               keys.find('8') != std::string_view::npos ? "int8"
               : keys.find('3') != std::string_view::npos || keys.find('4') != std::string_view::npos ||
                       keys.find('5') != std::string_view::npos
                   ? "turbo4"
                   : "f16");
  if (k == v && k != "turbo4") return parse_kv_mode(k);
  if (k == "turbo4" && (v == "turbo4" || v == "turbo4-sym")) return KvMode::turbo4;
  if (k == "fp16" && (v == "turbo4" || v == "turbo4-asym")) return KvMode::turbo4_asym;
  if (k == "fp16" && (v == "turbo3" || v == "turbo3-asym")) return KvMode::turbo3_asym;
  if (k == "fp16" && v == "turbo4-delegated") return parse_kv_mode(v);
  fail_param(
      "cache-type-v",
      "cache-type-v {} beside cache-type-k {}: expected f16 with f16, turbo4 or turbo3, int8 with int8, or "
      "turbo4 with turbo4",
      values, keys);
}

const char* to_string(KvMode mode) {
  for (const auto& [name, known] : kNames)
    if (known == mode) return name.data();
  return "";
}

KvPlan plan_kv(const StateLayout& layout, const KvModeOptions& options, mx::Dtype dense_type, int layers,
               const std::string& model) {
  const auto& specs = layout.kv();
  const KvMode mode = options.mode;
  const bool coded = mode != KvMode::fp16 && mode != KvMode::f32;
  if (specs.empty() && coded)
    fail_param("kv-cache-mode", "kv-cache-mode {}: no layer of {} keeps keys and values; leave it at fp16",
               to_string(mode), model);
  if (options.boundary_values < 0)
    fail_param("turbo-boundary-v", "turbo-boundary-v: expected 0 or more layers, found {}",
               options.boundary_values);
  const PageType dense = kernels::page_type(mode == KvMode::f32 ? mx::float32 : dense_type);
  const bool latent = std::any_of(specs.begin(), specs.end(), [](const KvSpec& s) { return s.latent > 0; });
  if (latent && asymmetric(mode))
    fail_param("kv-cache-mode",
               "kv-cache-mode {}: {} keeps one plane of latents for keys and values; expected int8 or turbo4",
               to_string(mode), model);

  KvPlan plan;
  const int slots = static_cast<int>(specs.size());
  int fitting = 0, widest_odd = 0;
  for (int slot = 0; slot < slots; ++slot) {
    const KvSpec& spec = specs[static_cast<size_t>(slot)];
    KvFormat format = format_of(spec, mode, dense);
    if (spec.value_dim == 0 && spec.latent == 0) format = {dense, dense};  // what chooses keys stays as it is
    if (format.dense() && coded) widest_odd = std::max(spec.key_dim, spec.value_dim);
    fitting += format.dense() ? 0 : 1;
    if (coded && options.skip_last_layer && slot == slots - 1) format = {dense, dense};
    const bool boundary = slot < options.boundary_values || slot >= slots - options.boundary_values;
    if (turbo(mode) && boundary) format = {spec.latent > 0 ? dense : format.keys, dense};
    plan.applied += format.dense() ? 0 : 1;
    if (mode == KvMode::turbo4_delegated) plan.recent.push_back(format.dense() ? 0 : kRecentTokens);
    plan.formats.push_back(format);
  }
  if (specs.empty()) {
    plan.label = "none: no layer keeps keys and values";
    return plan;
  }
  if (!coded) {
    plan.label = fmt::format("{}: applied to {} of {} layers", label_of(dense), slots, layers);
    return plan;
  }
  const bool all_recent =
      mode == KvMode::turbo4_delegated && std::any_of(specs.begin(), specs.end(), [](const KvSpec& s) {
        return s.window > 0 && s.window <= kRecentTokens && turnable(s.value_dim);
      });
  if (fitting == 0 && all_recent)
    fail_param("kv-cache-mode",
               "kv-cache-mode {}: no layer of {} sees more than the {} tokens whose values stay in 16 bits",
               to_string(mode), model, kRecentTokens);
  if (fitting == 0)
    fail_param("kv-cache-mode",
               "kv-cache-mode {}: heads of {} in {} are no power of two, so no layer can take it; int8 can",
               to_string(mode), widest_odd, model);
  if (plan.applied == 0)
    fail_param("kv-cache-mode",
               "kv-cache-mode {}: all {} layers of {} with keys and values lie within turbo-boundary-v {} of "
               "an end, "
               "or are the last one that kv-skip-last-layer keeps at 16 bits",
               to_string(mode), slots, model, options.boundary_values);
  plan.label = fmt::format("{}: applied to {} of {} layers", to_string(mode), plan.applied, layers);
  return plan;
}

}  // namespace mlxcel
