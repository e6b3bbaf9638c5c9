#if defined(__aarch64__)
#include "kernels/isa/neon.h"
#include "kernels/isa/vector_neon.h"
// The tier's words come first.
#include "kernels/isa/recurrent_body.h"
#include "kernels/isa/vector_math.h"

namespace mlxcel::kernels {
const RecurrentBodies& recurrent_neon() { return kRecurrent; }
}  // namespace mlxcel::kernels
#endif
