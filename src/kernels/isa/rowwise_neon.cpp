#if defined(__aarch64__)
#include "kernels/isa/neon.h"
#include "kernels/isa/vector_neon.h"

// The order matters: words, functions of them, bodies.
#include "kernels/isa/vector_math.h"

#include "kernels/isa/rowwise_body.h"

namespace mlxcel::kernels {
const RowwiseBodies& rowwise_neon() { return kRowwise; }
}  // namespace mlxcel::kernels
#endif
