#if defined(__x86_64__)
#include "kernels/isa/vector_avx2.h"

// The order matters: words, functions of them, bodies.
#include "kernels/isa/vector_math.h"

#include "kernels/isa/recurrent_body.h"

namespace mlxcel::kernels {
const RecurrentBodies& recurrent_avx2() { return kRecurrent; }
}  // namespace mlxcel::kernels
#endif
