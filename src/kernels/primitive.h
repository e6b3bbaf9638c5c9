// Native operations as nodes of MLX's graph: allocate the outputs, take raw pointers, run a callable on
// MLX's CPU stream thread, which is worker 0 of the pool. Internal to this room and `state`.
// Thread: native_op on the model thread. Failure: an exception of the callable leaves eval().
#pragma once

#include <mlx/backend/cpu/encoder.h>
#include <mlx/primitives.h>

#include <algorithm>
#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/worker_pool.h"
#include "tensor/tensor.h"

namespace mlxcel::kernels {

/// What the callable sees: row-contiguous buffers, in the order the node was built with (those named in
/// `strided` may have gaps between the rows of their first axis). MLX aligns its buffers to 8 bytes only.
struct Buffers {
  static constexpr int kMost = 64;
  std::array<void*, kMost> in{};
  std::array<int64_t, kMost> stride{};  // of the first axis, in elements
  std::array<void*, kMost> out{};
  template <class T>
  const T* input(int i) const {
    return static_cast<const T*>(in[i]);
  }
  template <class T>
  T* output(int i = 0) const {
    return static_cast<T*>(out[i]);
  }
};

/// Whether all but the first axis lie without gaps.
bool rows_are_whole(const array& a);

/// A strided source to be laid out row by row, before the callable runs.
struct Gather {
  const char* from;
  char* to;
  Shape shape;
  mx::Strides strides;  // in elements
  size_t itemsize;
  void run() const;
};

/// F: void(const Buffers&), copyable; it owns what it needs (a shared_ptr to storage, sizes).
template <class F>
class NativePrimitive final : public mx::Primitive {
 public:
  NativePrimitive(const char* name, mx::Stream stream, F body, unsigned strided)
      : mx::Primitive(stream), name_(name), body_(std::move(body)), strided_(strided) {}

  void eval_cpu(const std::vector<array>& inputs, std::vector<array>& outputs) override {
    auto& encoder = mx::cpu::get_command_encoder(stream());
    Buffers buffers;
    std::vector<Gather> gathers;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const array& in = inputs[i];
      if (in.ndim() > 0 && in.shape(0) > 0) buffers.stride[i] = static_cast<int64_t>(in.size()) / in.shape(0);
      const bool contiguous = in.flags().row_contiguous || in.size() == 0;
      if (contiguous || ((strided_ >> i & 1u) && rows_are_whole(in))) {
        if (!contiguous) buffers.stride[i] = in.strides()[0];
        buffers.in[i] = const_cast<char*>(in.data<char>());
        continue;
      }
      array copy(in.shape(), in.dtype(), nullptr, {});
      copy.set_data(mx::allocator::malloc(copy.nbytes()));
      buffers.in[i] = copy.data<char>();
      gathers.push_back({in.data<char>(), copy.data<char>(), in.shape(), in.strides(), in.itemsize()});
      encoder.add_temporary(std::move(copy));
    }
    for (size_t i = 0; i < outputs.size(); ++i) {
      outputs[i].set_data(mx::allocator::malloc(outputs[i].nbytes()));
      buffers.out[i] = outputs[i].data<char>();
    }
    encoder.dispatch([body = body_, buffers, gathers = std::move(gathers)] {
      WorkerPool::shared().settle_caller();
      for (const auto& gather : gathers) gather.run();
      body(buffers);
    });
  }
  void eval_gpu(const std::vector<array>&, std::vector<array>&) override {
    fail(ErrorKind::internal, "{}: a CPU kernel was placed on a GPU stream", name_);
  }
  const char* name() const override { return name_; }

 private:
  const char* name_;
  F body_;
  unsigned strided_;
};

/// A node with one output, on the default CPU stream of this thread. `strided`: bit i for an input whose rows
/// the body finds by Buffers::stride.
template <class F>
array native_op(const char* name, Shape shape, mx::Dtype dtype, std::vector<array> inputs, F body,
                unsigned strided = 0) {
  if (inputs.size() > Buffers::kMost)
    fail(ErrorKind::internal, "{}: {} inputs, at most {}", name, inputs.size(), Buffers::kMost);
  return array(std::move(shape), dtype,
               std::make_shared<NativePrimitive<F>>(name, mx::default_stream(mx::Device::cpu),
                                                    std::move(body), strided),
               std::move(inputs));
}

/// A node with several outputs.
template <class F>
std::vector<array> native_ops(const char* name, std::vector<Shape> shapes,
                              const std::vector<mx::Dtype>& dtypes, const std::vector<array>& inputs, F body,
                              unsigned strided = 0) {
  if (inputs.size() > Buffers::kMost || shapes.size() > Buffers::kMost)
    fail(ErrorKind::internal, "{}: {} inputs and {} outputs, at most {}", name, inputs.size(), shapes.size(),
         Buffers::kMost);
  return array::make_arrays(std::move(shapes), dtypes,
                            std::make_shared<NativePrimitive<F>>(name, mx::default_stream(mx::Device::cpu),
                                                                 std::move(body), strided),
                            inputs);
}

/// As native_ops, but where every input is there already the callable runs at once, on this thread. As a node
/// it costs two wake-ups, of the stream's thread and of this one after it: 100 us and more on a virtual
/// machine.
template <class F>
std::vector<array> native_ops_at_once(const char* name, std::vector<Shape> shapes,
                                      const std::vector<mx::Dtype>& dtypes, const std::vector<array>& inputs,
                                      F body) {
  const bool ready = inputs.size() <= Buffers::kMost && shapes.size() <= Buffers::kMost &&
                     std::all_of(inputs.begin(), inputs.end(), [](const array& in) {
                       return in.is_available() && (in.flags().row_contiguous || in.size() == 0);
                     });
  if (!ready) return native_ops(name, std::move(shapes), dtypes, inputs, std::move(body));
  Buffers buffers;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const array& in = inputs[i];
    if (in.ndim() > 0 && in.shape(0) > 0) buffers.stride[i] = static_cast<int64_t>(in.size()) / in.shape(0);
    buffers.in[i] = const_cast<char*>(in.data<char>());
  }
  std::vector<array> outputs;
  for (size_t i = 0; i < shapes.size(); ++i) {
    size_t bytes = mx::size_of(dtypes[i]);
    for (const auto n : shapes[i]) bytes *= static_cast<size_t>(n);
    outputs.emplace_back(mx::allocator::malloc(bytes), std::move(shapes[i]), dtypes[i]);
    buffers.out[i] = outputs.back().template data<char>();
  }
  WorkerPool::shared().settle_caller();
  body(buffers);
  return outputs;
}

}  // namespace mlxcel::kernels
