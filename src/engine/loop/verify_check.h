// Before drafts are used at all: does a verify block give what single steps give? Three inputs, once, at
// start-up. Owner: none. Thread: model thread.
#pragma once

#include "models/model.h"
#include "state/store.h"

namespace mlxcel {

struct VerifyCheck {
  enum class Verdict { exact, within_tolerance, declined };
  Verdict verdict = Verdict::exact;
  double largest = 0.0;  // difference of a log-probability above -10
};
const char* to_string(VerifyCheck::Verdict verdict);

/// Compares blocks of `block` tokens with as many single steps, after prompts of `prompt` tokens; the
/// tolerance is that of the type keys and values are kept in (features.md 1.1).
VerifyCheck check_verify(Model& model, StateStore& store, int block, int prompt);

}  // namespace mlxcel
