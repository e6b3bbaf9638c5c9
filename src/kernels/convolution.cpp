#include "kernels/convolution.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <string>

#include "base/error.h"
#include "kernels/convolution_plan.h"
#include "kernels/elementwise.h"
#include "kernels/packed.h"
#include "kernels/primitive.h"
#include "tensor/external.h"

namespace mlxcel::kernels {
namespace {

constexpr int kAxes = ConvolutionPlan::kAxes;
// What a stride, a dilation or padding may be, and a window; beyond any model's, below any overflow.
constexpr int kMostStep = 1 << 20;
constexpr int64_t kMostWindow = 1 << 28;
constexpr int64_t kMostPositions = int64_t{1} << 30, kMostValues = int64_t{1} << 34;

array as(const array& a, mx::Dtype dtype) { return a.dtype() == dtype ? a : mx::astype(a, dtype); }

/// An evaluated array in another shape of as many elements; copied only where it is strided.
array reshaped(const array& a, const Shape& shape) {
  if (a.flags().row_contiguous)
    return external(const_cast<std::byte*>(bytes_of(a)), shape, a.dtype(), std::make_shared<array>(a));
  array copy = allocated(shape, a.dtype());
  Gather{a.data<char>(), reinterpret_cast<char*>(mutable_bytes(copy)), a.shape(), a.strides(), a.itemsize()}
      .run();
  return copy;
}

}  // namespace

struct Convolution::Storage {
  KernelMode mode = KernelMode::native;
  std::string name;
  Shape kernel;
  ConvolutionForm form;
  int inputs = 0, outputs = 0;  // channels of all groups
  std::optional<array> bias;
  std::vector<Matrix> groups;      // native, by group
  std::shared_ptr<float> taps;     // native, depthwise: see convolve_depthwise
  std::optional<Weight> weight;    // the twin's
  int phases = 0, cut_before = 0;  // transposed: outputs of a position, those cut off in front
  int cut_after = 0;               // and behind, of all phases of all positions

