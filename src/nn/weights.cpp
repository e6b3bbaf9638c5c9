#include "nn/weights.h"

#include <fmt/ranges.h>
#include <mlx/transforms.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "base/error.h"
#include "nn/fault.h"

namespace mlxcel {

namespace {

Shape without_ones(const Shape& shape) {
  Shape kept;
  for (const int n : shape)
    if (n != 1) kept.push_back(n);
  return kept;
}

long long element_count(const Shape& shape) {
  long long count = 1;
  for (const int n : shape) count *= n;
  return count;
}

/// Buffers that exporters leave in checkpoints and that follow from the config.
bool is_rotary_buffer(const std::string& name) {
  return name.ends_with("rotary_emb.inv_freq") || name.ends_with("rotary_emb.cos_cached") ||
         name.ends_with("rotary_emb.sin_cached");
}

std::string dtype_name(mx::Dtype dtype) {
  if (dtype == mx::float32) return "F32";
  if (dtype == mx::float16) return "F16";
  if (dtype == mx::bfloat16) return "BF16";
  return fmt::format("type {} of {} bytes", static_cast<int>(dtype.val()), dtype.size());
}

std::string storage_label(const WeightInfo& info) {
  if (info.format && info.format->mode == QuantMode::affine && info.stored_as.starts_with("affine"))
    return fmt::format("affine {}-bit g{}", info.format->bits, info.format->group_size);
  return info.stored_as;
}

template <class T>
array widened(const array& data, const Shape& shape) {
  const T* from = data.data<T>();
  std::vector<float> values(data.size());
  for (size_t i = 0; i < values.size(); ++i) {
    T value;  // a mapped file need not be aligned
    std::memcpy(&value, reinterpret_cast<const char*>(from) + i * sizeof(T), sizeof(T));
    values[i] = static_cast<float>(value);
  }
  return array(values.data(), shape, mx::float32);
}

}  // namespace

array to_float32(const Weight& weight) {
  array data = weight.data;
  if (weight.quantized()) data = dequantized(weight, mx::float32);
  if (!data.is_available() || !data.flags().row_contiguous) {
    data = mx::contiguous(data);
    data.eval();
  }
  if (data.dtype() == mx::float32) return widened<float>(data, weight.shape);
  if (data.dtype() == mx::float16) return widened<mx::float16_t>(data, weight.shape);
  if (data.dtype() == mx::bfloat16) return widened<mx::bfloat16_t>(data, weight.shape);
  fail(ErrorKind::bad_checkpoint, "{}: expected F32, F16 or BF16 values, checkpoint has {}", weight.name,
       dtype_name(data.dtype()));
}

struct Weights::Books {
  enum class Mode { load, plan, record } mode = Mode::load;
  std::shared_ptr<Source> source;
  StateLayout* layout = nullptr;
  Progress progress;
  size_t done = 0, total = 0;
  std::vector<TensorShape> asked;
  std::set<std::string, std::less<>> touched;
  std::map<std::string, size_t> bytes_by_label;
  std::map<std::string, std::pair<mx::Dtype, size_t>> bytes_by_dtype;
  long long parameters = 0;
  size_t held = 0;
  bool keeps_nothing = false, two_way = false;
  std::vector<std::string> warnings;
  std::shared_ptr<AdapterBook> adapters = std::make_shared<AdapterBook>();
};

Weights Weights::load(std::shared_ptr<Source> source, StateLayout& layout, Progress progress) {
  auto books = std::make_shared<Books>();
  if (progress)
    for (const auto& name : source->names()) books->total += source->find(name).value().bytes;
  books->source = std::move(source);
  books->layout = &layout;
  books->progress = std::move(progress);
  return Weights(std::move(books), "");
}

Weights Weights::plan(std::shared_ptr<Source> source, StateLayout& layout) {
  auto books = std::make_shared<Books>();
  books->mode = Books::Mode::plan;
  books->source = std::move(source);
  books->layout = &layout;
  return Weights(std::move(books), "");
}

Weights Weights::record(StateLayout& layout) {
  auto books = std::make_shared<Books>();
  books->mode = Books::Mode::record;
  books->layout = &layout;
  return Weights(std::move(books), "");
}

std::string Weights::full(std::string_view name) const {
  return path_.empty() ? std::string(name) : name.empty() ? path_ : fmt::format("{}.{}", path_, name);
}

Weights Weights::operator/(std::string_view name) const { return Weights(books_, full(name)); }

std::vector<std::pair<int, Weights>> Weights::layers(std::string_view name, int count) const {
  std::vector<std::pair<int, Weights>> all;
  for (int i = 0; i < count; ++i) all.emplace_back(i, *this / fmt::format("{}.{}", name, i));
  return all;
}

StateLayout& Weights::layout() const { return *books_->layout; }

void Weights::keep_nothing(bool two_way) const {
  books_->keeps_nothing = true;
  books_->two_way = two_way;
}

bool Weights::keeps_nothing() const { return books_->keeps_nothing; }

bool Weights::two_way() const { return books_->two_way; }

bool Weights::has(std::string_view name) const {
  return books_->mode != Books::Mode::record && books_->source->find(full(name)).has_value();
}

std::optional<Weight> Weights::take(const std::string& name, const Shape& shape, Fit fit) const {
  Books& books = *books_;
  books.asked.push_back({name, shape});
  books.touched.insert(name);
  books.parameters += element_count(shape);
  if (books.mode == Books::Mode::record) return std::nullopt;
  const auto info = books.source->find(name);
  if (!info)
    fail(ErrorKind::bad_checkpoint, "{}: expected {}, checkpoint has no such tensor", name, to_string(shape));
  const bool dense_fit = fit == Fit::but_for_ones && !info->format;
  if (info->shape != shape && !(dense_fit && without_ones(info->shape) == without_ones(shape)))
    fail(ErrorKind::bad_checkpoint, "{}: expected {}, checkpoint has {}", name, to_string(shape),
         to_string(info->shape));
  books.bytes_by_label[storage_label(*info)] += info->bytes;
  auto& typed = books.bytes_by_dtype.try_emplace(dtype_name(info->dtype), info->dtype, 0).first->second;
  typed.second += info->bytes;
  if (books.mode == Books::Mode::plan) {
    books.held += info->bytes;
    return std::nullopt;
  }
  Weight weight = books.source->load(name);
  weight.shape = shape;
  books.done += info->bytes;
  if (books.progress) books.progress(books.done, books.total);
  return weight;
}

void Weights::hold(size_t bytes) const { books_->held += bytes; }

std::optional<array> Weights::bias_of(const std::string& name, int out, Bias bias) const {
  const bool record = books_->mode == Books::Mode::record;
  if (bias == Bias::none) return std::nullopt;
  if (bias == Bias::as_stored && (record || !books_->source->find(name))) return std::nullopt;
  const auto weight = take(name, {out}, Fit::but_for_ones);
  if (!weight) return std::nullopt;
  array values = to_float32(*weight);
  hold(values.nbytes());
  return values;
}

std::shared_ptr<AdapterBook> Weights::adapters() const { return books_->adapters; }

std::shared_ptr<const AdapterSite> Weights::site(const std::vector<std::string>& names,
                                                 const std::vector<int>& outs, int in, int experts) const {
  std::vector<AdapterSite::Part> parts;
  for (size_t i = 0; i < names.size(); ++i) parts.push_back({full(names[i]) + ".weight", outs[i]});
  return books_->adapters->add_site(std::move(parts), in, experts);
}

Linear Weights::linear(std::string_view name, int out, int in, Bias bias) const {
  return fused({std::string(name)}, {out}, in, bias);
}

Linear Weights::fused(const std::vector<std::string>& names, const std::vector<int>& outs, int in,
                      Bias bias) const {
  Linear linear{.matrix = {}, .bias = {}, .out = 0, .in = in};
  linear.site = site(names, outs, in);
  std::vector<Weight> weights;
  std::vector<float> bias_values;
  bool biased = false;
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string base = full(names[i]);
    if (auto weight = take(base + ".weight", {outs[i], in})) weights.push_back(std::move(*weight));
    const auto values = bias_of(base + ".bias", outs[i], bias);
    biased |= values.has_value();
    if (values)
      bias_values.insert(bias_values.end(), values->data<float>(), values->data<float>() + outs[i]);
    else
      bias_values.insert(bias_values.end(), static_cast<size_t>(outs[i]), 0.0f);
    linear.out += outs[i];
  }
  if (weights.size() == names.size()) {
    linear.matrix = kernels::Matrix::concatenated(weights);
    hold(linear.matrix.bytes());
  }
  if (biased) linear.bias = array(bias_values.data(), {linear.out}, mx::float32);
  return linear;
}

