// Published models of the tests: where they lie, and their answers to token ids.
// Owner: values. Thread: model thread.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/matrix.h"
#include "models/model.h"
#include "state/kv_mode.h"

namespace mlxcel::real {

inline constexpr const char* kSmolLm2 = "HuggingFaceTB/SmolLM2-135M-Instruct/SmolLM2-135M-Instruct.Q4_1.gguf";
inline constexpr const char* kMiniLm = "sentence-transformers/all-MiniLM-L6-v2";

/// Under MLXCEL_TEST_CACHE or the model store, in that order.
std::optional<std::filesystem::path> find(const std::string& name);

struct Setup {
  KernelMode mode = KernelMode::native;
  kernels::Precision precision = kernels::Precision::high;
  mx::Dtype kv = mx::float16;
  KvModeOptions kv_mode = {};  // with `kv` for what is not coded
  PackedCacheOptions packed = {};
};

/// A loaded model and its memory, under one setting of the kernels; puts the setting back when dropped.
class Loaded {
 public:
  Loaded(const std::filesystem::path& path, const Setup& setup);
  ~Loaded();
  Loaded(const Loaded&) = delete;
  Loaded& operator=(const Loaded&) = delete;

  Model& model() { return *model_; }
  const Checkpoint& checkpoint() const { return checkpoint_; }
  RowState make_row() { return store_->make_row(); }
  /// Logits [wanted][vocab] of the row's next tokens.
  std::vector<std::vector<float>> logits(RowState& row, const std::vector<int32_t>& tokens, Wants wants);
  /// Hidden states [tokens][width] of several rows in one step (encoders).
  std::vector<std::vector<float>> hidden(const std::vector<std::vector<int32_t>>& rows);

 private:
  KernelMode mode_before_;
  kernels::Precision precision_before_;
  Checkpoint checkpoint_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<StateStore> store_;
};

/// x - log(sum(exp(x))), in double.
std::vector<double> log_probabilities(const std::vector<float>& logits);

}  // namespace mlxcel::real
