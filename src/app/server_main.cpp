// The `mlxcel-server` program: `mlxcel serve` under llama-server's kind of name, and `download`.
#include <fmt/format.h>

#include <string_view>

#include "app/commands.h"
#include "app/options.h"
#include "app/serve.h"
#include "app/surface.h"

namespace {

int serve(int argc, char** argv) { return mlxcel::app::serve_command(argc, argv, "mlxcel-server"); }

}  // namespace

int main(int argc, char** argv) {
  using namespace mlxcel::app;
  static constexpr Command kCommands[] = {
      {"serve", nullptr, "", "the HTTP server", serve},
      {"download", nullptr, "", "fetch a model into the store", download_command},
  };
  const std::string_view first = argc > 1 ? argv[1] : "";
  return guarded("mlxcel-server", [&] {
    if (first == "--version") {
      fmt::print("{}\n", version_line());
      if (argc > 2 && std::string_view(argv[2]) == "--verbose") fmt::print("device: {}\n", device_label());
      return 0;
    }
    if (first == "--dump-flag-surface") {
      fmt::print("{}", flag_surface("mlxcel-server", kCommands));
      return 0;
    }
    if (first == "download") return download_command(argc - 1, argv + 1);
    return serve(argc, argv);
  });
}