  int axes() const { return static_cast<int>(kernel.size()); }
  size_t axis_count() const { return kernel.size(); }
  bool depthwise() const { return form.groups > 1 && form.groups == inputs; }
  int taps_count() const {
    int64_t n = 1;
    for (const auto k : kernel) n *= k;
    return static_cast<int>(n);
  }
  /// Of taps.
  size_t depthwise_bytes() const {
    return static_cast<size_t>((outputs + kDepthwiseBlock - 1) / kDepthwiseBlock) *
           static_cast<size_t>(taps_count()) * kDepthwiseBlock * sizeof(float);
  }
  ConvolutionPlan plan(const Shape& x) const;
};

namespace {

using Storage = Convolution::Storage;

/// `numbers` has one an axis, each of at least `least`; filled with `missing` where there are none.
void settle(const std::string& name, const char* what, std::vector<int>& numbers, size_t axes, int least,
            int missing) {
  if (numbers.empty()) numbers.assign(axes, missing);
  if (numbers.size() != axes)
    fail(ErrorKind::bad_checkpoint, "{}: expected a {} for each of {} axes, found {}", name, what, axes,
         numbers.size());
  for (const int n : numbers)
    if (n < least || n > kMostStep)
      fail(ErrorKind::bad_checkpoint, "{}: expected a {} from {} to {}, found {}", name, what, least,
           kMostStep, n);
}

void check_bias(const std::string& name, const std::optional<array>& bias, int outputs) {
  if (!bias) return;
  if (bias->shape() != Shape{outputs})
    fail(ErrorKind::bad_checkpoint, "{}: bias: expected [{}], found {}", name, outputs,
         mlxcel::to_string(bias->shape()));
  if (!bias->is_available())
    fail(ErrorKind::internal, "{}: bias must be evaluated before a convolution is made of it", name);
}

/// The shape's own limits, before anything is computed with it.
void check_weight_shape(const Weight& weight, int groups) {
  const auto& shape = weight.shape;
  if (shape.size() < 3 || shape.size() > 2 + kAxes)
    fail(ErrorKind::bad_checkpoint, "{}: expected [out, kernel of 1 to {} axes, in], found {}", weight.name,
         kAxes, mlxcel::to_string(shape));
  int64_t window = 1;
  for (const auto extent : shape)
    if (extent < 1)
      fail(ErrorKind::bad_checkpoint, "{}: expected positive extents, found {}", weight.name,
           mlxcel::to_string(shape));
  for (size_t a = 1; a < shape.size(); ++a)
    if ((window *= shape[a]) > kMostWindow)
      fail(ErrorKind::bad_checkpoint, "{}: expected a window of at most {} values, found {}", weight.name,
           kMostWindow, mlxcel::to_string(shape));
  if (groups < 1 || shape[0] % groups != 0)
    fail(ErrorKind::bad_checkpoint, "{}: expected groups that divide {} outputs, found {}", weight.name,
         shape[0], groups);
  if (int64_t{groups} * shape.back() > kMostWindow)
    fail(ErrorKind::bad_checkpoint, "{}: expected at most {} input channels, found {} groups of {}",
         weight.name, kMostWindow, groups, shape.back());
}

/// Rows [group * rows, ...) of a plane [out, ..., width] as [rows, everything else].
array group_rows(const array& plane, int groups, int group) {
  const int rows = plane.shape(0) / groups;
  const auto columns = static_cast<int>(plane.size() / static_cast<size_t>(plane.shape(0)));
  const array all = reshaped(plane, {plane.shape(0), columns});
  return groups == 1 ? all : row_view(all, group * rows, rows);
}

/// A group's kernels as rows of a matrix, [outputs, taps * inputs].
Weight rows_of(const Weight& weight, int groups, int group) {
  const auto plane = [&](const array& a) { return group_rows(a, groups, group); };
  Weight rows{weight.name, {}, plane(weight.data), std::nullopt, std::nullopt, weight.format};
  if (weight.scales) rows.scales = plane(*weight.scales);
  if (weight.biases) rows.biases = plane(*weight.biases);
  int width = 1;
  for (size_t a = 1; a < weight.shape.size(); ++a) width *= weight.shape[a];
  rows.shape = {weight.shape[0] / groups, width};
  return rows;
}

/// [out, taps, 1] as blocks of channels.
std::shared_ptr<float> depthwise_taps(const Weight& weight, size_t bytes) {
  const Weight rows = rows_of(weight, 1, 0);
  const Matrix matrix = Matrix::concatenated(std::span(&rows, 1));
  const int outputs = rows.shape[0], taps = rows.shape[1];
  const std::shared_ptr<uint8_t> memory = packed_memory(bytes);
  std::shared_ptr<float> packed(memory, reinterpret_cast<float*>(memory.get()));
  std::memset(packed.get(), 0, bytes);
  std::vector<float> row(static_cast<size_t>(taps));
  for (int o = 0; o < outputs; ++o) {
    decode_row(*matrix.storage(), o, row.data());
    float* to = packed.get() + static_cast<ptrdiff_t>(o / kDepthwiseBlock) * taps * kDepthwiseBlock +
                o % kDepthwiseBlock;
    for (int k = 0; k < taps; ++k, to += kDepthwiseBlock) *to = row[static_cast<size_t>(k)];
  }
  return packed;
}

/// That the planes are there and hold what the shape says. A quantised window may be stored flat, [out, taps
/// * in]: its groups then go over from tap to tap.
void check_planes(const Weight& weight) {
  const auto check = [&](const char* what, const array& plane, int64_t numerator, int64_t denominator) {
    int64_t width = numerator;
    for (size_t a = 1; a < weight.shape.size(); ++a) width *= weight.shape[a];
    if (plane.ndim() < 2 || plane.shape(0) != weight.shape[0] || width % denominator != 0 ||
        static_cast<int64_t>(plane.size()) != weight.shape[0] * (width / denominator))
      fail(ErrorKind::bad_checkpoint, "{}: {}: expected {} rows for windows {}, found {}", weight.name, what,
           weight.shape[0], mlxcel::to_string(weight.shape), mlxcel::to_string(plane.shape()));
    if (!plane.is_available())
      fail(ErrorKind::internal, "{}: {} must be evaluated before a convolution is made of it", weight.name,
           what);
  };
  if (!weight.format) {
    if (weight.data.shape() != weight.shape)
      fail(ErrorKind::bad_checkpoint, "{}: expected {}, found {}", weight.name,
           mlxcel::to_string(weight.shape), mlxcel::to_string(weight.data.shape()));
    return check("weight", weight.data, 1, 1);
  }
  check("weight", weight.data, weight.format->bits, 32);
  if (weight.scales) check("scales", *weight.scales, 1, weight.format->group_size);
  if (weight.biases) check("biases", *weight.biases, 1, weight.format->group_size);
}

std::shared_ptr<Storage> make(const Weight& weight, const std::optional<array>& bias,
                              const ConvolutionForm& form) {
  check_weight_shape(weight, form.groups);
  check_bias(weight.name, bias, weight.shape[0]);
  check_planes(weight);
  check_weight(rows_of(weight, 1, 0));
  auto s = std::make_shared<Storage>();
  s->mode = kernel_mode();
  s->name = weight.name;
  s->kernel = Shape(weight.shape.begin() + 1, weight.shape.end() - 1);
  s->form = form;
  settle(s->name, "stride", s->form.stride, s->axis_count(), 1, 1);
  settle(s->name, "dilation", s->form.dilation, s->axis_count(), 1, 1);
  settle(s->name, "padding in front", s->form.before, s->axis_count(), 0, 0);
  settle(s->name, "padding behind", s->form.after, s->axis_count(), 0, 0);
  s->inputs = form.groups * weight.shape.back();
  s->outputs = weight.shape[0];
  s->bias = bias;
  if (s->mode == KernelMode::reference) {
    s->weight = weight.format ? rows_of(weight, 1, 0) : weight;
    s->weight->shape = weight.shape;
  } else if (s->depthwise()) {
    s->taps = depthwise_taps(weight, s->depthwise_bytes());
  } else {
    for (int g = 0; g < form.groups; ++g) {
      const Weight rows = rows_of(weight, form.groups, g);
      s->groups.push_back(Matrix::concatenated(std::span(&rows, 1)));
    }
  }
  return s;
}

// ---- The twin -------------------------------------------------------------------------------------

/// [from, to) of an array's last axis.
array last_axis(const array& a, int from, int to) {
  Shape start(a.ndim(), 0), stop = a.shape();
  start.back() = from;
  stop.back() = to;
  return mx::slice(a, start, stop);
}

array reference(const Storage& s, const array& x) {
  const Weight& w = *s.weight;
  const array kernels = w.format ? mx::reshape(dequantized(w, x.dtype()), w.shape) : as(w.data, x.dtype());
  const ConvolutionForm& f = s.form;
  const auto convolve = [&](const array& in, const array& weight, int groups) {
    return mx::conv_general(in, weight, f.stride, f.before, f.after, f.dilation, std::vector<int>{}, groups);
  };
  array y = x;
  if (s.axes() == kAxes && f.groups > 1) {  // MLX has groups on one and two axes only
    std::vector<array> parts;
    const int each = s.inputs / f.groups, rows = s.outputs / f.groups;
    for (int g = 0; g < f.groups; ++g) {
      Shape start(w.shape.size(), 0), stop = w.shape;
      start[0] = g * rows;
      stop[0] = start[0] + rows;
      parts.push_back(convolve(last_axis(x, g * each, (g + 1) * each), mx::slice(kernels, start, stop), 1));
    }
    y = mx::concatenate(parts, kAxes + 1);
  } else {
    y = convolve(x, kernels, f.groups);
  }
  if (s.bias) y = mx::add(y, as(*s.bias, x.dtype()));
  return activate(y, f.activation);
}

array native(const std::shared_ptr<const Storage>& s, const array& x, const ConvolutionPlan& plan,
             Shape shape) {
  std::vector<array> inputs{as(x, mx::float32)};
  if (s->bias) inputs.push_back(as(*s->bias, mx::float32));
  return native_op("convolution", std::move(shape), mx::float32, std::move(inputs),
                   [s, plan](const Buffers& b) {
                     const float* const bias = s->bias ? b.input<float>(1) : nullptr;
                     if (s->taps)
                       convolve_depthwise(plan, s->taps.get(), b.input<float>(0), bias, b.output<float>());
                     else
                       convolve_by_products(plan, s->groups, b.input<float>(0), bias, b.output<float>());
                   });
}

}  // namespace

/// How the storage goes over an input of this shape; before what a transposed one cuts off.
ConvolutionPlan Convolution::Storage::plan(const Shape& x) const {
  if (x.size() != axis_count() + 2 || x.back() != inputs)
    fail(ErrorKind::internal, "{}: expected an input of {} axes that ends in {} channels, got {}", name,
         axis_count() + 2, inputs, mlxcel::to_string(x));
  ConvolutionPlan p;
  p.images = x[0];
  p.inputs = inputs;
  p.outputs = outputs;
  p.groups = form.groups;
  p.precision = precision();
  p.activation = form.activation;
  int64_t positions = x[0], read = x[0];
  for (size_t a = 0; a < axis_count(); ++a) {
    ConvolutionAxis& axis = p.axis[static_cast<size_t>(kAxes) - axis_count() + a];
    axis = {x[a + 1], 1, kernel[a], form.stride[a], form.dilation[a], form.before[a]};
    const int64_t padded = int64_t{axis.in} + form.before[a] + form.after[a];
    if (axis.in < 1 || padded < axis.span())
      fail(ErrorKind::invalid_request,
           "{}: an input of {} has {} positions on axis {}, {} with padding: expected {}", name,
           mlxcel::to_string(x), axis.in, a + 1, padded, axis.span());
    axis.out = static_cast<int>((padded - axis.span()) / axis.stride + 1);
    positions = std::min(positions * axis.out, kMostPositions + 1);
    read = std::min(read * axis.in, kMostPositions + 1);
  }
  if (positions > kMostPositions || read > kMostPositions || positions * outputs > kMostValues)
    fail(ErrorKind::invalid_request,
         "{}: an input of {} has {} positions and makes {} of {} channels: expected at most {}", name,
         mlxcel::to_string(x), read, positions, outputs, std::min(kMostPositions, kMostValues / outputs));
  return p;
}

Convolution::Convolution(const Weight& weight, const std::optional<array>& bias, const ConvolutionForm& form)
    : storage_(make(weight, bias, form)) {}

Convolution Convolution::transposed(const Weight& weight, const std::optional<array>& bias,
                                    const ConvolutionForm& form) {
  check_weight_shape(weight, form.groups);
  if (weight.format || weight.shape.size() != 3 || form.groups != 1)
    fail(ErrorKind::unsupported,
         "{}: expected a dense transposed convolution of one axis without groups, found {} in {} groups",
         weight.name, mlxcel::to_string(weight.shape), form.groups);
  check_planes(weight);
  check_bias(weight.name, bias, weight.shape[0]);
  ConvolutionForm f = form;
  settle(weight.name, "stride", f.stride, 1, 1, 1);
  settle(weight.name, "dilation", f.dilation, 1, 1, 1);
  settle(weight.name, "cut in front", f.before, 1, 0, 0);
  settle(weight.name, "cut behind", f.after, 1, -kMostStep, 0);
  if (f.dilation[0] != 1)
    fail(ErrorKind::unsupported, "{}: expected no dilation of a transposed convolution, found {}",
         weight.name, f.dilation[0]);
  // Output m * stride + phase is a window over the inputs up to m, of every stride-th tap from `phase` on,
  // the last tap first: one convolution with an output channel a phase.
  const int stride = f.stride[0], outputs = weight.shape[0], taps = weight.shape[1], inputs = weight.shape[2];
  const int reach = (taps + stride - 1) / stride, spare = reach * stride - taps;
  if (f.after[0] < -spare)
    fail(ErrorKind::bad_checkpoint, "{}: expected at most {} positions behind the last, found {}",
         weight.name, spare, -f.after[0]);
  if (int64_t{stride} * outputs * reach * inputs > 4 * kMostWindow)
    fail(ErrorKind::bad_checkpoint, "{}: {} with stride {} is beyond what one convolution holds", weight.name,
         mlxcel::to_string(weight.shape), stride);
  const array flat = reshaped(weight.data, {outputs, taps, inputs});
  Weight phases{weight.name,
                {stride * outputs, reach, inputs},
                allocated({stride * outputs, reach, inputs}, weight.data.dtype()),
                std::nullopt,
                std::nullopt,
                std::nullopt};
  const size_t row = static_cast<size_t>(inputs) * weight.data.itemsize();
  std::byte* to = mutable_bytes(phases.data);
  for (int phase = 0; phase < stride; ++phase)
    for (int o = 0; o < outputs; ++o)
      for (int j = 0; j < reach; ++j, to += row) {
        const int tap = phase + (reach - 1 - j) * stride;
        if (tap < taps)
          std::memcpy(
              to,
              bytes_of(flat) +
                  (static_cast<size_t>(o) * static_cast<size_t>(taps) + static_cast<size_t>(tap)) * row,
              row);
        else
          std::memset(to, 0, row);
      }
  std::optional<array> biases;
  if (bias) {
    const array one = reshaped(*bias, {outputs});
    biases = allocated({stride * outputs}, bias->dtype());
    for (int phase = 0; phase < stride; ++phase)
      std::memcpy(mutable_bytes(*biases) + static_cast<size_t>(phase) * one.nbytes(), bytes_of(one),
                  one.nbytes());
  }
  const auto s =
      make(phases, biases, {.before = {reach - 1}, .after = {reach - 1}, .activation = f.activation});
  s->phases = stride;
  s->cut_before = f.before[0];
  s->cut_after = spare + f.after[0];
  return Convolution(s);
}

Shape Convolution::output_shape(const Shape& x) const {
  const Storage& s = *storage_;
  const ConvolutionPlan p = s.plan(x);
  Shape shape{p.images};
  for (int a = kAxes - s.axes(); a < kAxes; ++a) shape.push_back(p.axis[a].out);
  shape.push_back(s.outputs);
  if (s.phases == 0) return shape;
  const int64_t length = int64_t{shape[1]} * s.phases - s.cut_before - s.cut_after;
  if (length < 1)
    fail(ErrorKind::invalid_request, "{}: of an input of {} positions {} are left: expected 1", s.name, x[1],
         length);
  shape[1] = static_cast<int>(length);
  shape[2] /= s.phases;
  return shape;
}

array Convolution::operator()(const array& x) const {
  const Storage& s = *storage_;
  const Shape shape = output_shape(x.shape());
  if (x.shape(0) == 0) return mx::zeros(shape, mx::float32);
  const ConvolutionPlan plan = s.plan(x.shape());
  Shape whole = shape;
  if (s.phases > 0) {
    whole[1] = plan.axis[kAxes - 1].out;
    whole[2] = s.outputs;
  }
  const array y = s.mode == KernelMode::reference ? reference(s, x) : native(storage_, x, plan, whole);
  if (s.phases == 0) return y;
  return mx::slice(mx::reshape(y, {whole[0], whole[1] * s.phases, shape[2]}), {0, s.cut_before, 0},
                   {shape[0], s.cut_before + shape[1], shape[2]});
}

size_t Convolution::bytes() const {
  const Storage& s = *storage_;
  size_t total = s.taps ? s.depthwise_bytes() : 0;
  for (const Matrix& m : s.groups) total += m.bytes();
  if (s.weight)
    total += s.weight->data.nbytes() + (s.weight->scales ? s.weight->scales->nbytes() : 0) +
             (s.weight->biases ? s.weight->biases->nbytes() : 0);
  return total;
}

}  // namespace mlxcel::kernels
