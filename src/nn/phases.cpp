#include "nn/phases.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "state/attend.h"

namespace mlxcel {

namespace {

#ifdef MLXCEL_FAULTS
constexpr bool kFaultsCompiled = true;  // they stand in the parts' own functions
#else
constexpr bool kFaultsCompiled = false;
#endif

std::atomic<bool>& wanted() {
  static std::atomic<bool> on{[] {
    const char* text = std::getenv("MLXCEL_FUSED");
    return !(text && std::strcmp(text, "0") == 0);
  }()};
  return on;
}

/// None where its weights cannot be constants of a program.
std::optional<kernels::NormForm> form_of(const RmsNorm& n) {
  if (!kernels::Program::is_constant(n.weight)) return std::nullopt;
  return kernels::NormForm{.layer = false, .weight = n.weight, .bias = {}, .eps = n.eps, .offset = n.offset};
}
std::optional<kernels::NormForm> form_of(const LayerNorm& n) {
  if (!kernels::Program::is_constant(n.weight) || !kernels::Program::is_constant(n.bias)) return std::nullopt;
  return kernels::NormForm{.layer = true, .weight = n.weight, .bias = n.bias, .eps = n.eps, .offset = 0.0f};
}

}  // namespace

bool fusing() {
  return !kFaultsCompiled && kernel_mode() == KernelMode::native && wanted().load(std::memory_order_relaxed);
}
void set_fusing(bool on) { wanted().store(on, std::memory_order_relaxed); }

PhaseList::PhaseList(Step& step) : step_(step), program_(std::make_shared<kernels::Program>()) {}

void PhaseList::start(const array& x) {
  if (value_ != kNone) fail(ErrorKind::internal, "phases: started with a value that nobody took");
  value_ = program_->input(x);
}

array PhaseList::take() {
  if (value_ == kNone) fail(ErrorKind::internal, "phases: nothing to take");
  settle();
  const std::vector<array> results = kernels::Program::output(std::move(program_), value_);
  for (size_t i = 0; i < states_.size(); ++i) step_.set_recurrent(states_[i], results[1 + i]);
  states_.clear();
  program_ = std::make_shared<kernels::Program>();
  value_ = kNone;
  angles_.clear();
  factors_.clear();
  return results[0];
}

void PhaseList::settle() {
  if (!pending_) return;
  value_ = program_->add(kNone, value_, std::move(pending_));
  pending_.reset();
}

bool PhaseList::lookup(const Embedding& table) {
  if (!kernels::Program::takes(table.table)) return false;
  table.check_tokens(step_);
  value_ = program_->lookup(table.table, step_.tokens(), table.scale);
  return true;
}

bool PhaseList::add_lookup(const Embedding& table) {
  if (!kernels::Program::takes(table.table) || table.scale != 1.0f) return false;
  table.check_positions(step_);
  settle();
  value_ = program_->add(value_, program_->lookup(table.table, step_.positions(), 1.0f), std::nullopt);
  return true;
}

bool PhaseList::norm(const Norm& norm) {
  const auto form = norm.visit([](const auto& n) { return form_of(n); });
  if (!form) return false;
  settle();
  pending_ = form;
  return true;
}

bool PhaseList::linear(const Linear& linear, Slot residual, Activation activation, std::vector<int> rows) {
  if (linear.adapted()) return false;
  if (!kernels::Program::takes(linear.matrix) || !kernels::Program::is_constant(linear.bias)) return false;
  value_ = program_->product(value_, linear.matrix,
                             {.norm = std::move(pending_),
                              .bias = linear.bias,
                              .residual = residual,
                              .activation = activation,
                              .rows = std::move(rows)});
  pending_.reset();
  return true;
}

bool PhaseList::gated(const GatedLinear& linear, Activation activation) {
  if (linear.adapted()) return false;
  if (!kernels::Program::takes(linear.matrix) || !kernels::Program::is_constant(linear.gate_bias) ||
      !kernels::Program::is_constant(linear.up_bias) || !linear.matrix.is_gated())
    return false;
  value_ = program_->product(value_, linear.matrix,
                             {.norm = std::move(pending_),
                              .bias = linear.gate_bias,
                              .up_bias = linear.up_bias,
                              .activation = activation});
  pending_.reset();
  return true;
}

PhaseList::Slot PhaseList::aside(const Linear& linear, Activation activation) {
  const Slot value = value_;
  auto pending = pending_;
  if (!this->linear(linear, kNone, activation)) return kNone;
  pending_ = std::move(pending);
  return std::exchange(value_, value);
}

bool PhaseList::columns(int from, int heads, int width, float clip, const Norm* norm,
                        const std::optional<array>& weights) {
  std::optional<kernels::NormForm> form;
  if (norm && !(form = norm->visit([](const auto& n) { return form_of(n); }))) return false;
  if (!kernels::Program::is_constant(weights)) return false;
  settle();
  program_->columns(value_, {.from = from,
                             .heads = heads,
                             .width = width,
                             .clip = clip,
                             .norm = std::move(form),
                             .weights = weights});
  return true;
}

void PhaseList::multiply(Slot by, Activation activation) {
  settle();
  value_ = program_->multiply(value_, by, activation);
}

std::vector<PhaseList::Slot> PhaseList::work(kernels::WorkForm form, std::vector<int> recurrent_slots) {
  if (form.gives.size() != recurrent_slots.size())
    fail(ErrorKind::internal, "phases: work gives {} arrays for {} states", form.gives.size(),
         recurrent_slots.size());
  settle();
  states_.insert(states_.end(), recurrent_slots.begin(), recurrent_slots.end());
  return program_->work(std::move(form));
}

void PhaseList::breathe() {
  constexpr size_t kEnough = 40;  // a block adds a few
  if (value_ != kNone && program_->arrays() > kEnough) start(take());
}

PhaseList::Slot PhaseList::factors(const FactorKey& key, const std::function<array()>& make) {
  for (const auto& [known, slot] : factors_)
    if (known == key) return slot;
  const Slot slot = program_->input(make());
  factors_.emplace_back(key, slot);
  return slot;
}

bool PhaseList::normed(const Norm& norm) {
  if (!this->norm(norm)) return false;
  settle();
  return true;
}

PhaseList::Slot PhaseList::angles(const Rope& rope) {
  for (const auto& [key, slot] : angles_)
    if (key == rope.identity()) return slot;
  // Where a row's length decides, its angles come from outside.
  const Slot slot = rope.limit() > 0 ? program_->input(rope.angles(step_))
                                     : program_->angles(step_.positions(), rope.table(), rope.scale());
  angles_.emplace_back(rope.identity(), slot);
  return slot;
}

bool PhaseList::attend(const HeadPlan& plan, const Attended& options) {
  std::optional<kernels::NormForm> q_norm, k_norm;
  if (plan.q_norm && !(q_norm = form_of(*plan.q_norm))) return false;
  if (plan.k_norm && !(k_norm = form_of(*plan.k_norm))) return false;
  if (!kernels::Program::is_constant(options.sinks)) return false;
  if (plan.rope && !kernels::Program::is_constant(plan.rope->table())) return false;
  const auto place = attend_place(step_, options.slot);
  const auto& blocks = place.pool.blocks;
  if (blocks.kv_heads != plan.kv_heads || blocks.key_dim != plan.head_dim ||
      blocks.value_dim != plan.head_dim)
    return false;
  settle();
  value_ = program_->attention(value_,
                               {.q_norm = std::move(q_norm),
                                .k_norm = std::move(k_norm),
                                .angles = plan.rope ? angles(*plan.rope) : kNone,
                                .interleaved = plan.rope && plan.rope->interleaved(),
                                .factors = options.factors},
                               options.sinks, place.pool, place.rows,
                               {plan.heads, place.window, options.scale, options.softcap, place.chunk});
  return true;
}

bool PhaseList::by_heads(const Linear& bank, int out_each) {
  if (bank.adapted() || bank.bias || !kernels::Program::takes_bank(bank.matrix)) return false;
  settle();
  value_ = program_->by_heads(value_, bank.matrix, out_each);
  return true;
}

bool PhaseList::turn(Slot from, Slot to, kernels::Program::TurnForm form, const std::optional<Rope>& rope) {
  if (rope && !kernels::Program::is_constant(rope->table())) return false;
  if (rope) {
    form.angles = angles(*rope);
    form.interleaved = rope->interleaved();
  }
  program_->turn(from, to, form);
  return true;
}

bool PhaseList::attend_latent(Slot keys, int slot, int heads, float scale) {
  settle();
  const auto place = attend_place(step_, slot);
  if (place.pool.blocks.latent < 1 || place.pool.blocks.kv_heads != 1) return false;
  value_ = program_->latent_attention(value_, keys, place.pool, place.rows,
                                      {heads, place.window, scale, 0.0f, place.chunk});
  return true;
}

bool PhaseList::add(Slot base, const Norm* norm, float scale) {
  std::optional<kernels::NormForm> form;
  if (norm && !(form = norm->visit([](const auto& n) { return form_of(n); }))) return false;
  settle();
  value_ = program_->add(base, value_, std::move(form), scale);
  return true;
}

}  // namespace mlxcel
