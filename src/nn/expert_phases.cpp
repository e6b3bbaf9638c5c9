#include "nn/expert_phases.h"

#include <algorithm>
#include <utility>

#include "kernels/experts.h"
#include "kernels/packed.h"
#include "nn/glu_rows.h"

namespace mlxcel {

using kernels::LateProduct;
using kernels::WorkView;
using Slot = PhaseList::Slot;

namespace {

constexpr Slot kNone = PhaseList::kNone;

int grain_of(int rows) { return std::clamp(rows / 8, 1, 16); }

bool is_bank(const kernels::Matrix& matrix) {
  const auto& storage = matrix.storage();
  return storage && storage->mode == KernelMode::native && storage->experts > 0;
}

/// Memory of a step's experts, and their products.
struct Banks {
  kernels::ExpertDeal dealt;
  std::optional<LateProduct> open, down;
  float* opened = nullptr;  // [rows * per_token, …] in the order of choices, as are …
  float* inner = nullptr;   // … what the second product reads
  float* outer = nullptr;   // … and what it makes
};

/// x[t] times each of its weights: [rows * per_token, width].
Slot weighed_phase(PhaseList& list, Slot x, const ExpertChoice& choice, int width) {
  const int k = choice.per_token;
  return list.work({.reads = {x, choice.weights},
                    .makes = {{choice.rows * k, width}},
                    .tasks = choice.rows,
                    .grain = grain_of(choice.rows),
                    .run = [k, width](const WorkView& v, int task) {
                      const ptrdiff_t t = task;
                      const float* const from = v.read[0] + t * v.stride[0];
                      const float* const weights = v.read[1] + t * v.stride[1];
                      for (ptrdiff_t e = 0; e < k; ++e) {
                        float* const to = v.made[0] + (t * k + e) * width;
                        for (int i = 0; i < width; ++i) to[i] = from[i] * weights[e];
                      }
                    }})[0];
}

/// The pieces of a late product: its panel, where it has one, then the product itself.
void product_phases(PhaseList& list, const std::shared_ptr<Banks>& banks,
                    std::optional<LateProduct> Banks::* which, const std::vector<Slot>& reads) {
  const LateProduct& product = *((*banks).*which);
  const auto said = [&](long long work, void (LateProduct::*part)(int)) {
    list.work(
        {.reads = reads,
         .makes = {},
         .tasks = product.pieces(),
         .multiply_adds = work,
         .run = [banks, which, part](const WorkView&, int piece) { (*((*banks).*which).*part)(piece); }});
  };
  if (product.panel_floats() > 0) said(0, &LateProduct::prepare);
  said(product.multiply_adds(), &LateProduct::multiply);
}

void add_bias(const std::optional<array>& bias, int expert, int width, float* row) {
  if (!bias) return;
  const float* const from = bias->data<float>() + static_cast<ptrdiff_t>(expert) * width;
  for (int i = 0; i < width; ++i) row[i] += from[i];
}

/// What a row of `beside` reads, by its place among a work's reads.
struct BesideReads {
  int shared = -1, gate = -1, base = -1;