GatedLinear Weights::gated(std::string_view gate, std::string_view up, int out, int in, Bias bias) const {
  GatedLinear linear{.matrix = {}, .gate_bias = {}, .up_bias = {}, .out = out, .in = in};
  linear.site = site({std::string(gate), std::string(up)}, {out, out}, in);
  auto g = take(full(gate) + ".weight", {out, in});
  linear.gate_bias = bias_of(full(gate) + ".bias", out, bias);
  auto u = take(full(up) + ".weight", {out, in});
  linear.up_bias = bias_of(full(up) + ".bias", out, bias);
  if (g && u) {
    linear.matrix =
        fault("gate and up swapped") ? kernels::Matrix::gated(*u, *g) : kernels::Matrix::gated(*g, *u);
    hold(linear.matrix.bytes());
  }
  return linear;
}

Linear Weights::bank(std::string_view name, int experts, int out, int in, Bias bias) const {
  return fused_bank({std::string(name)}, experts, out, in, bias);
}

Linear Weights::fused_bank(const std::vector<std::string>& names, int experts, int out, int in,
                           Bias bias) const {
  Linear linear{.matrix = {}, .bias = {}, .out = out * static_cast<int>(names.size()), .in = in};
  linear.site = site(names, std::vector<int>(names.size(), out), in, experts);
  std::vector<Weight> weights;
  std::vector<array> biases;
  const bool record = books_->mode == Books::Mode::record;
  for (const std::string& name : names) {
    const std::string base = full(name);
    if (auto weight = take(base + ".weight", {experts, out, in})) weights.push_back(std::move(*weight));
    if (bias == Bias::none || (bias == Bias::as_stored && (record || !books_->source->find(base + ".bias"))))
      continue;
    if (const auto weight = take(base + ".bias", {experts, out})) biases.push_back(to_float32(*weight));
  }
  if (weights.size() == names.size()) {
    linear.matrix = kernels::Matrix::concatenated(weights);
    hold(linear.matrix.bytes());
  }
  if (biases.empty()) return linear;
  if (biases.size() != names.size())
    fail(ErrorKind::bad_checkpoint, "{}: some of {} have a bias, some have none", path_,
         fmt::join(names, ", "));
  linear.bias = biases.size() == 1 ? biases[0] : mx::contiguous(mx::concatenate(biases, 1));
  linear.bias->eval();
  hold(linear.bias->nbytes());
  return linear;
}

