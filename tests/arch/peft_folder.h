// For tests: PEFT adapters over an architecture's tiny model, of synthetic values.
#pragma once

#include <filesystem>
#include <vector>

#include "checkpoint/adapter_files.h"
#include "models/arch.h"
#include "models/model.h"
#include "nn/weights.h"

namespace mlxcel::archtest {

/// A folder with an adapter over these matrices of the published layout; gone with its owner.
class PeftFolder {
 public:
  static constexpr int kRank = 3;
  PeftFolder(const std::vector<TensorShape>& matrices, int seed);
  ~PeftFolder();
  PeftFolder(const PeftFolder&) = delete;
  PeftFolder& operator=(const PeftFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }
  AdapterFiles files() const { return AdapterFiles::read(path_); }

 private:
  std::filesystem::path path_;
};

/// The published matrices on which the model takes an adapter, found by asking for each alone. A refusal must
/// name the module.
std::vector<TensorShape> adaptable(const NamedArch& entry, const Model& model);

}  // namespace mlxcel::archtest
