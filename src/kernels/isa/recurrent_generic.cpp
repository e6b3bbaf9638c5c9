#include "kernels/isa/vector_generic.h"
// The tier's words come first.
#include "kernels/isa/recurrent_body.h"
#include "kernels/isa/vector_math.h"

namespace mlxcel::kernels {
const RecurrentBodies& recurrent_generic() { return kRecurrent; }
}  // namespace mlxcel::kernels
