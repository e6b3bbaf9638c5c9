#include "kernels/isa/vector_generic.h"
// The tier's words come first.
#include "kernels/isa/vector_math.h"
#include "kernels/isa/rowwise_body.h"

namespace mlxcel::kernels {
const RowwiseBodies& rowwise_generic() { return kRowwise; }
}  // namespace mlxcel::kernels
