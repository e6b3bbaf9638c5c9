// The `mlxcel-server` program: `mlxcel serve` under llama-server's kind of name.
#include <fmt/format.h>

#include <string_view>

#include "app/options.h"
#include "app/serve.h"

int main(int argc, char** argv) {
  using namespace mlxcel::app;
  if (argc > 1 && std::string_view(argv[1]) == "--version") {
    fmt::print("{}\n", version_line());
    if (argc > 2 && std::string_view(argv[2]) == "--verbose") fmt::print("device: {}\n", device_label());
    return 0;
  }
  return guarded("mlxcel-server", [&] { return serve_command(argc, argv, "mlxcel-server"); });
}
