#include "nn/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>

#include "base/error.h"
#include "base/worker_pool.h"
#include "kernels/elementwise.h"
#include "kernels/primitive.h"
#include "nn/fault.h"

namespace mlxcel {

namespace {

/// The keys of one rotation, wherever the config keeps them.
struct Keys {
  Config block;    // rope_parameters (of the layer type), or rope_scaling
  bool new_style;  // rope_parameters: theta and partial factor stand inside
};

Keys find_keys(const Config& config, const std::string& layer_type) {
  const Config parameters = config.child("rope_parameters");
  if (parameters.empty()) return {config.child("rope_scaling"), false};
  if (!layer_type.empty() && parameters.is_object(layer_type)) return {parameters.child(layer_type), true};
  for (const char* type : {"full_attention", "sliding_attention"}) {
    if (!parameters.has(type)) continue;
    if (layer_type.empty())
      fail(ErrorKind::unsupported, "{}: rope_parameters per layer type, but this family has one rotation",
           config.where());
    return {parameters.child(layer_type), true};
  }
  return {parameters, true};
}

class Reader {
 public:
  Reader(const Config& config, Keys keys) : config_(config), keys_(std::move(keys)) {}

  /// From the block; theta and the partial factor also from the top level.
  float number(const char* key, float fallback) const {
    if (keys_.block.has(key)) return keys_.block.get<float>(key);
    return fallback;
  }
  float anywhere(const char* key, const char* outside, float fallback) const {
    if (keys_.block.has(key)) return keys_.block.get<float>(key);
    return config_.get<float>(outside, fallback);
  }
  bool has(const char* key) const { return keys_.block.has(key); }
  float positive(const char* key) const {
    const float value = keys_.block.get<float>(key);
    if (!(value > 0.0f) || !std::isfinite(value))
      fail(ErrorKind::bad_checkpoint, "{}: {}: expected a positive number, found {}", keys_.block.where(),
           key, value);
    return value;
  }
  std::string type() const {
    if (keys_.block.has("rope_type")) return keys_.block.get<std::string>("rope_type");
    return keys_.block.get<std::string>("type", std::string("default"));
  }
  /// The context the model was first trained for.
  int original_positions(const Dims& dims) const {
    const char* key = "original_max_position_embeddings";
    if (config_.has(key)) return config_.integer(key, 1, kMaxPositions);
    if (keys_.block.has(key)) return keys_.block.integer(key, 1, kMaxPositions);
    if (dims.max_positions > 0) return dims.max_positions;
    fail(ErrorKind::bad_checkpoint, "{}: rope scaling needs {}", config_.where(), key);
  }
  std::vector<float> list(const char* key) const { return keys_.block.get<std::vector<float>>(key); }
  const std::string& where() const { return keys_.block.where(); }
  bool flag(const char* key, bool fallback) const { return keys_.block.get<bool>(key, fallback); }

