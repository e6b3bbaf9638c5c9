#include "kernels/isa/vector_generic.h"

// The order matters: words, functions of them, bodies.
#include "kernels/isa/vector_math.h"

#include "kernels/isa/matmul_body.h"

namespace mlxcel::kernels {
const MatmulBodies& matmul_generic() { return kMatmul; }
}  // namespace mlxcel::kernels
