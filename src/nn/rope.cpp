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
  float anywhere(const char* key, float fallback) const {
    if (keys_.block.has(key)) return keys_.block.get<float>(key);
    return config_.get<float>(key, fallback);
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
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double slowed = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    frequencies[i] *= slowed / factor + (1.0 - slowed);
  }
  const auto magnitude = [](double scale, double m) {
    return scale <= 1.0 ? 1.0 : 0.1 * m * std::log(scale) + 1.0;
  };
  if (keys.has("attention_factor")) return keys.positive("attention_factor");
  const double mscale = keys.number("mscale", 0.0f), mscale_all = keys.number("mscale_all_dim", 0.0f);
  if (mscale != 0.0 && mscale_all != 0.0)
    return static_cast<float>(magnitude(factor, mscale) / magnitude(factor, mscale_all));
  return static_cast<float>(magnitude(factor, 1.0));
}

/// A divisor for each frequency; returns the factor on the rotated values.
float scale_longrope(std::vector<double>& frequencies, const Reader& keys, const Dims& dims) {
  const auto factors = keys.list("short_factor");
  if (keys.list("long_factor") != factors)
    fail(ErrorKind::unsupported, "{}: longrope with other factors for long prompts is not supported yet",
         keys.where());
  if (factors.size() != frequencies.size())
    fail(ErrorKind::bad_checkpoint, "{}: short_factor: expected {} numbers, found {}", keys.where(),
         frequencies.size(), factors.size());
  for (size_t i = 0; i < factors.size(); ++i) {
    if (!(factors[i] > 0.0f) || !std::isfinite(factors[i]))
      fail(ErrorKind::bad_checkpoint, "{}: short_factor: expected positive numbers, found {}", keys.where(),
           factors[i]);
    frequencies[i] /= factors[i];
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

Rope Rope::from(const Config& config, const Dims& dims, const RopeOptions& options) {
  const Reader keys(config, find_keys(config, options.layer_type));
  const double theta = keys.anywhere("rope_theta", options.theta);
  if (!(theta > 1.0) || !std::isfinite(theta))
    fail(ErrorKind::bad_checkpoint, "{}: rope_theta: expected more than 1, found {}", config.where(), theta);
  const double part = keys.anywhere("partial_rotary_factor", options.part);
  if (!(part > 0.0 && part <= 1.0))
    fail(ErrorKind::bad_checkpoint, "{}: partial_rotary_factor: expected more than 0 and at most 1, found {}",
         config.where(), part);
  const int rotated = static_cast<int>(dims.head_dim * part);
  if (rotated < 2 || rotated % 2 != 0)
    fail(ErrorKind::bad_checkpoint, "{}: {} rotated entries of a head: expected an even number",
         config.where(), rotated);
  std::vector<double> frequencies = plain_frequencies(rotated, theta);
  float scale = 1.0f;
  const std::string type = keys.type();
  if (type == "linear") {
    const double factor = keys.positive("factor");
    for (double& f : frequencies) f /= factor;
  } else if (type == "llama3") {
    scale_llama3(frequencies, keys, dims);
  } else if (type == "yarn") {
    scale = scale_yarn(frequencies, keys, dims, theta, rotated);
  } else if (type == "longrope" || type == "su") {
    scale = scale_longrope(frequencies, keys, dims);
  } else if (type != "default" && !type.empty()) {
    fail(ErrorKind::unsupported,
         "{}: rope_type \"{}\" is not supported: expected default, linear, llama3, yarn or longrope",
         config.where(), type);
  }
  return Rope(narrowed(frequencies), scale, options.interleaved);
}

array Rope::operator()(const array& x, const Step& step) const {
  if (fault("rope left out")) return x;
  if (fault("rope backwards"))
    return kernels::rope(x, mx::negative(step.positions()), table_, interleaved_, scale_);
  const bool interleaved = fault("rope pairs the other way") ? !interleaved_ : interleaved_;
  return kernels::rope(x, step.positions(), table_, interleaved, scale_);
}

array Rope::angles(const Step& step) const {
  if (recent_->positions && recent_->positions->id() == step.positions().id()) return *recent_->angles;
  const int tokens = step.count(), half = static_cast<int>(frequencies_.size());
  recent_->positions = step.positions();
  recent_->angles = kernels::native_op(
      "rope_angles", {tokens, 2, half}, mx::float32, {step.positions(), table_},
      [tokens, half, scale = scale_](const kernels::Buffers& b) {
        const auto fill = [&](int begin, int end) {
          for (ptrdiff_t t = begin; t < end; ++t) {
            float* out = b.output<float>() + t * 2 * half;
            for (int i = 0; i < half; ++i) {
              const float angle = static_cast<float>(b.input<int>(0)[t]) * b.input<float>(1)[i];
              out[i] = std::cos(angle) * scale;
              out[half + i] = std::sin(angle) * scale;
            }
          }
        };
        if (tokens < 16) return fill(0, tokens);
        WorkerPool::shared().run([&](int worker, int width) {
          const auto [begin, end] = share(tokens, worker, width);
          fill(begin, end);
        });
      });
  return *recent_->angles;
}

}  // namespace mlxcel
