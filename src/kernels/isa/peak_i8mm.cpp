#if defined(__aarch64__)
#include "kernels/isa/vector_neon.h"

// The tier's words come first.
#include "kernels/isa/peak_body.h"

namespace mlxcel::kernels {
const PeakBodies& peak_i8mm() { return kPeak; }
}  // namespace mlxcel::kernels
#endif
