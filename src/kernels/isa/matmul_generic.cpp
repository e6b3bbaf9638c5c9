#include "kernels/isa/vector_generic.h"
// The tier's words come first.
#include "kernels/isa/vector_math.h"
#include "kernels/isa/matmul_body.h"

namespace mlxcel::kernels {
const MatmulBodies& matmul_generic() { return kMatmul; }
}  // namespace mlxcel::kernels
