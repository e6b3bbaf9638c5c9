// Any exception of an evaluation as the Error a client may see. Thread: any.
#pragma once

#include <exception>

#include "base/error.h"

namespace mlxcel {

Error to_error(const std::exception& error);
/// True for allocations that failed, ours or MLX's: another step may well succeed.
bool is_out_of_memory(const std::exception& error);

}  // namespace mlxcel