  BesideReads(const BesideExperts& beside, std::vector<Slot>& reads) {
    const auto add = [&](Slot slot) {
      if (slot == kNone) return -1;
      reads.push_back(slot);
      return static_cast<int>(reads.size()) - 1;
    };
    shared = add(beside.shared);
    gate = add(beside.gate);
    base = add(beside.base);
  }
  void run(BesideExperts::Mix mix, const WorkView& v, ptrdiff_t row, int width, float* out) const {
    const auto at = [&](int i) { return i < 0 ? nullptr : v.read[i] + row * v.stride[i]; };
    const float* const s = at(shared);
    if (mix == BesideExperts::gated) {
      const float open = *at(gate);
      for (int i = 0; i < width; ++i) out[i] += s[i] * open;
    } else if (mix == BesideExperts::average) {
      for (int i = 0; i < width; ++i) out[i] = (out[i] + s[i]) * 0.5f;
    } else if (mix == BesideExperts::coefficient) {
      const auto [routed, own] = two_weights_row(at(gate));
      for (int i = 0; i < width; ++i) out[i] = out[i] * routed + s[i] * own;
    }
    if (const float* const b = at(base))
      for (int i = 0; i < width; ++i) out[i] = b[i] + out[i];
  }
};

}  // namespace

std::shared_ptr<ExpertChoice> choice_phases(PhaseList& list, const RouterParts& router) {
  const int rows = list.step().count(), k = router.form.per_token, all = router.gate.out;
  if (rows < 1 || rows > LateProduct::kMost / k) return nullptr;
  if (!kernels::Program::is_constant(router.correction)) return nullptr;
  const Slot logits = list.aside(router.gate, Activation::none);
  if (logits == kNone) return nullptr;
  auto choice = std::make_shared<ExpertChoice>();
  choice->rows = rows;
  choice->per_token = k;
  choice->chosen.resize(static_cast<size_t>(rows) * static_cast<size_t>(k));
  const auto run = [choice, k, all, experts = router.experts, cap = router.cap, form = router.form,
                    correction = router.correction](const WorkView& v, int row) {
    static thread_local std::vector<float> capped;
    const float* scores = v.read[0] + row * v.stride[0];
    if (cap > 0.0f) {
      capped.resize(static_cast<size_t>(all));
      const float inverse = 1.0f / cap;
      for (int i = 0; i < all; ++i) capped[static_cast<size_t>(i)] = scores[i] * inverse;
      active_row(capped.data(), Activation::tanh, all, capped.data());
      for (float& x : capped) x *= cap;
      scores = capped.data();
    }
    int* const chosen = choice->chosen.data() + static_cast<ptrdiff_t>(row) * k;
    float* const weights = v.made[0] + static_cast<ptrdiff_t>(row) * (k + 1);
    kernels::route_row(form, scores, all, correction ? correction->data<float>() : nullptr, chosen, weights);
    float& kept = weights[k] = 0.0f;
    for (int e = 0; e < k; ++e) {
      if (chosen[e] < experts) continue;
      kept += weights[e];
      weights[e] = 0.0f;
      chosen[e] = 0;
    }
  };
  choice->weights = list.work(
      {.reads = {logits}, .makes = {{rows, k + 1}}, .tasks = rows, .grain = grain_of(rows), .run = run})[0];
  return choice;
}

bool expert_phases(PhaseList& list, const std::shared_ptr<ExpertChoice>& choice, const ExpertParts& parts,
                   const BesideExperts& beside) {
  const kernels::Matrix& first = parts.gate_up ? parts.gate_up->matrix : parts.up->matrix;
  const std::optional<array> bias = parts.gate_up ? std::nullopt : parts.up->bias;
  if ((parts.gate_up ? parts.gate_up->adapted() : parts.up->adapted()) || parts.down.adapted()) return false;
  if (!is_bank(first) || !is_bank(parts.down.matrix) || !kernels::Program::is_constant(bias) ||
      !kernels::Program::is_constant(parts.down.bias))
    return false;
  const int rows = choice->rows, k = choice->per_token, count = rows * k;
  const int read = first.columns(), width = parts.down.in, out = parts.down.out;
  const bool fused = first.is_gated();
  const bool joins = !fused && (parts.gated || bias);  // something stands between the products
  const Slot value = list.value();
  const Slot x = parts.weighs_input ? weighed_phase(list, value, *choice, read) : value;

  const auto banks = std::make_shared<Banks>();
  banks->open.emplace(first.storage(), joins ? Activation::none : parts.activation, count,
                      rows == 1 && !parts.weighs_input);
  banks->down.emplace(parts.down.matrix.storage(), Activation::none, count, false);
  const int opened_width = banks->open->columns();

  // Everything is laid out here; what comes after reads it so that it stays.
  const auto panel = [](const LateProduct& product) {
    return std::pair(1, std::max(1, static_cast<int>(product.panel_floats())));
  };
  const auto made =
      list.work({.reads = {x},
                 .makes = {{count, opened_width},
                           {joins ? count : 1, joins ? width : 1},
                           {count, out},
                           panel(*banks->open),
                           panel(*banks->down)},
                 .tasks = 1,
                 .run = [banks, choice, joins, experts = first.experts(), weighed = parts.weighs_input, count,
                         k, width](const WorkView& v, int) {
                   Banks& b = *banks;
                   b.opened = v.made[0];
                   b.inner = joins ? v.made[1] : v.made[0];
                   b.outer = v.made[2];
                   b.dealt.deal(choice->chosen.data(), count, k, experts);
                   b.open->set(v.read[0], v.stride[0], b.dealt, weighed ? b.dealt.choices : b.dealt.tokens,
                               b.opened, v.made[3]);
                   b.down->set(b.inner, width, b.dealt, b.dealt.choices, b.outer, v.made[4]);
                 }});
  const Slot opened = made[0], inner = joins ? made[1] : made[0], outer = made[2];

  product_phases(list, banks, &Banks::open, {x, opened, made[3]});
  if (joins)
    list.work({.reads = {opened, inner},
               .makes = {},
               .tasks = count,
               .grain = grain_of(count),
               .run = [banks, choice, bias, opened_width, width, gated = parts.gated,
                       activation = parts.activation, clamp = parts.clamp](const WorkView&, int task) {
                 const ptrdiff_t row = task;
                 float* const both = banks->opened + row * opened_width;
                 float* const to = banks->inner + row * width;
                 add_bias(bias, choice->chosen[static_cast<size_t>(row)], opened_width, both);
                 if (gated && clamp) return clamped_row(*clamp, both, both + width, width, to);
                 active_row(both, activation, width, to);
                 if (!gated) return;
                 for (int i = 0; i < width; ++i) to[i] *= both[width + i];
               }});
  product_phases(list, banks, &Banks::down, {inner, outer, made[4]});

  std::vector<Slot> reads{outer, choice->weights};
  if (parts.keeps_input) reads.push_back(value);
  const BesideReads others(beside, reads);
  const std::vector<float> ones(parts.weighs_input ? static_cast<size_t>(k) : 0, 1.0f);
  list.set_value(list.work({.reads = reads,
                            .makes = {{rows, out}},
                            .tasks = rows,
                            .grain = grain_of(rows),
                            .run = [banks, choice, bias = parts.down.bias, keeps = parts.keeps_input, others,
                                    ones, mix = beside.mix, k, out](const WorkView& v, int task) {
                              const ptrdiff_t row = task;
                              float* const y = banks->outer + row * k * out;
                              const float* const weights = v.read[1] + row * v.stride[1];
                              for (ptrdiff_t e = 0; e < k; ++e)
                                add_bias(bias, choice->chosen[static_cast<size_t>(row * k + e)], out,
                                         y + e * out);
                              float* const to = v.made[0] + row * out;
                              kernels::weighted_row(y, ones.empty() ? weights : ones.data(), k, out, to);
                              if (keeps)
                                for (ptrdiff_t i = 0; i < out; ++i)
                                  to[i] += v.read[2][row * v.stride[2] + i] * weights[k];
                              others.run(mix, v, row, out, to);
                            }})[0]);
  return true;
}

void beside_phases(PhaseList& list, const BesideExperts& beside, int width) {
  if (!beside.any()) return;
  std::vector<Slot> reads{list.value()};
  const BesideReads others(beside, reads);
  const int rows = list.step().count();
  list.set_value(list.work({.reads = reads,
                            .makes = {{rows, width}},
                            .tasks = rows,
                            .grain = grain_of(rows),
                            .run = [others, mix = beside.mix, width](const WorkView& v, int task) {
                              const ptrdiff_t row = task;
                              float* const to = v.made[0] + row * width;
                              std::copy_n(v.read[0] + row * v.stride[0], width, to);
                              others.run(mix, v, row, width, to);
                            }})[0]);
}

std::pair<array, array> two_weights(const array& logits) {
  const auto [order, sorted] = kernels::route(logits, std::nullopt, {.per_token = 2});
  const auto numbers = mx::split(order, 2, -1), weights = mx::split(sorted, 2, -1);
  const array turned = mx::not_equal(numbers[0], array(0));
  return {mx::where(turned, weights[1], weights[0]), mx::where(turned, weights[0], weights[1])};
}

std::pair<float, float> two_weights_row(const float* logits) {
  int order[2];
  float weights[2];
  kernels::route_row({.per_token = 2}, logits, 2, nullptr, order, weights);
  return order[0] == 0 ? std::pair(weights[0], weights[1]) : std::pair(weights[1], weights[0]);
}

}  // namespace mlxcel
