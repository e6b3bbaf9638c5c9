#include "checkpoint/surgery.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>

#include "base/error.h"
#include "base/file.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/formats/planes.h"
#include "checkpoint/formats/quant_map.h"
#include "checkpoint/formats/safetensors.h"
#include "checkpoint/rules/pattern.h"
#include "checkpoint/text_config.h"
#include "checkpoint/values.h"
#include "tensor/external.h"

namespace mlxcel {
namespace {

namespace fs = std::filesystem;

constexpr double kNearlyParallel = 1e-6;

using Step = std::function<Weight(Weight)>;

bool is_float(mx::Dtype dtype) {
  return dtype == mx::float32 || dtype == mx::float16 || dtype == mx::bfloat16;
}

/// A weight whose every stored byte may be written: sources may give views of mapped files.
array copied(const array& from) {
  array out = allocated(from.shape(), from.dtype());
  std::memcpy(mutable_bytes(out), bytes_of(from), from.nbytes());
  return out;
}

array multiplied(const array& from, float factor, const std::string& name) {
  array values = float_values({name, from.shape(), from, std::nullopt, std::nullopt, std::nullopt});
  float* data = values.data<float>();
  for (size_t i = 0; i < values.size(); ++i) data[i] *= factor;
  return narrowed(values, from.dtype(), name);
}

/// The dense form a quantised weight takes where its planes cannot hold the result.
mx::Dtype dense_dtype(const WeightInfo& info) {
  return info.format && info.format->mode != QuantMode::affine ? mx::bfloat16 : info.dtype;
}

Weight edited(const Weight& weight, mx::Dtype dtype, const std::function<void(float*, size_t)>& edit) {
  array values = float_values(weight);
  edit(values.data<float>(), values.size());
  return {weight.name,  weight.shape, narrowed(values, dtype, weight.name),
          std::nullopt, std::nullopt, std::nullopt};
}

/// What a slice of zeros means for one tensor: whole rows, or columns.
struct Slice {
  bool rows = true;
  std::vector<int> indices;
};

Weight without(Weight weight, const Slice& slice, mx::Dtype dense) {
  const int64_t columns = weight.shape.size() < 2 ? 1 : weight.shape.back();
  const int64_t all_rows = weight.shape.size() < 2 ? weight.shape[0] : weight.shape[weight.shape.size() - 2];
  const int64_t banks = static_cast<int64_t>(weight.shape.size() > 2 ? weight.shape[0] : 1);
  if (weight.quantized() && slice.rows && weight.format->mode == QuantMode::affine) {
    // Zero scales and biases make every code of the row zero.
    for (auto* plane : {&weight.scales, &weight.biases}) {
      array copy = copied(**plane);
      const size_t row = copy.nbytes() / static_cast<size_t>(banks * all_rows);
      for (int64_t bank = 0; bank < banks; ++bank)
        for (const int index : slice.indices)
          std::memset(mutable_bytes(copy) + static_cast<size_t>(bank * all_rows + index) * row, 0, row);
      *plane = copy;
    }
    return weight;
  }
  return edited(weight, dense, [&](float* data, size_t) {
    for (int64_t bank = 0; bank < banks; ++bank)
      for (const int index : slice.indices) {
        float* base = data + bank * all_rows * columns;
        if (slice.rows) std::fill_n(base + index * columns, columns, 0.0f);
        if (!slice.rows)
          for (int64_t r = 0; r < all_rows; ++r) base[r * columns + index] = 0.0f;
      }
  });
}

void blend(float* base, const float* a, const float* b, size_t count, double ratio, bool slerp) {
  double wa = 1 - ratio, wb = ratio;
  if (slerp) {
    double dot = 0, aa = 0, bb = 0;
    for (size_t i = 0; i < count; ++i) {
      dot += double{a[i]} * b[i];
      aa += double{a[i]} * a[i];
      bb += double{b[i]} * b[i];
    }
    const double cosine = aa > 0 && bb > 0 ? std::clamp(dot / std::sqrt(aa * bb), -1.0, 1.0) : 1.0;
    const double angle = std::acos(cosine);
    if (std::sin(angle) > kNearlyParallel) {
      wa = std::sin((1 - ratio) * angle) / std::sin(angle);
      wb = std::sin(ratio * angle) / std::sin(angle);
    }
  }
  for (size_t i = 0; i < count; ++i) base[i] = static_cast<float>(wa * a[i] + wb * b[i]);
}

class OperatedSource final : public Source {
 public:
  OperatedSource(std::shared_ptr<Source> source, const Config& config)
      : source_(std::move(source)), config_(config) {}

