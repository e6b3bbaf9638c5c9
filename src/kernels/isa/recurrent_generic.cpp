#include "kernels/isa/vector_generic.h"
// The tier's words come first.
#include "kernels/isa/vector_math.h"
#include "kernels/isa/recurrent_body.h"

namespace mlxcel::kernels {
const RecurrentBodies& recurrent_generic() { return kRecurrent; }
}  // namespace mlxcel::kernels
