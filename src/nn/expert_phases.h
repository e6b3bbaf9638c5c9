// Experts said as phases (nn/phases.h). Which of them a row goes to is known only when the choice has run;
// how many is known before, and that is enough to lay out memory and pieces of work. Owner: a step. Thread:
// model thread; the work itself on the pool.
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/route.h"
#include "nn/glu.h"
#include "nn/linear.h"
#include "nn/phases.h"

namespace mlxcel {

/// The experts that the rows of a step go to.
struct ExpertChoice {
  int rows = 0, per_token = 0;
  PhaseList::Slot weights = PhaseList::kNone;  // [rows, per_token + 1]: last what a row keeps of itself
  std::vector<int> chosen;                     // [rows * per_token], once the choice has run
};

struct RouterParts {
  const Linear& gate;  // to experts and zero experts
  float cap;           // 0: none
  const std::optional<array>& correction;
  kernels::RouteForm form;
  int experts;  // numbers from here on stand for zero experts
};

/// The choice for the list's value, which stays; a norm before it is done. None: it cannot be said, or there
/// are so many rows that nodes serve as well.
std::shared_ptr<ExpertChoice> choice_phases(PhaseList& list, const RouterParts& router);

struct ExpertParts {
  const GatedLinear* gate_up = nullptr;  // or …
  const Linear* up = nullptr;            // … `up` alone, or gate then up where `gated`
  const Linear& down;
  bool gated = true;
  Activation activation = Activation::silu;
  const std::optional<ClampedGlu>& clamp;
  bool weighs_input = false, keeps_input = false;  // see MoeOptions; keeps: there are zero experts
};

/// What stands beside the sum of the experts: out = base + (routed mixed with shared).
struct BesideExperts {
  enum Mix { none, gated, coefficient, average };
  Mix mix = none;
  PhaseList::Slot shared = PhaseList::kNone;
  PhaseList::Slot gate = PhaseList::kNone;  // gated: [rows, 1], opened; coefficient: [rows, 2], logits
  PhaseList::Slot base = PhaseList::kNone;
  bool any() const { return mix != none || base != PhaseList::kNone; }
};

/// The list's value to the weighted sum of what its experts give, and what stands beside it.
bool expert_phases(PhaseList& list, const std::shared_ptr<ExpertChoice>& choice, const ExpertParts& parts,
                   const BesideExperts& beside);
/// The list's value [rows, width], the experts' sum, with what stands beside it.
void beside_phases(PhaseList& list, const BesideExperts& beside, int width);

/// Two weights that sum to one, of logits [rows, 2]: a node, and the same for a row in plain memory.
std::pair<array, array> two_weights(const array& logits);
std::pair<float, float> two_weights_row(const float* logits);

}  // namespace mlxcel
