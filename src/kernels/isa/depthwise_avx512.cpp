#if defined(__x86_64__)
#include "kernels/isa/vector_avx512.h"

// The order matters: words, functions of them, bodies.
#include "kernels/isa/vector_math.h"

#include "kernels/isa/depthwise_body.h"

namespace mlxcel::kernels {
const DepthwiseBodies& depthwise_avx512() { return kDepthwise; }
}  // namespace mlxcel::kernels
#endif
