#include "kernels/isa/vector_generic.h"

// The order matters: words, functions of them, bodies.
#include "kernels/isa/vector_math.h"

#include "kernels/isa/depthwise_body.h"

namespace mlxcel::kernels {
const DepthwiseBodies& depthwise_generic() { return kDepthwise; }
}  // namespace mlxcel::kernels
