#if defined(__aarch64__)
#include "kernels/isa/neon.h"
#include "kernels/isa/vector_neon.h"

// The order matters: words, functions of them, bodies.
#include "kernels/isa/vector_math.h"

#include "kernels/isa/recurrent_body.h"

namespace mlxcel::kernels {
const RecurrentBodies& recurrent_neon() { return kRecurrent; }
}  // namespace mlxcel::kernels
#endif
