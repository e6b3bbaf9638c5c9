#include "kernels/route.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/error.h"
#include "base/worker_pool.h"
#include "kernels/elementwise.h"
#include "kernels/experts.h"
#include "kernels/isa/rowwise.h"
#include "kernels/primitive.h"

namespace mlxcel::kernels {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();
// Below this many values a second worker costs more than it brings.
constexpr size_t kParallel = 16384;

template <class Visit>
void over(int tokens, size_t each, const Visit& visit) {
  if (static_cast<size_t>(tokens) * each < kParallel) return visit(0, tokens);
  auto& pool = WorkerPool::shared();
  pool.each(tokens, std::max(1, tokens / (4 * pool.width())), visit);
}

/// The numbers of the `count` largest of x, best first, the lower one first among equals. A NaN is chosen
/// only where nothing else is left.
void best_of(const float* x, int size, int count, int* chosen) {
  int held = 0;
  for (int i = 0; i < size; ++i) {
    int at = held;
    while (at > 0 && (x[i] > x[chosen[at - 1]] || (std::isnan(x[chosen[at - 1]]) && !std::isnan(x[i])))) --at;
    if (at == count) continue;
    if (held < count) ++held;
    for (int k = held - 1; k > at; --k) chosen[k] = chosen[k - 1];
    chosen[at] = i;
  }
}

/// exp(x - max) / sum, in place.
void softmax(float* x, int size) {
  float most = kNever;
  for (int i = 0; i < size; ++i) most = x[i] > most ? x[i] : most;
  for (int i = 0; i < size; ++i) x[i] -= most;
  rowwise_bodies().activate(x, static_cast<int>(Activation::exp), static_cast<size_t>(size), x);
  float sum = 0.0f;
  for (int i = 0; i < size; ++i) sum += x[i];
  for (int i = 0; i < size; ++i) x[i] /= sum;
}

/// One token after another, with the memory that this takes.
class TokenRouter {
 public:
  TokenRouter(const RouteForm& form, int experts)
      : f_(form),
        all_(experts),
        score_(static_cast<size_t>(experts)),
        choice_(static_cast<size_t>(experts)),
        worth_(static_cast<size_t>(form.groups)),
        kept_(static_cast<size_t>(form.kept_groups)) {}

  void operator()(const float* logits, const float* correction, int* chosen, float* weights) {
    score(logits);
    for (int i = 0; i < all_; ++i)
      choice_[at(i)] = correction ? score_[at(i)] + correction[i] : score_[at(i)];
    if (f_.kept_groups < f_.groups) keep_groups();
    best_of(choice_.data(), all_, f_.per_token, chosen);
    for (int k = 0; k < f_.per_token; ++k) weights[k] = score_[at(chosen[k])];
    if (f_.scoring == Scoring::chosen_softmax) softmax(weights, f_.per_token);
    if (f_.renormalize) {
      float sum = 0.0f;
      for (int k = 0; k < f_.per_token; ++k) sum += weights[k];
      sum += f_.renorm_eps;
      if (f_.renorm_floor > 0.0f) sum = std::max(sum, f_.renorm_floor);
      for (int k = 0; k < f_.per_token; ++k) weights[k] /= sum;
    }
    for (int k = 0; k < f_.per_token; ++k) weights[k] *= f_.scale;
  }

 private:
  static size_t at(int i) { return static_cast<size_t>(i); }

  void score(const float* logits) {
    const auto activated = [&](Activation activation) {
      rowwise_bodies().activate(logits, static_cast<int>(activation), score_.size(), score_.data());
    };
    switch (f_.scoring) {
      case Scoring::softmax:
        std::copy_n(logits, all_, score_.begin());
        return softmax(score_.data(), all_);
      case Scoring::sigmoid:
        return activated(Activation::sigmoid);
      case Scoring::sqrt_softplus:
        activated(Activation::softplus);
        for (float& s : score_) s = std::sqrt(s);
        return;
      case Scoring::chosen_softmax:
        std::copy_n(logits, all_, score_.begin());
    }
  }