  std::vector<std::string> names() const override { return source_->names(); }
  std::optional<WeightInfo> find(const std::string& name) const override {
    const auto found = infos_.find(name);
    return found == infos_.end() ? source_->find(name) : std::optional(found->second);
  }
  Weight load(const std::string& name) override {
    Weight weight = source_->load(name);
    if (const auto found = steps_.find(name); found != steps_.end())
      for (const Step& step : found->second) weight = step(std::move(weight));
    return weight;
  }

  void plan(const SurgeryOp& op) {
    size_t matched = 0, touched = 0;
    for (const std::string& name : source_->names()) {
      const auto captures = match(op.pattern, name);
      if (!captures) continue;
      ++matched;
      touched += plan_one(op, name, *captures) ? 1 : 0;
    }
    if (matched == 0) fail(ErrorKind::bad_checkpoint, "{}: matches no tensor", op.describe());
    if (touched == 0)
      fail(ErrorKind::bad_checkpoint, "{}: matches {} tensors, none of which has such slices", op.describe(),
           matched);
  }

 private:
  WeightInfo& info(const std::string& name) { return infos_.try_emplace(name, *find(name)).first->second; }

  void make_dense(WeightInfo& target, mx::Dtype dtype) const {
    target.format.reset();
    target.dtype = dtype;
    target.stored_as = dtype == mx::float32 ? "F32" : dtype == mx::float16 ? "F16" : "BF16";
    target.bytes = mx::size_of(dtype);
    for (const int extent : target.shape) target.bytes *= static_cast<size_t>(extent);
  }

  bool plan_one(const SurgeryOp& op, const std::string& name, const std::vector<Capture>& captures) {
    WeightInfo& target = info(name);
    if (!is_float(target.dtype) && !target.format)
      fail(ErrorKind::bad_checkpoint, "{}: {} is {}, not a float tensor", op.describe(), name,
           target.stored_as);
    switch (op.kind) {
      case SurgeryOp::Kind::scale:
        return plan_scale(op, name, target);
      case SurgeryOp::Kind::prune:
        return plan_prune(op, name, target);
      case SurgeryOp::Kind::replace: {
        const auto donor = open(op.source);
        const std::string key = fill(op.source_key, captures);
        const auto there = donor->find(key);
        if (!there)
          fail(ErrorKind::bad_checkpoint, "{}: {} has no {}", op.describe(), op.source.string(), key);
        if (there->shape != target.shape || there->format != target.format || there->dtype != target.dtype)
          fail(ErrorKind::bad_checkpoint, "{}: {} is {} {}, {} in {} is {} {}", op.describe(), name,
               to_string(target.shape), target.stored_as, key, op.source.string(), to_string(there->shape),
               there->stored_as);
        steps_[name].push_back([donor, key, name](const Weight&) {
          Weight out = donor->load(key);
          out.name = name;
          return out;
        });
        return true;
      }
      case SurgeryOp::Kind::add: {
        const auto donor = dense_donor(op, op.source, name, target);
        steps_[name].push_back([donor, alpha = static_cast<float>(op.alpha), name](const Weight& base) {
          const array other = float_values(donor->load(name));
          return edited(base, base.data.dtype(), [&](float* data, size_t count) {
            const float* more = other.data<float>();
            for (size_t i = 0; i < count; ++i) data[i] += alpha * more[i];
          });
        });
        return true;
      }
      case SurgeryOp::Kind::interpolate: {
        const auto first = dense_donor(op, op.source, name, target),
                   second = dense_donor(op, op.source_b, name, target);
        steps_[name].push_back([first, second, ratio = op.ratio, slerp = op.slerp, name](const Weight& base) {
          const array a = float_values(first->load(name)), b = float_values(second->load(name));
          return edited(base, base.data.dtype(), [&](float* data, size_t count) {
            blend(data, a.data<float>(), b.data<float>(), count, ratio, slerp);
          });
        });
        return true;
      }
    }
    return false;
  }

  bool plan_scale(const SurgeryOp& op, const std::string& name, WeightInfo& target) {
    const auto factor = static_cast<float>(op.factor);
    if (target.format && target.format->mode == QuantMode::affine) {
      steps_[name].push_back([factor](Weight weight) {
        weight.scales = multiplied(*weight.scales, factor, weight.name);
        weight.biases = multiplied(*weight.biases, factor, weight.name);
        return weight;
      });
      return true;
    }
    // Scales of the mx formats are powers of two or 8-bit floats: the product leaves them.
    const mx::Dtype dtype = dense_dtype(target);
    if (target.format) make_dense(target, dtype);
    steps_[name].push_back([factor, dtype](const Weight& weight) {
      return edited(weight, dtype, [&](float* data, size_t count) {
        for (size_t i = 0; i < count; ++i) data[i] *= factor;
      });
    });
    return true;
  }

