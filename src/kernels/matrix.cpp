#include "kernels/matrix.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>

#include "base/error.h"
#include "base/worker_pool.h"
#include "kernels/elementwise.h"
#include "kernels/experts.h"
#include "kernels/isa/dispatch.h"
#include "kernels/matmul.h"
#include "kernels/packed.h"
#include "kernels/primitive.h"

namespace mlxcel::kernels {
namespace {

std::atomic<Precision>& current_precision() {
  static std::atomic<Precision> value{[] {
    const char* text = std::getenv("MLXCEL_CPU_PRECISION");
    return text && *text ? parse_precision(text) : Precision::high;
  }()};
  return value;
}

std::shared_ptr<Matrix::Storage> store(std::span<const Weight> weights, bool gated) {
  std::vector<WeightForm> forms;
  for (const Weight& weight : weights) {
    check_weight(weight);
    forms.push_back(form_of(weight));
  }
  auto storage = make_storage(forms, gated);
  if (storage->mode == KernelMode::reference)
    storage->planes.assign(weights.begin(), weights.end());
  else
    pack(*storage, weights, gated);
  return storage;
}

void expect_shape(const char* what, const array& a, const Shape& want) {
  if (a.shape() != want)
    fail(ErrorKind::internal, "{}: expected {}, got {}", what, to_string(want), to_string(a.shape()));
}

array as(const array& a, mx::Dtype dtype) { return a.dtype() == dtype ? a : mx::astype(a, dtype); }

// ---- The twin: MLX's own operations on the file's planes ------------------------------------------

array plain_product(const array& x, const Weight& w) {
  if (!w.format) return mx::matmul(x, mx::transpose(w.data));
  return mx::quantized_matmul(x, w.data, *w.scales, w.biases, true, w.format->group_size, w.format->bits,
                              to_string(w.format->mode));
}

/// x [tokens, k or 1, columns], experts [tokens, k] -> [tokens, k, rows]
array plain_gather(const array& x, const Weight& w, const array& experts) {
  const array rows = mx::expand_dims(x, 2);  // [tokens, k or 1, 1, columns]
  const array ids = as(experts, mx::uint32);
  if (!w.format)
    return mx::squeeze(mx::gather_mm(rows, mx::swapaxes(as(w.data, x.dtype()), 1, 2), std::nullopt, ids), 2);
  return mx::squeeze(mx::gather_qmm(rows, w.data, *w.scales, w.biases, std::nullopt, ids, true,
                                    w.format->group_size, w.format->bits, to_string(w.format->mode)),
                     2);
}

array joined(std::vector<array> parts, int axis) {
  return parts.size() == 1 ? parts[0] : mx::concatenate(std::move(parts), axis);
}

// ---- Native nodes ---------------------------------------------------------------------------------

Product product_of(const Matrix::Storage& weights, Precision precision, Activation activation) {
  Product p;
  p.weights = &weights;
  p.precision = precision;
  p.activation = activation;
  p.out_columns = weights.fused_gate() ? weights.rows / 2 : weights.rows;
  return p;
}

array native_product(const array& x, const Matrix& w, Activation activation, const std::optional<array>& bias,
                     const std::optional<array>& up_bias, const std::optional<array>& residual) {
  const auto& storage = w.storage();
  const int tokens = x.shape(0), columns = storage->fused_gate() ? storage->rows / 2 : storage->rows;
  std::vector<array> inputs{as(x, mx::float32)};
  const auto append = [&](const std::optional<array>& a) {
    if (!a) return -1;
    inputs.push_back(as(*a, mx::float32));
    return static_cast<int>(inputs.size()) - 1;
  };
  const int at_bias = append(bias), at_up = append(up_bias), at_residual = append(residual);
  return native_op(
      "matmul", {tokens, columns}, mx::float32, std::move(inputs),
      [storage, precision = precision(), activation, tokens, at_bias, at_up,
       at_residual](const Buffers& buffers) {
        Product p = product_of(*storage, precision, activation);
        p.x = buffers.input<float>(0);
        p.out = buffers.output<float>();
        p.x_stride = buffers.stride[0];
        if (at_bias > 0) p.bias = buffers.input<float>(at_bias);
        if (at_up > 0) p.up_bias = buffers.input<float>(at_up);
        if (at_residual > 0) p.residual = buffers.input<float>(at_residual);
        static thread_local std::vector<Job> jobs;
        jobs.assign(1, {0, 0, tokens});
        run_product(p, jobs);
      },
      1u);
}

/// Rows grouped by expert, each group in the order of its tokens.
array native_gather(const array& x, const Matrix& bank, const array& experts, Activation activation) {
  const auto& storage = bank.storage();
  const int tokens = experts.shape(0), k = experts.shape(1);
  const int columns = storage->fused_gate() ? storage->rows / 2 : storage->rows;
  const bool own_rows = x.ndim() == 3;  // a row of x for every (token, choice)
  return native_op(
      "gather_matmul", {tokens, k, columns}, mx::float32, {as(x, mx::float32), as(experts, mx::int32)},
      [storage, precision = precision(), activation, tokens, k, own_rows](const Buffers& buffers) {
        Product p = product_of(*storage, precision, activation);
        p.x = buffers.input<float>(0);
        p.out = buffers.output<float>();
        const int* ids = buffers.input<int>(1);
        for (int i = 0; i < tokens * k; ++i)
          if (ids[i] < 0 || ids[i] >= storage->experts)
            fail(ErrorKind::internal, "gather_matmul: expert {} of {} does not exist", ids[i],
                 storage->experts);
        static thread_local ExpertDeal dealt;
        dealt.deal(ids, tokens * k, k, storage->experts);
        p.sources = own_rows ? dealt.choices.data() : dealt.tokens.data();
        p.targets = dealt.choices.data();
        run_product(p, dealt.jobs);
      });
}

array gate_halves(const array& both, Activation activation) {
  const int axis = static_cast<int>(both.ndim()) - 1;
  const auto parts = mx::split(both, 2, axis);
  return mx::multiply(activate(parts[0], activation), parts[1]);
}

}  // namespace

Precision precision() { return current_precision().load(std::memory_order_relaxed); }
void set_precision(Precision value) { current_precision().store(value, std::memory_order_relaxed); }

Precision parse_precision(const std::string& text) {
  for (const Precision value : {Precision::high, Precision::fast, Precision::exact})
    if (text == to_string(value)) return value;
  fail_param("cpu-precision", "CPU precision {}: expected high, fast or exact", text);
}

const char* to_string(Precision value) {
  switch (value) {
    case Precision::high:
      return "high";
    case Precision::fast:
      return "fast";
    case Precision::exact:
      return "exact";
  }
  return "?";
}

const char* isa_name() { return to_string(isa()); }

Matrix Matrix::concatenated(std::span<const Weight> weights) { return Matrix(store(weights, false)); }

Matrix Matrix::gated(const Weight& gate, const Weight& up) {
  const Weight both[] = {gate, up};
  return Matrix(store(both, true));
}

int Matrix::rows() const { return storage_->rows; }
int Matrix::columns() const { return storage_->columns; }
int Matrix::experts() const { return storage_->experts; }
bool Matrix::is_gated() const { return storage_->fused_gate(); }
std::vector<Weight> Matrix::unpack() const { return kernels::unpack(*storage_); }

size_t Matrix::bytes() const {
  size_t total = 0;
  for (const Segment& s : storage_->segments) total += storage_->bytes_of(s);
  for (const Weight& w : storage_->planes)
    total += w.data.nbytes() + (w.scales ? w.scales->nbytes() : 0) + (w.biases ? w.biases->nbytes() : 0);
  return total;
}

array matmul(const array& x, const Matrix& w, const std::optional<array>& bias,
             const std::optional<array>& residual) {
  const auto& storage = *w.storage();
  if (storage.experts)
    fail(ErrorKind::internal, "matmul: the matrix is a bank of {} experts", storage.experts);
  if (storage.fused_gate()) fail(ErrorKind::internal, "matmul: the matrix is laid out for gated_matmul");
  if (x.ndim() != 2 || x.shape(1) != storage.columns)
    fail(ErrorKind::internal, "matmul: expected x [tokens, {}], got {}", storage.columns,
         to_string(x.shape()));
  if (bias) expect_shape("matmul: bias", *bias, {storage.rows});
  if (residual) expect_shape("matmul: residual", *residual, {x.shape(0), storage.rows});
  if (storage.mode == KernelMode::native)
    return native_product(x, w, Activation::none, bias, std::nullopt, residual);
  std::vector<array> parts;
  for (const Weight& weight : storage.planes) parts.push_back(plain_product(x, weight));
  array y = joined(std::move(parts), 1);
  if (bias) y = mx::add(y, *bias);
  return residual ? mx::add(y, *residual) : y;
}

array gated_matmul(const array& x, const Matrix& gate_up, Activation activation,
                   const std::optional<array>& gate_bias, const std::optional<array>& up_bias) {
  const auto& storage = *gate_up.storage();
  if (!storage.gate_up || storage.experts)
    fail(ErrorKind::internal, "gated_matmul: the matrix was not made by Matrix::gated of 2-D weights");
  if (x.ndim() != 2 || x.shape(1) != storage.columns)
    fail(ErrorKind::internal, "gated_matmul: expected x [tokens, {}], got {}", storage.columns,
         to_string(x.shape()));
  const int half = storage.rows / 2;
  if (gate_bias) expect_shape("gated_matmul: gate bias", *gate_bias, {half});
  if (up_bias) expect_shape("gated_matmul: up bias", *up_bias, {half});
  if (storage.mode == KernelMode::native && storage.fused_gate())
    return native_product(x, gate_up, activation, gate_bias, up_bias, std::nullopt);
  std::optional<array> bias;
  if (gate_bias || up_bias)
    bias = mx::concatenate(
        {gate_bias ? *gate_bias : mx::zeros({half}), up_bias ? *up_bias : mx::zeros({half})}, 0);
  if (storage.mode == KernelMode::native)
    return gate_halves(native_product(x, gate_up, Activation::none, bias, std::nullopt, std::nullopt),
                       activation);
  array gate = plain_product(x, storage.planes[0]), up = plain_product(x, storage.planes[1]);
  if (gate_bias) gate = mx::add(gate, *gate_bias);
  if (up_bias) up = mx::add(up, *up_bias);
  return mx::multiply(activate(gate, activation), up);
}

namespace {

void check_gather(const char* what, const array& x, const Matrix::Storage& storage, const array& experts) {
  if (!storage.experts) fail(ErrorKind::internal, "{}: the matrix is not a bank of experts", what);
  if (experts.ndim() != 2)
    fail(ErrorKind::internal, "{}: expected experts [tokens, k], got {}", what, to_string(experts.shape()));
  const Shape flat{experts.shape(0), storage.columns},
      own{experts.shape(0), experts.shape(1), storage.columns};
  if (x.shape() != flat && x.shape() != own)
    fail(ErrorKind::internal, "{}: expected x {} or {}, got {}", what, to_string(flat), to_string(own),
         to_string(x.shape()));
}

array reference_gather(const array& x, const Matrix::Storage& storage, const array& experts) {
  const array rows = x.ndim() == 2 ? mx::expand_dims(x, 1) : x;
  std::vector<array> parts;
  for (const Weight& weight : storage.planes) parts.push_back(plain_gather(rows, weight, experts));
  return joined(std::move(parts), 2);
}

}  // namespace

array gather_matmul(const array& x, const Matrix& bank, const array& experts) {
  const auto& storage = *bank.storage();
  check_gather("gather_matmul", x, storage, experts);
  if (storage.fused_gate())
    fail(ErrorKind::internal, "gather_matmul: the bank is laid out for gather_gated_matmul");
  if (storage.mode == KernelMode::native) return native_gather(x, bank, experts, Activation::none);
  return reference_gather(x, storage, experts);
}

array gather_gated_matmul(const array& x, const Matrix& bank, const array& experts, Activation activation) {
  const auto& storage = *bank.storage();
  check_gather("gather_gated_matmul", x, storage, experts);
  if (!storage.gate_up)
    fail(ErrorKind::internal, "gather_gated_matmul: the bank was not made by Matrix::gated");
  if (storage.mode == KernelMode::native && storage.fused_gate())
    return native_gather(x, bank, experts, activation);
  return gate_halves(storage.mode == KernelMode::native ? native_gather(x, bank, experts, Activation::none)
                                                        : reference_gather(x, storage, experts),
                     activation);
}

array take_rows(const Matrix& table, const array& ids) {
  const auto& storage = table.storage();
  if (storage->experts || storage->gate_up) fail(ErrorKind::internal, "take_rows: expected a plain table");
  if (ids.ndim() != 1)
    fail(ErrorKind::internal, "take_rows: expected ids [tokens], got {}", to_string(ids.shape()));
  const int tokens = ids.shape(0);
  if (storage->mode == KernelMode::reference) {
    if (storage->planes.size() != 1)
      fail(ErrorKind::internal, "take_rows: expected one weight, the table holds {}", storage->planes.size());
    const Weight& w = storage->planes[0];
    const auto rows = [&](const array& plane) { return mx::take(plane, ids, 0); };
    if (!w.format) return as(rows(w.data), mx::float32);
    std::optional<array> biases;
    if (w.biases) biases = as(rows(*w.biases), mx::float32);
    const bool affine = w.format->mode == QuantMode::affine;
    const array scales = affine ? as(rows(*w.scales), mx::float32) : rows(*w.scales);
    return mx::dequantize(rows(w.data), scales, biases, w.format->group_size, w.format->bits,
                          to_string(w.format->mode), std::nullopt, mx::float32);
  }
  return native_op("take_rows", {tokens, storage->columns}, mx::float32, {as(ids, mx::int32)},
                   [storage, tokens](const Buffers& buffers) {
                     const int* id = buffers.input<int>(0);
                     for (int t = 0; t < tokens; ++t)
                       if (id[t] < 0 || id[t] >= storage->rows)
                         fail(ErrorKind::internal, "take_rows: row {} of a table of {}", id[t],
                              storage->rows);
                     float* const out = buffers.output<float>();
                     const auto rows = [&](int begin, int end) {
                       for (int t = begin; t < end; ++t)
                         decode_row(*storage, id[t], out + static_cast<ptrdiff_t>(t) * storage->columns);
                     };
                     if (tokens < 8) return rows(0, tokens);
                     WorkerPool::shared().each(tokens, 8, rows);
                   });
}

}  // namespace mlxcel::kernels