  /// Minus infinity in place of what stands outside the best groups.
  void keep_groups() {
    const int each = all_ / f_.groups;
    for (int g = 0; g < f_.groups; ++g) {
      const float* const x = choice_.data() + g * each;
      int top[2] = {0, 0};
      const int count = f_.group_score == GroupScore::best ? 1 : 2;
      best_of(x, each, count, top);
      worth_[at(g)] = count == 1 ? x[top[0]] : x[top[0]] + x[top[1]];
    }
    best_of(worth_.data(), f_.groups, f_.kept_groups, kept_.data());
    for (int g = 0; g < f_.groups; ++g)
      if (std::find(kept_.begin(), kept_.end(), g) == kept_.end())
        std::fill_n(choice_.begin() + g * each, each, kNever);
  }

  const RouteForm& f_;
  const int all_;
  std::vector<float> score_, choice_, worth_;
  std::vector<int> kept_;
};

// ---- The twin ---------------------------------------------------------------------------------------

array best_reference(const array& x, int count) {
  const array order = mx::argsort(mx::negative(x), -1);
  Shape stop = order.shape();
  stop.back() = count;
  return mx::astype(mx::slice(order, Shape(stop.size(), 0), stop), mx::int32);
}

array scores_reference(const array& logits, Scoring scoring) {
  switch (scoring) {
    case Scoring::softmax:
      return mx::softmax(logits, std::vector<int>{-1}, /*precise=*/true);
    case Scoring::sigmoid:
      return activate(logits, Activation::sigmoid);
    case Scoring::sqrt_softplus:
      return mx::sqrt(activate(logits, Activation::softplus));
    case Scoring::chosen_softmax:
      break;
  }
  return logits;
}

array eligible_reference(const array& choice, const RouteForm& form) {
  if (form.kept_groups == form.groups) return choice;
  const int tokens = choice.shape(0), each = choice.shape(1) / form.groups;
  const array grouped = mx::reshape(choice, {tokens, form.groups, each});
  const array sorted = mx::sort(grouped, -1);
  const auto column = [&](int i) {
    return mx::squeeze(mx::slice(sorted, {0, 0, i}, {tokens, form.groups, i + 1}), -1);
  };
  const array worth =
      form.group_score == GroupScore::best ? column(each - 1) : mx::add(column(each - 1), column(each - 2));
  const array kept = best_reference(worth, form.kept_groups);
  const array open = mx::put_along_axis(mx::zeros({tokens, form.groups}, mx::bool_), kept,
                                        mx::ones(kept.shape(), mx::bool_), 1);
  return mx::reshape(mx::where(mx::expand_dims(open, -1), grouped, array(kNever)), choice.shape());
}

std::pair<array, array> route_reference(const array& logits, const std::optional<array>& correction,
                                        const RouteForm& form) {
  const array score = scores_reference(logits, form.scoring);
  const array choice = correction ? mx::add(score, *correction) : score;
  const array chosen = best_reference(eligible_reference(choice, form), form.per_token);
  array weights = mx::take_along_axis(score, chosen, -1);
  if (form.scoring == Scoring::chosen_softmax)
    weights = mx::softmax(weights, std::vector<int>{-1}, /*precise=*/true);
  if (form.renormalize) {
    array sum = mx::sum(weights, -1, /*keepdims=*/true);
    if (form.renorm_eps > 0.0f) sum = mx::add(sum, array(form.renorm_eps));
    if (form.renorm_floor > 0.0f) sum = mx::maximum(sum, array(form.renorm_floor));
    weights = mx::divide(weights, sum);
  }
  return {chosen, form.scale == 1.0f ? weights : mx::multiply(weights, array(form.scale))};
}

}  // namespace

void route_row(const RouteForm& form, const float* logits, int experts, const float* correction, int* chosen,
               float* weights) {
  TokenRouter(form, experts)(logits, correction, chosen, weights);
}

