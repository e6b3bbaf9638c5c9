// `mlxcel serve` and `mlxcel-server`: the same server with the same flags.
#pragma once

namespace mlxcel::app {

/// argv[0] is skipped. Returns the exit code: 0 after a drained stop, 1 for a failed load, 2 for a usage
/// error.
int serve_command(int argc, char** argv, const char* program);

}  // namespace mlxcel::app
