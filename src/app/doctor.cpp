#include "app/doctor.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "app/commands.h"
#include "app/options.h"
#include "app/terminal.h"

namespace mlxcel::app {

const char* to_string(Finding::Status status) {
  return status == Finding::Status::ok ? "ok" : status == Finding::Status::warn ? "warn" : "fail";
}

void Report::settle(const char* id, const std::string& detail) {
  for (const Finding& finding : findings_)
    if (finding.id == id) return;
  ok(id, detail);
}

int Report::count(Finding::Status status) const {
  return static_cast<int>(std::count_if(findings_.begin(), findings_.end(),
                                        [&](const Finding& finding) { return finding.status == status; }));
}

std::string listed(const std::vector<std::string>& names) {
  constexpr size_t kShown = 4;
  std::string out;
  for (size_t i = 0; i < names.size() && i < kShown; ++i) out += (i ? ", " : "") + names[i];
  if (names.size() > kShown) out += fmt::format(" and {} more", names.size() - kShown);
  return out;
}

int doctor_command(int argc, char** argv) {
  ModelFlags model;
  bool deep = false, json = false, strict = false;
  CLI::App app("Check a checkpoint and name every disagreement.", "mlxcel doctor");
  configure(app,
            "  mlxcel doctor SmolLM2-135M-Instruct\n"
            "  mlxcel doctor ./model --deep\n"
            "  mlxcel doctor ./model --json --strict\n");
  add_source_flags(app, model, true);
  app.add_flag("--deep", deep, "read the tensors too: NaN, Inf, all zero, heads that differ");
  app.add_flag("--strict", strict, "warnings count as failures");
  app.add_flag("--json", json, "one object with every check");
  parse(app, argc, argv);
  if (model.model.empty()) throw UsageError("doctor: which model? give a folder, a .gguf file or owner/name");
  checked_reference(model);
  const auto path = resolve(model);

  Report report;
  examine_files(path, report);
  std::optional<Checkpoint> checkpoint;
  try {
    checkpoint = open_checkpoint(path);
  } catch (const std::exception& error) {
    if (report.count(Finding::Status::fail) == 0)
      report.fail("shards", fmt::format("{}; the model cannot be loaded", error.what()));
  }
  if (checkpoint) {
    examine_model(*checkpoint, deep, report);
    examine_text(*checkpoint, report);
  }

  const int failed = report.count(Finding::Status::fail), warned = report.count(Finding::Status::warn),
            well = report.count(Finding::Status::ok);
  if (json) {
    using Json = nlohmann::ordered_json;
    Json checks = Json::array();
    for (const Finding& f : report.findings())
      checks.push_back({{"id", f.id},
                        {"status", to_string(f.status)},
                        {"detail", f.detail},
                        {"where", f.where.empty() ? Json(nullptr) : Json(f.where)}});
    const Json out = {{"model", model.model},
                      {"path", std::filesystem::absolute(path).string()},
                      {"checks", checks},
                      {"summary", {{"ok", well}, {"warn", warned}, {"fail", failed}}}};
    fmt::print("{}\n", out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
  } else {
    const bool colours = styled(stdout_is_terminal());
    for (const Finding& f : report.findings()) {
      const char* colour = f.status == Finding::Status::ok     ? "\033[32m"
                           : f.status == Finding::Status::warn ? "\033[33m"
                                                               : "\033[31m";
      fmt::print("{}{:<4}{} {:<12} {}{}\n", colours ? colour : "", to_string(f.status),
                 colours ? "\033[0m" : "", f.id, f.detail,
                 f.where.empty() ? "" : fmt::format(" [{}]", f.where));
    }
    fmt::print("{} ok, {} warn, {} fail\n", well, warned, failed);
  }
  return failed > 0 || (strict && warned > 0) ? 1 : 0;
}

}  // namespace mlxcel::app
