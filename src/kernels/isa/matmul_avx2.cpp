#if defined(__x86_64__)
#include "kernels/isa/vector_avx2.h"

// The order matters: words, functions of them, bodies.
#include "kernels/isa/vector_math.h"

#include "kernels/isa/matmul_body.h"

namespace mlxcel::kernels {
const MatmulBodies& matmul_avx2() { return kMatmul; }
}  // namespace mlxcel::kernels
#endif
