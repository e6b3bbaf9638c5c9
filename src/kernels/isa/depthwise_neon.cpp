#if defined(__aarch64__)
#include "kernels/isa/neon.h"
#include "kernels/isa/vector_neon.h"

// The order matters: words, functions of them, bodies.
#include "kernels/isa/vector_math.h"

#include "kernels/isa/depthwise_body.h"

namespace mlxcel::kernels {
const DepthwiseBodies& depthwise_neon() { return kDepthwise; }
}  // namespace mlxcel::kernels
#endif
