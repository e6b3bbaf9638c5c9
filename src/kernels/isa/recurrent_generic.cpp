#include "kernels/isa/vector_generic.h"

// The order matters: words, functions of them, bodies.
#include "kernels/isa/vector_math.h"

#include "kernels/isa/recurrent_body.h"

namespace mlxcel::kernels {
const RecurrentBodies& recurrent_generic() { return kRecurrent; }
}  // namespace mlxcel::kernels
