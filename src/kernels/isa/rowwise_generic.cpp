#include "kernels/isa/vector_generic.h"

// The order matters: words, functions of them, bodies.
#include "kernels/isa/vector_math.h"

#include "kernels/isa/rowwise_body.h"

namespace mlxcel::kernels {
const RowwiseBodies& rowwise_generic() { return kRowwise; }
}  // namespace mlxcel::kernels
