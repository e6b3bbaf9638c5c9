// Load-time weight surgery (features.md 9): a YAML file of operations over tensor names, seen as one more
// source on top of the checkpoint's. Everything is checked from headers before any tensor is read.
// Owner: value, shared source. Thread: as Source. Failure: invalid_request for the file itself (line and
// field); bad_checkpoint for patterns that match nothing and shapes that do not fit.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/config.h"
#include "checkpoint/source.h"

namespace mlxcel {

struct SurgeryOp {
  enum class Kind { scale, add, prune, replace, interpolate };
  enum class Grain { attention_head, layer, mlp_channel };
  Kind kind = Kind::scale;
  std::string pattern;
  double factor = 1.0;                     // scale
  std::filesystem::path source, source_b;  // add, replace, interpolate (source is source_a)
  std::string source_key;                  // replace
  double alpha = 1.0;                      // add
  double ratio = 0.5;                      // interpolate: 0 is source_a
  bool slerp = false;
  Grain grain = Grain::attention_head;
  std::vector<int> ids;  // prune
  int line = 0;

  std::string describe() const;  // "operation at line 4 (scale model.layers.*)"
};

struct Surgery {
  std::filesystem::path file;
  std::vector<SurgeryOp> operations;
};

/// Reads and checks the file; donors are looked for, not opened.
Surgery read_surgery(const std::filesystem::path& file);

/// `config` gives the heads' width. Donors' headers are opened here.
std::shared_ptr<Source> operate(std::shared_ptr<Source> source, const Config& config, const Surgery& surgery);

}  // namespace mlxcel