 private:
  const Config& config_;
  Keys keys_;
};

std::vector<double> plain_frequencies(int rotated, double theta) {
  std::vector<double> frequencies(static_cast<size_t>(rotated / 2));
  for (size_t i = 0; i < frequencies.size(); ++i)
    frequencies[i] = std::pow(theta, -2.0 * static_cast<double>(i) / rotated);
  return frequencies;
}

/// Llama 3.1: long waves are slowed by `factor`, short ones kept, those between blended.
void scale_llama3(std::vector<double>& frequencies, const Reader& keys, const Dims& dims) {
  const double factor = keys.positive("factor");
  const double low = keys.positive("low_freq_factor");
  const double high = keys.positive("high_freq_factor");
  const double original = keys.original_positions(dims);
  if (high <= low)
    fail(ErrorKind::bad_checkpoint,
         "rope scaling: high_freq_factor {}: expected more than low_freq_factor {}", high, low);
  for (double& f : frequencies) {
    const double wave = 2.0 * std::numbers::pi / f;
    if (wave > original / low)
      f /= factor;
    else if (wave >= original / high) {
      const double smooth = (original / wave - low) / (high - low);
      f = (1.0 - smooth) * f / factor + smooth * f;
    }
  }
}

/// NTK by parts; returns the factor on the rotated values.
float scale_yarn(std::vector<double>& frequencies, const Reader& keys, const Dims& dims, double theta,
                 int rotated) {
  const double original = keys.original_positions(dims);
  const double factor = keys.has("factor") ? keys.positive("factor") : dims.max_positions / original;
  const double fast = keys.has("beta_fast") ? keys.positive("beta_fast") : 32.0;
  const double slow = keys.has("beta_slow") ? keys.positive("beta_slow") : 1.0;
  const auto dimension_at = [&](double rotations) {
    return rotated * std::log(original / (rotations * 2.0 * std::numbers::pi)) / (2.0 * std::log(theta));
  };
  double low = dimension_at(fast), high = dimension_at(slow);
  if (keys.flag("truncate", true)) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, rotated - 1.0);
  if (low == high) high += 0.001;
  // 1 is YaRN; 0 leaves plain interpolation, which needs no other magnitude (llama.cpp's yarn_ext_factor).
  const double extrapolated = keys.number("extrapolation_factor", 1.0f);
  if (!(extrapolated >= 0.0 && extrapolated <= 1.0))
    fail(ErrorKind::bad_checkpoint, "rope scaling: extrapolation_factor {}: expected 0 to 1", extrapolated);
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double slowed = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    const double kept = (1.0 - slowed) * extrapolated;
    frequencies[i] *= (1.0 - kept) / factor + kept;
  }
  const auto magnitude = [](double scale, double m) {
    return scale <= 1.0 ? 1.0 : 0.1 * m * std::log(scale) + 1.0;
  };
  if (keys.has("attention_factor")) return keys.positive("attention_factor");
  if (extrapolated == 0.0) return 1.0f;
  const double mscale = keys.number("mscale", 0.0f), mscale_all = keys.number("mscale_all_dim", 0.0f);
  if (mscale != 0.0 && mscale_all != 0.0)
    return static_cast<float>(magnitude(factor, mscale) / magnitude(factor, mscale_all));
  return static_cast<float>(magnitude(factor, 1.0));
}

std::vector<double> divided(std::vector<double> frequencies, const Reader& keys, const char* key) {
  const auto factors = keys.list(key);
  if (factors.size() != frequencies.size())
    fail(ErrorKind::bad_checkpoint, "{}: {}: expected {} numbers, found {}", keys.where(), key,
         frequencies.size(), factors.size());
  for (size_t i = 0; i < factors.size(); ++i) {
    if (!(factors[i] > 0.0f) || !std::isfinite(factors[i]))
      fail(ErrorKind::bad_checkpoint, "{}: {}: expected positive numbers, found {}", keys.where(), key,
           factors[i]);
    frequencies[i] /= factors[i];
  }
  return frequencies;
}

/// The factor on the rotated values.
float longrope_scale(const Reader& keys, const Dims& dims, const Config& config) {
  // Phi-3.5-MoE names one for each length; its checkpoints have them equal.
  if (keys.has("short_mscale") && keys.has("long_mscale")) {
    const float scale = keys.positive("short_mscale");
    if (scale != static_cast<float>(keys.positive("long_mscale")))
      fail(ErrorKind::unsupported, "{}: short_mscale {} with another long_mscale is not supported",
           config.where(), scale);
    return scale;
  }
  if (keys.has("attention_factor")) return keys.positive("attention_factor");
  const double original = keys.original_positions(dims);
  const double factor = keys.has("factor") ? keys.positive("factor") : dims.max_positions / original;
  return factor <= 1.0 ? 1.0f : static_cast<float>(std::sqrt(1.0 + std::log(factor) / std::log(original)));
}

std::vector<float> narrowed(const std::vector<double>& values) { return {values.begin(), values.end()}; }

}  // namespace

struct Rope::Recent {
  std::optional<array> positions, angles;
};

