// Deliberate faults for the mutant tests (tests/arch/mutants): they prove that the suite and the goldens see
// a wrong scale, a missing norm, a swapped gate. In the product every question is a constant `false`.
// Owner: the test program, compiled with MLXCEL_FAULTS. Thread: model thread.
#pragma once

#include <string_view>

namespace mlxcel {

#ifdef MLXCEL_FAULTS
/// The one fault in force; empty for none. Defined by the test program.
std::string_view current_fault();
inline bool fault(std::string_view name) { return current_fault() == name; }
#else
constexpr bool fault(std::string_view) { return false; }
#endif

}  // namespace mlxcel
