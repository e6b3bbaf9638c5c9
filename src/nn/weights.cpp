#include "nn/weights.h"

#include <fmt/ranges.h>
#include <mlx/transforms.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <set>

#include "base/error.h"
#include "nn/fault.h"
#include "nn/finite.h"

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
  Shelf shelf;
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

Weights Weights::load(std::shared_ptr<Source> source, StateLayout& layout, Progress progress, Shelf shelf) {
  auto books = std::make_shared<Books>();
  if (progress)
    for (const auto& name : source->names()) books->total += source->find(name).value().bytes;
  books->source = std::move(source);
  books->layout = &layout;
  books->progress = std::move(progress);
  books->shelf = std::move(shelf);
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

std::optional<WeightInfo> Weights::enter(const std::string& name, const Shape& shape, Fit fit) const {
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
  if (books.mode == Books::Mode::plan) books.held += info->bytes;
  return info;
}

Weight Weights::read(const std::string& name, const Shape& shape, const WeightInfo& info) const {
  Weight weight = books_->source->load(name);
  require_finite(name, weight);
  weight.shape = shape;
  count(info);
  return weight;
}

void Weights::count(const WeightInfo& info) const {
  books_->done += info.bytes;
  if (books_->progress) books_->progress(books_->done, books_->total);
}

std::optional<Weight> Weights::take(const std::string& name, const Shape& shape, Fit fit) const {
  const auto info = enter(name, shape, fit);
  if (!info || books_->mode != Books::Mode::load) return std::nullopt;
  return read(name, shape, *info);
}

class Weights::Group {
 public:
  explicit Group(const Weights& weights) : w_(weights) {}

  void add(std::string name, Shape shape) {
    const auto info = w_.enter(name, shape);
    if (info && w_.books_->mode == Books::Mode::load)
      parts_.push_back({std::move(name), std::move(shape), *info});
  }

  /// Of all that was added, where all of it is to be loaded; `gated`: a gate, then an up projection.
  std::optional<kernels::Matrix> matrix(bool gated = false) const {
    if (parts_.empty()) return std::nullopt;
    std::vector<kernels::WeightForm> forms;
    for (const Part& part : parts_) {
      const bool bytes = part.info.format && part.info.format->mode != QuantMode::affine;
      forms.push_back({part.name, part.shape, part.info.format, bytes ? mx::uint8 : part.info.dtype});
    }
    const Shelf& shelf = w_.books_->shelf;
    if (shelf.find)
      if (auto found = shelf.find(forms, gated)) {
        for (const Part& part : parts_) w_.count(part.info);
        w_.hold(found->bytes());
        return found;
      }
    std::vector<Weight> weights;
    for (const Part& part : parts_) weights.push_back(w_.read(part.name, part.shape, part.info));
    auto made =
        gated ? kernels::Matrix::gated(weights[0], weights[1]) : kernels::Matrix::concatenated(weights);
    w_.hold(made.bytes());
    if (shelf.keep) shelf.keep(made);
    return made;
  }

 private:
  struct Part {
    std::string name;
    Shape shape;
    WeightInfo info;
  };
  const Weights& w_;
  std::vector<Part> parts_;
};

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
  Group group(*this);
  std::vector<float> bias_values;
  bool biased = false;
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string base = full(names[i]);
    group.add(base + ".weight", {outs[i], in});
    const auto values = bias_of(base + ".bias", outs[i], bias);
    biased |= values.has_value();
    if (values)
      bias_values.insert(bias_values.end(), values->data<float>(), values->data<float>() + outs[i]);
    else
      bias_values.insert(bias_values.end(), static_cast<size_t>(outs[i]), 0.0f);
    linear.out += outs[i];
  }
  if (auto matrix = group.matrix()) linear.matrix = std::move(*matrix);
  if (biased) linear.bias = array(bias_values.data(), {linear.out}, mx::float32);
  return linear;
}

