#if defined(__x86_64__)
#include "kernels/isa/vector_avx2.h"

// The tier's words come first.
#include "kernels/isa/peak_body.h"

namespace mlxcel::kernels {
const PeakBodies& peak_avx2() { return kPeak; }
}  // namespace mlxcel::kernels
#endif
