#include "app/output_folder.h"

#include <fmt/format.h>

#include <filesystem>

#include "app/options.h"
#include "app/terminal.h"

namespace mlxcel::app {

namespace fs = std::filesystem;

void check_output(const std::string& target, bool force) {
  std::error_code error;
  if (!force && fs::exists(target, error) &&
      !(fs::is_directory(target, error) && fs::is_empty(target, error)))
    throw UsageError(fmt::format("--output {}: is there already; --force replaces it", target));
}

void write_output(const Checkpoint& checkpoint, const ExportPlan& plan, const ExportOptions& options,
                  const std::string& target, bool force) {
  const Interrupt interrupt;
  ProgressBar bar("writing");
  write_export(checkpoint, plan, options, target, force, [&](size_t done, size_t total) {
    if (Interrupt::pending()) throw Interrupted{};
    bar.update(done, total);
  });
}

}  // namespace mlxcel::app
