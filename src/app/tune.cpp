// `tune`: measures kernel variants offline. The CPU kernels choose by shape alone and have nothing to tune.
#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "app/commands.h"
#include "app/options.h"

namespace mlxcel::app {
namespace {

struct Operation {
  const char* name;
  const char* backend;
  const char* about;
};
constexpr Operation kOperations[] = {
    {"paged-decode-splits", "cuda", "splits of the keys in paged decoding, by context length"},
    {"qmv-multirow", "cuda", "rows of a quantised matrix-vector product in one block"},
    {"qmm-tile", "cuda", "tile of a quantised matrix product"},
};

}  // namespace

int tune_command(int argc, char** argv) {
  std::vector<std::string> wanted;
  bool dry_run = false;
  CLI::App app("Measure kernel variants on this machine and keep the winners.", "mlxcel tune");
  configure(app, "  mlxcel tune --dry-run\n  mlxcel tune --op qmm-tile\n");
  app.add_flag("--dry-run", dry_run, "list what would be measured here");
  app.add_option("--op", wanted, "only this operation; repeatable")
      ->check(CLI::IsMember({"paged-decode-splits", "qmv-multirow", "qmm-tile"}))
      ->take_all();
  parse(app, argc, argv);
  const std::string_view backend = MLXCEL_BACKEND_NAME;
  size_t here = 0;
  fmt::print("backend {}\n", device_label());
  for (const Operation& operation : kOperations) {
    if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), operation.name) == wanted.end()) continue;
    const bool runs = backend == operation.backend;
    here += runs;
    fmt::print("  {:<20} {:<60} {}\n", operation.name, operation.about,
               runs ? "to be measured" : fmt::format("{} only, not in this build", operation.backend));
  }
  if (here > 0 && !dry_run)
    fail(ErrorKind::unsupported, "measuring on {} is not supported yet; --dry-run lists the operations",
         backend);
  if (here == 0) fmt::print("nothing to tune: the {} kernels of this build choose by shape alone\n", backend);
  return 0;
}

}  // namespace mlxcel::app