GatedLinear Weights::gated(std::string_view gate, std::string_view up, int out, int in, Bias bias) const {
  GatedLinear linear{.matrix = {}, .gate_bias = {}, .up_bias = {}, .out = out, .in = in};
  linear.site = site({std::string(gate), std::string(up)}, {out, out}, in);
  const bool swapped = fault("gate and up swapped");
  Group group(*this);
  group.add(full(swapped ? up : gate) + ".weight", {out, in});
  linear.gate_bias = bias_of(full(gate) + ".bias", out, bias);
  group.add(full(swapped ? gate : up) + ".weight", {out, in});
  linear.up_bias = bias_of(full(up) + ".bias", out, bias);
  if (auto matrix = group.matrix(true)) linear.matrix = std::move(*matrix);
  return linear;
}

Linear Weights::bank(std::string_view name, int experts, int out, int in, Bias bias) const {
  return fused_bank({std::string(name)}, experts, out, in, bias);
}

Linear Weights::fused_bank(const std::vector<std::string>& names, int experts, int out, int in,
                           Bias bias) const {
  Linear linear{.matrix = {}, .bias = {}, .out = out * static_cast<int>(names.size()), .in = in};
  linear.site = site(names, std::vector<int>(names.size(), out), in, experts);
  Group group(*this);
  std::vector<array> biases;
  const bool record = books_->mode == Books::Mode::record;
  for (const std::string& name : names) {
    const std::string base = full(name);
    group.add(base + ".weight", {experts, out, in});
    if (bias == Bias::none || (bias == Bias::as_stored && (record || !books_->source->find(base + ".bias"))))
      continue;
    if (const auto weight = take(base + ".bias", {experts, out})) biases.push_back(to_float32(*weight));
  }
  if (auto matrix = group.matrix()) linear.matrix = std::move(*matrix);
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
  const bool swapped = fault("gate and up swapped");
  Group group(*this);
  group.add(full(swapped ? up : gate) + ".weight", {experts, out, in});
  group.add(full(swapped ? gate : up) + ".weight", {experts, out, in});
  if (auto matrix = group.matrix(true)) linear.matrix = std::move(*matrix);
  return linear;
}

namespace {

/// Tables of tokens, read through Embedding's operator(), take adapters; those of positions and kinds do not.
bool is_token_table(std::string_view name) {
  const auto dot = name.rfind('.');
  const std::string_view leaf = dot == std::string_view::npos ? name : name.substr(dot + 1);
  for (const char* known :
       {"embed_tokens", "wte", "word_embeddings", "tok_embeddings", "embeddings", "embedding", "embed"})
    if (leaf == known) return true;
  return false;
}

}  // namespace

Embedding Weights::embedding(std::string_view name, int rows, int width, float scale) const {
  Embedding embedding{.table = {}, .rows = rows, .width = width, .scale = scale};
  if (is_token_table(name)) embedding.site = books_->adapters->add_table(full(name) + ".weight", rows, width);
  Group group(*this);
  group.add(full(name) + ".weight", {rows, width});
  if (auto matrix = group.matrix()) embedding.table = std::move(*matrix);
  return embedding;
}

Linear Weights::head_of(const Embedding& embedding, std::string_view name, std::string_view table) const {
  Linear head = embedding.as_linear();
  head.site = books_->adapters->add_site({{full(name) + ".weight", embedding.rows, full(table) + ".weight"}},
                                         embedding.width, 0);
  return head;
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

array Weights::integers(std::string_view name, const Shape& shape, int below) const {
  const auto weight = take(full(name), shape);
  if (!weight) return mx::zeros(shape, mx::int32);  // never evaluated
  const auto dtype = weight->data.dtype();
  const bool whole = dtype == mx::int32 || dtype == mx::int64;
  const array stored = whole ? mx::contiguous(mx::astype(weight->data, mx::int64)) : to_float32(*weight);
  array values = mx::zeros(shape, mx::int32);
  mx::eval({stored, values});
  for (size_t i = 0; i < values.size(); ++i) {
    const double value =
        whole ? static_cast<double>(stored.data<int64_t>()[i]) : static_cast<double>(stored.data<float>()[i]);
    if (!(value >= 0.0 && value < below && value == std::floor(value)))
      fail(ErrorKind::bad_checkpoint, "{}: expected whole numbers from 0 to {}, checkpoint has {}",
           full(name), below - 1, value);
    values.data<int32_t>()[i] = static_cast<int32_t>(value);
  }
  hold(values.nbytes());
  return values;
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
