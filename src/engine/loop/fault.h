// Any exception of an evaluation as the Error a client may see. Thread: any.
#pragma once

#include <exception>

#include "base/error.h"

namespace mlxcel {

Error to_error(const std::exception& error);

}  // namespace mlxcel