GatedLinear Weights::gated_bank(std::string_view gate, std::string_view up, int experts, int out,
                                int in) const {
  GatedLinear linear{.matrix = {}, .gate_bias = {}, .up_bias = {}, .out = out, .in = in};
  linear.site = site({std::string(gate), std::string(up)}, {out, out}, in, experts);
  const auto g = take(full(gate) + ".weight", {experts, out, in});
  const auto u = take(full(up) + ".weight", {experts, out, in});
  if (g && u) {
    linear.matrix =
        fault("gate and up swapped") ? kernels::Matrix::gated(*u, *g) : kernels::Matrix::gated(*g, *u);
    hold(linear.matrix.bytes());
  }
  return linear;
}

Embedding Weights::embedding(std::string_view name, int rows, int width, float scale) const {
  Embedding embedding{.table = {}, .rows = rows, .width = width, .scale = scale};
  if (const auto weight = take(full(name) + ".weight", {rows, width})) {
    embedding.table = kernels::Matrix::concatenated({&*weight, 1});
    hold(embedding.table.bytes());
  }
  return embedding;
}

RmsNorm Weights::rms_norm(std::string_view name, int width, float eps, float offset) const {
  return {.weight = tensor(std::string(name) + ".weight", {width}), .eps = eps, .offset = offset};
}

LayerNorm Weights::layer_norm(std::string_view name, int width, float eps, Bias bias) const {
  const std::string leaf(name);
  return {.weight = tensor(leaf + ".weight", {width}),
          .bias = bias_of(full(name) + ".bias", width, bias),
          .eps = eps};
}

array Weights::tensor(std::string_view name, const Shape& shape) const {
  const auto weight = take(full(name), shape, Fit::but_for_ones);
  if (!weight) return mx::zeros(shape, mx::float32);  // never evaluated
  array values = to_float32(*weight);
  hold(values.nbytes());
  return values;
}

std::optional<array> Weights::optional_tensor(std::string_view name, const Shape& shape) const {
  if (!has(name)) return std::nullopt;
  return tensor(name, shape);
}

std::optional<array> Weights::bias(std::string_view name, int width, Bias wanted) const {
  return bias_of(full(name), width, wanted);
}

mx::Dtype Weights::dtype(std::string_view name) const {
  if (books_->mode == Books::Mode::record) return mx::float32;
  const auto info = books_->source->find(full(name));
  return info ? info->dtype : mx::float32;
}

void Weights::leave_out(std::string_view name) const { books_->touched.insert(full(name)); }

void Weights::warn(std::string message) const { books_->warnings.push_back(std::move(message)); }

std::optional<Weight> Weights::peek(std::string_view name) const {
  if (books_->mode != Books::Mode::load || !has(name)) return std::nullopt;
  return books_->source->load(full(name));
}

WeightReport Weights::report() const {
  WeightReport report;
  report.asked = books_->asked;
  report.parameters = books_->parameters;
  report.bytes_held = books_->held;
  report.warnings = books_->warnings;
  size_t most = 0;
  for (const auto& [label, bytes] : books_->bytes_by_label)
    if (bytes > most) {
      most = bytes;
      report.label = label;
    }
  most = 0;
  for (const auto& [name, typed] : books_->bytes_by_dtype)
    if (typed.second > most) {
      most = typed.second;
      report.dtype = typed.first;
    }
  if (books_->source)
    for (const auto& name : books_->source->names())
      if (!books_->touched.contains(name) && !is_rotary_buffer(name)) report.unasked.push_back(name);
  return report;
}

}  // namespace mlxcel
