#include "nn/heads.h"

#include <cstring>
#include <vector>

#include "base/error.h"
#include "base/worker_pool.h"
#include "kernels/isa/rowwise.h"
#include "kernels/primitive.h"
#include "nn/fault.h"

namespace mlxcel {

namespace {

#ifdef MLXCEL_FAULTS
constexpr bool kFaultsCompiled = true;
#else
constexpr bool kFaultsCompiled = false;
#endif

// Below this many values a second worker costs more than it brings.
constexpr long long kParallel = 16384;

/// Heads [from, to) of x [tokens, heads, head_dim].
array heads_of(const array& x, int from, int to) {
  return mx::slice(x, {0, from, 0}, {x.shape(0), to, x.shape(2)});
}

/// One token's heads: normed and rotated where asked, copied otherwise.
struct Turn {
  const kernels::RowwiseBodies& body;
  int head_dim, half;
  bool interleaved;

  void operator()(const float* x, const float* weight, const RmsNorm* norm, const float* angles, int heads,
                  float* out, float* spare) const {
    if (norm) body.rms_norm(x, weight, norm->eps, norm->offset, heads, head_dim, angles ? spare : out);
    const float* from = norm ? spare : x;
    if (angles)
      body.rope(from, angles, angles + half, heads, head_dim, half, interleaved, out);
    else if (!norm)
      std::memcpy(out, x, sizeof(float) * static_cast<size_t>(heads) * static_cast<size_t>(head_dim));
  }
};

}  // namespace

Heads split_heads_reference(const array& qkv, const HeadPlan& plan, const Step& step) {
  const int h = plan.heads, kv = plan.kv_heads;
  const array all = mx::reshape(qkv, {qkv.shape(0), h + 2 * kv, plan.head_dim});
  array q = heads_of(all, 0, h), k = heads_of(all, h, h + kv);
  if (plan.q_norm && !fault("qk norm left out")) q = (*plan.q_norm)(q);
  if (plan.k_norm && !fault("qk norm left out")) k = (*plan.k_norm)(k);
  if (plan.rope) {
    q = (*plan.rope)(q, step);
    k = (*plan.rope)(k, step);
  }
  return {q, k, heads_of(all, h + kv, h + 2 * kv)};
}

Heads split_heads(const array& qkv, const HeadPlan& plan, const Step& step) {
  const int tokens = qkv.shape(0), h = plan.heads, kv = plan.kv_heads, d = plan.head_dim;
  if (qkv.ndim() != 2 || qkv.shape(1) != (h + 2 * kv) * d)
    fail(ErrorKind::internal, "split_heads: {}, expected {} + 2 * {} heads of {}", to_string(qkv.shape()), h,
         kv, d);
  if (kernel_mode() == KernelMode::reference || kFaultsCompiled)
    return split_heads_reference(qkv, plan, step);

  std::vector<array> inputs{qkv};
  const auto input = [&inputs](const std::optional<array>& a) {
    if (!a) return -1;
    inputs.push_back(*a);
    return static_cast<int>(inputs.size()) - 1;
  };
  const int angles = plan.rope ? input(plan.rope->angles(step)) : -1;
  const int q_weight = plan.q_norm ? input(plan.q_norm->weight) : -1;
  const int k_weight = plan.k_norm ? input(plan.k_norm->weight) : -1;
  const Turn turn{kernels::rowwise_bodies(), d,
                  plan.rope ? static_cast<int>(plan.rope->frequencies().size()) : 0,
                  plan.rope && plan.rope->interleaved()};
  auto out = kernels::native_ops(
      "split_heads", {{tokens, h, d}, {tokens, kv, d}, {tokens, kv, d}},
      {mx::float32, mx::float32, mx::float32}, inputs,
      [=, q_norm = plan.q_norm, k_norm = plan.k_norm](const kernels::Buffers& b) {
        const auto at = [&b](int i) { return i < 0 ? nullptr : b.input<float>(i); };
        const auto tokens_of = [&](int begin, int end) {
          static thread_local std::vector<float> spare;
          spare.resize(static_cast<size_t>(h) * static_cast<size_t>(d));
          for (ptrdiff_t t = begin; t < end; ++t) {
            const float* x = b.input<float>(0) + t * (h + 2 * kv) * d;
            const float* table = angles < 0 ? nullptr : b.input<float>(angles) + t * 2 * turn.half;
            turn(x, at(q_weight), q_norm ? &*q_norm : nullptr, table, h, b.output<float>(0) + t * h * d,
                 spare.data());
            turn(x + h * d, at(k_weight), k_norm ? &*k_norm : nullptr, table, kv,
                 b.output<float>(1) + t * kv * d, spare.data());
            std::memcpy(b.output<float>(2) + t * kv * d, x + (h + kv) * d,
                        sizeof(float) * static_cast<size_t>(kv * d));
          }
        };
        if (static_cast<long long>(tokens) * (h + 2 * kv) * d < kParallel) return tokens_of(0, tokens);
        WorkerPool::shared().each(tokens, 8, tokens_of);
      });
  return {out[0], out[1], out[2]};
}

}  // namespace mlxcel
