#if defined(__x86_64__)
#include "kernels/isa/vector_avx2.h"
// The tier's words come first.
#include "kernels/isa/vector_math.h"
#include "kernels/isa/rowwise_body.h"

namespace mlxcel::kernels {
const RowwiseBodies& rowwise_avx2() { return kRowwise; }
}  // namespace mlxcel::kernels
#endif
