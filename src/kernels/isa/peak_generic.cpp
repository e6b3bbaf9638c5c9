#include "kernels/isa/vector_generic.h"

// The tier's words come first.
#include "kernels/isa/peak_body.h"

namespace mlxcel::kernels {
const PeakBodies& peak_generic() { return kPeak; }
}  // namespace mlxcel::kernels
