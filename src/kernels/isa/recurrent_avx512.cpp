#if defined(__x86_64__)
#include "kernels/isa/vector_avx512.h"
// The tier's words come first.
#include "kernels/isa/recurrent_body.h"
#include "kernels/isa/vector_math.h"

namespace mlxcel::kernels {
const RecurrentBodies& recurrent_avx512() { return kRecurrent; }
}  // namespace mlxcel::kernels
#endif