void weighted_row(const float* y, const float* weights, int k, ptrdiff_t width, float* out) {
  for (ptrdiff_t i = 0; i < width; ++i) out[i] = y[i] * weights[0];
  for (int e = 1; e < k; ++e)
    for (ptrdiff_t i = 0; i < width; ++i) out[i] += y[e * width + i] * weights[e];
}

std::pair<array, array> route(const array& logits, const std::optional<array>& correction,
                              const RouteForm& form) {
  if (logits.ndim() != 2)
    fail(ErrorKind::internal, "route: expected logits [tokens, experts], got {}", to_string(logits.shape()));
  const int tokens = logits.shape(0), all = logits.shape(1);
  if (form.groups < 1 || form.kept_groups < 1 || form.kept_groups > form.groups || all % form.groups != 0 ||
      form.per_token < 1 || form.per_token > all / form.groups * form.kept_groups ||
      (form.kept_groups < form.groups && form.group_score == GroupScore::best_two && all / form.groups < 2))
    fail(ErrorKind::internal, "route: {} of {} experts from {} of {} groups", form.per_token, all,
         form.kept_groups, form.groups);
  if (correction && correction->shape() != Shape{all})
    fail(ErrorKind::internal, "route: correction: expected [{}], got {}", all,
         to_string(correction->shape()));
  if (kernel_mode() == KernelMode::reference) return route_reference(logits, correction, form);
  std::vector<array> inputs{mx::astype(logits, mx::float32)};
  if (correction) inputs.push_back(mx::astype(*correction, mx::float32));
  auto out =
      native_ops("route", {{tokens, form.per_token}, {tokens, form.per_token}}, {mx::int32, mx::float32},
                 inputs, [=, corrected = correction.has_value()](const Buffers& b) {
                   over(tokens, static_cast<size_t>(all) * 8, [&](int begin, int end) {
                     TokenRouter router(form, all);
                     for (ptrdiff_t t = begin; t < end; ++t)
                       router(b.input<float>(0) + t * all, corrected ? b.input<float>(1) : nullptr,
                              b.output<int>(0) + t * form.per_token, b.output<float>(1) + t * form.per_token);
                   });
                 });
  return {out[0], out[1]};
}

array weighted_sum(const array& y, const array& weights, const std::optional<array>& residual) {
  if (y.ndim() != 3 || weights.shape() != Shape{y.shape(0), y.shape(1)})
    fail(ErrorKind::internal,
         "weighted_sum: expected y [tokens, k, width] and weights [tokens, k], got {} and {}",
         to_string(y.shape()), to_string(weights.shape()));
  const int tokens = y.shape(0), k = y.shape(1), width = y.shape(2);
  if (residual && residual->shape() != Shape{tokens, width})
    fail(ErrorKind::internal, "weighted_sum: residual: expected [{}, {}], got {}", tokens, width,
         to_string(residual->shape()));
  if (kernel_mode() == KernelMode::reference) {
    const array sum = mx::sum(mx::multiply(y, mx::expand_dims(weights, -1)), 1);
    return residual ? mx::add(*residual, sum) : sum;
  }
  std::vector<array> inputs{y, weights};
  if (residual) inputs.push_back(*residual);
  return native_op(
      "weighted_sum", {tokens, width}, mx::float32, std::move(inputs),
      [=, more = residual.has_value()](const Buffers& b) {
        over(tokens, static_cast<size_t>(k) * static_cast<size_t>(width), [&](int begin, int end) {
          for (ptrdiff_t t = begin; t < end; ++t) {
            float* const out = b.output<float>() + t * width;
            weighted_row(b.input<float>(0) + t * k * width, b.input<float>(1) + t * k, k, width, out);
            if (!more) continue;
            const float* const base = b.input<float>(2) + t * width;
            for (int i = 0; i < width; ++i) out[i] = base[i] + out[i];
          }
        });
      });
}

}  // namespace mlxcel::kernels