  bool plan_prune(const SurgeryOp& op, const std::string& name, WeightInfo& target) {
    Slice slice;
    if (op.grain == SurgeryOp::Grain::layer) {
      const auto layer = layer_of(name);
      if (!layer || std::find(op.ids.begin(), op.ids.end(), *layer) == op.ids.end()) return false;
      const int rows = target.shape.size() < 2 ? target.shape[0] : target.shape[target.shape.size() - 2];
      for (int i = 0; i < rows; ++i) slice.indices.push_back(i);
    } else {
      const bool heads = op.grain == SurgeryOp::Grain::attention_head;
      const bool out = has_part(name, heads ? "o_proj" : "down_proj");
      const bool in =
          heads ? has_part(name, "q_proj") : has_part(name, "gate_proj") || has_part(name, "up_proj");
      const bool bias = name.ends_with(".bias");
      if ((!out && !in) || (out && bias)) return false;
      const int width = heads ? head_width(op) : 1;
      slice.rows = in;
      const int extent =
          in ? (bias ? target.shape[0] : target.shape[target.shape.size() - 2]) : target.shape.back();
      for (const int id : op.ids) {
        if (int64_t{id + 1} * width > extent)
          fail(ErrorKind::bad_checkpoint, "{}: {} has {} {}, {} is not among them", op.describe(), name,
               extent / width, heads ? "heads" : "channels", id);
        for (int i = 0; i < width; ++i) slice.indices.push_back(id * width + i);
      }
    }
    const mx::Dtype dtype = dense_dtype(target);
    if (target.format && !(slice.rows && target.format->mode == QuantMode::affine)) make_dense(target, dtype);
    steps_[name].push_back(
        [slice, dtype](Weight weight) { return without(std::move(weight), slice, dtype); });
    return true;
  }

  static bool has_part(const std::string& name, const std::string& part) {
    return ("." + name + ".").find("." + part + ".") != std::string::npos;
  }
  /// The first number that is a whole part of the name: model.layers.7.mlp...
  static std::optional<int> layer_of(const std::string& name) {
    const auto captures = match("*.#.*", name);
    if (!captures) return std::nullopt;
    for (const Capture& capture : *captures)
      if (capture.kind == '#' && capture.text.size() < 7) return std::stoi(capture.text);
    return std::nullopt;
  }
  int head_width(const SurgeryOp& op) const {
    const Config text = text_config(config_);
    if (text.has("head_dim")) return text.integer("head_dim", 1, 1 << 20);
    if (!text.has("num_attention_heads") || !text.has("hidden_size"))
      fail(ErrorKind::bad_checkpoint, "{}: the configuration does not say how wide a head is", op.describe());
    return text.integer("hidden_size", 1, 1 << 24) / text.integer("num_attention_heads", 1, 1 << 20);
  }

  std::shared_ptr<Source> dense_donor(const SurgeryOp& op, const fs::path& path, const std::string& name,
                                      const WeightInfo& target) {
    if (target.format)
      fail(ErrorKind::bad_checkpoint, "{}: {} is quantised ({}); only float tensors can be mixed",
           op.describe(), name, target.stored_as);
    const auto donor = open(path);
    const auto there = donor->find(name);
    if (!there) fail(ErrorKind::bad_checkpoint, "{}: {} has no {}", op.describe(), path.string(), name);
    if (there->shape != target.shape || there->format || !is_float(there->dtype))
      fail(ErrorKind::bad_checkpoint, "{}: {}: expected floats {}, {} has {} {}", op.describe(), name,
           to_string(target.shape), path.string(), to_string(there->shape), there->stored_as);
    return donor;
  }

  /// A model's folder or GGUF file, or a lone safetensors file.
  std::shared_ptr<Source> open(const fs::path& path) {
    auto& donor = donors_[path];
    if (donor) return donor;
    if (path.extension() == ".safetensors") {
      StoredTensors tensors;
      std::vector<std::string> warnings;
      read_safetensors_header(File::open(path), tensors, warnings);
      donor = join_planes(std::move(tensors), QuantMap{}, warnings);
    } else {
      donor = open_checkpoint(path).source;
    }
    return donor;
  }

  std::shared_ptr<Source> source_;
  Config config_;
  std::map<std::string, WeightInfo> infos_;  // of what surgery changes
  std::map<std::string, std::vector<Step>> steps_;
  std::map<fs::path, std::shared_ptr<Source>> donors_;
};

}  // namespace

std::shared_ptr<Source> operate(std::shared_ptr<Source> source, const Config& config,
                                const Surgery& surgery) {
  auto out = std::make_shared<OperatedSource>(std::move(source), config);
  for (const SurgeryOp& op : surgery.operations) out->plan(op);
  return out;
}

}  // namespace mlxcel
