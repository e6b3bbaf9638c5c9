#if defined(__x86_64__)
#include "kernels/isa/vector_avx512.h"
// The tier's words come first.
#include "kernels/isa/vector_math.h"
#include "kernels/isa/matmul_body.h"

namespace mlxcel::kernels {
const MatmulBodies& matmul_avx512() { return kMatmul; }
}  // namespace mlxcel::kernels
#endif