Rope::Rope(std::vector<float> frequencies, float scale, bool interleaved)
    : frequencies_(std::move(frequencies)),
      scale_(scale),
      interleaved_(interleaved),
      table_(frequencies_.data(), {static_cast<int>(frequencies_.size())}, mx::float32),
      recent_(std::make_shared<Recent>()) {}

Rope Rope::plain(int rotated, float theta, bool interleaved) {
  return Rope(narrowed(plain_frequencies(rotated, theta)), 1.0f, interleaved);
}

Rope Rope::proportional(int head_dim, float theta, float part, float factor) {
  auto frequencies = plain_frequencies(head_dim, theta);
  const auto turning = static_cast<size_t>(static_cast<double>(part) * head_dim / 2.0);
  for (size_t i = 0; i < frequencies.size(); ++i)
    frequencies[i] = i < turning ? frequencies[i] / factor : 0.0;
  return Rope(narrowed(frequencies), 1.0f, /*interleaved=*/false);
}

Rope Rope::from(const Config& config, const Dims& dims, const RopeOptions& options) {
  const Reader keys(config, find_keys(config, options.layer_type));
  double theta = keys.anywhere("rope_theta", options.theta_key, options.theta);
  if (!(theta > 1.0) || !std::isfinite(theta))
    fail(ErrorKind::bad_checkpoint, "{}: {}: expected more than 1, found {}", config.where(),
         options.theta_key, theta);
  const double part = keys.anywhere("partial_rotary_factor", options.part_key, options.part);
  if (!(part > 0.0 && part <= 1.0))
    fail(ErrorKind::bad_checkpoint, "{}: {}: expected more than 0 and at most 1, found {}", config.where(),
         options.part_key, part);
  if (keys.type() == "proportional")
    return proportional(dims.head_dim, static_cast<float>(theta), static_cast<float>(part),
                        keys.has("factor") ? keys.positive("factor") : 1.0f);
  // Cut to a whole number; a share such as 10 / 24 is kept inexactly.
  const int rotated = static_cast<int>(dims.head_dim * part + 1e-3);
  if (rotated < 2 || rotated % 2 != 0)
    fail(ErrorKind::bad_checkpoint, "{}: {} rotated entries of a head: expected an even number",
         config.where(), rotated);
  std::string type = keys.type();
  if (options.yarn_is_longrope && type == "yarn") type = "longrope";
  // Hunyuan's word for it where positions have several axes, which are one and the same for text.
  if (options.ntk_alpha && type == "xdrope") type = "dynamic";
  const double exponent = rotated > 2 ? rotated / (rotated - 2.0) : 1.0;
  const bool alpha = type == "dynamic" && options.ntk_alpha && keys.has("alpha");
  if (alpha) theta *= std::pow(keys.positive("alpha"), exponent);
  std::vector<double> frequencies = plain_frequencies(rotated, theta);
  float scale = 1.0f;
  int limit = 0;
  std::function<std::vector<float>(int)> beyond;
  if (type == "linear") {
    const double factor = keys.positive("factor");
    for (double& f : frequencies) f /= factor;
  } else if (type == "llama3") {
    scale_llama3(frequencies, keys, dims);
  } else if (type == "yarn" || type == "deepseek_yarn" || type == "telechat3-yarn") {
    scale = scale_yarn(frequencies, keys, dims, theta, rotated);
  } else if (type == "longrope" || type == "su") {
    scale = longrope_scale(keys, dims, config);
    const auto longer = narrowed(divided(frequencies, keys, "long_factor"));
    frequencies = divided(frequencies, keys, "short_factor");
    if (longer != narrowed(frequencies)) {
      limit = keys.original_positions(dims);
      beyond = [longer](int) { return longer; };
    }
  } else if (type == "dynamic" && !alpha) {
    const double factor = keys.positive("factor");
    if (dims.max_positions < 1)
      fail(ErrorKind::bad_checkpoint, "{}: dynamic rope scaling needs max_position_embeddings",
           config.where());
    limit = dims.max_positions;
    beyond = [=](int horizon) {
      const double grown = factor * horizon / limit - (factor - 1.0);
      return narrowed(plain_frequencies(rotated, theta * std::pow(grown, exponent)));
    };
  } else if (type != "default" && type != "mrope" && !type.empty() && !alpha) {
    // "mrope" turns by three positions, which are one and the same where there is text only.
    fail(ErrorKind::unsupported,
         "{}: rope_type \"{}\" is not supported: expected default, linear, dynamic, llama3, yarn or longrope",
         config.where(), type);
  }
  if (options.backwards) {
    if (limit > 0)
      fail(ErrorKind::unsupported, "{}: a backward rotation with rope_type {} is not supported",
           config.where(), type);
    for (double& f : frequencies) f = -f;
  }
  Rope rope(narrowed(frequencies), scale, options.interleaved);
  rope.limit_ = limit;
  rope.grows_ = type == "dynamic" && limit > 0;
  rope.beyond_ = std::move(beyond);
  return rope;
}

