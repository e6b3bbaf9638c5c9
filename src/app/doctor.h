// `doctor`: what is wrong with a checkpoint, each finding with what it leads to and what helps. Headers and
// configuration only, unless `deep`.
// Owner: one report per run. Thread: main. Failure: findings, not exceptions.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "models/model.h"
#include "text/tokenizer.h"

namespace mlxcel::app {

struct Finding {
  enum class Status { ok, warn, fail };
  std::string id;
  Status status = Status::ok;
  std::string detail;
  std::string where;  // file, tensor or key; may be empty
};
const char* to_string(Finding::Status status);

class Report {
 public:
  void ok(const char* id, std::string detail, std::string where = "") {
    add(id, Finding::Status::ok, detail, where);
  }
  void warn(const char* id, std::string detail, std::string where = "") {
    add(id, Finding::Status::warn, detail, where);
  }
  void fail(const char* id, std::string detail, std::string where = "") {
    add(id, Finding::Status::fail, detail, where);
  }
  /// The sentence for a check that found nothing; dropped where it did.
  void settle(const char* id, const std::string& detail);
  int count(Finding::Status status) const;
  const std::vector<Finding>& findings() const { return findings_; }

 private:
  void add(const char* id, Finding::Status status, std::string detail, std::string where) {
    findings_.push_back({id, status, std::move(detail), std::move(where)});
  }
  std::vector<Finding> findings_;
};

/// "a, b, c, d and 7 more".
std::string listed(const std::vector<std::string>& names);

/// files, shards, index.
void examine_files(const std::filesystem::path& path, Report& report);
/// names, tied-head, bits, eos, rope, window, memory; with `deep` the values.
void examine_model(const Checkpoint& checkpoint, bool deep, Report& report);
/// tokenizer, template, capabilities.
void examine_text(const Checkpoint& checkpoint, Report& report);

}  // namespace mlxcel::app