bool Rope::within(const Step& step) const {
  if (limit_ == 0 || fault("rope ignores length")) return true;
  return std::all_of(step.rows().begin(), step.rows().end(),
                     [&](const StepRow& row) { return row.horizon <= limit_; });
}

std::vector<float> Rope::frequencies_for(int horizon) const {
  return limit_ > 0 && horizon > limit_ ? beyond_(horizon) : frequencies_;
}

array Rope::operator()(const array& x, const Step& step) const {
  if (fault("rope left out")) return x;
  if (fault("rope backwards"))
    return kernels::rope(x, mx::negative(step.positions()), table_, interleaved_, scale_);
  const bool interleaved = fault("rope pairs the other way") ? !interleaved_ : interleaved_;
  if (within(step)) return kernels::rope(x, step.positions(), table_, interleaved, scale_);
  std::vector<array> rows;
  for (const StepRow& row : step.rows()) {
    const auto frequencies = frequencies_for(row.horizon);
    const array table(frequencies.data(), {static_cast<int>(frequencies.size())}, mx::float32);
    const int end = row.first + row.count;
    rows.push_back(kernels::rope(mx::slice(x, {row.first, 0, 0}, {end, x.shape(1), x.shape(2)}),
                                 mx::slice(step.positions(), {row.first}, {end}), table, interleaved,
                                 scale_));
  }
  return mx::concatenate(rows, 0);
}

array Rope::angles(const Step& step) const {
  if (recent_->positions && recent_->positions->id() == step.positions().id()) return *recent_->angles;
  const int tokens = step.count(), half = static_cast<int>(frequencies_.size());
  recent_->positions = step.positions();
  std::vector<int> table_of;  // of each token, where rows differ
  array tables = table_;      // [half], or one a row
  if (!within(step)) {
    std::vector<float> all;
    for (size_t r = 0; r < step.rows().size(); ++r) {
      const auto frequencies = frequencies_for(step.rows()[r].horizon);
      all.insert(all.end(), frequencies.begin(), frequencies.end());
      table_of.insert(table_of.end(), static_cast<size_t>(step.rows()[r].count), static_cast<int>(r));
    }
    tables = array(all.data(), {static_cast<int>(step.rows().size()), half}, mx::float32);
  }
  recent_->angles = kernels::native_ops_at_once(
      "rope_angles", {{tokens, 2 * half}}, {mx::float32}, {step.positions(), tables},
      [tokens, half, scale = scale_, table_of = std::move(table_of)](const kernels::Buffers& b) {
        const auto fill = [&](int begin, int end) {
          for (ptrdiff_t t = begin; t < end; ++t) {
            float* out = b.output<float>() + t * 2 * half;
            const float* table =
                b.input<float>(1) + (table_of.empty() ? 0 : table_of[static_cast<size_t>(t)] * half);
            for (int i = 0; i < half; ++i) {
              const float angle = static_cast<float>(b.input<int>(0)[t]) * table[i];
              out[i] = std::cos(angle) * scale;
              out[half + i] = std::sin(angle) * scale;
            }
          }
        };
        if (tokens < 16) return fill(0, tokens);
        WorkerPool::shared().each(tokens, 8, fill);
      })[0];
  return *recent_->angles;
}

}  // namespace mlxcel
