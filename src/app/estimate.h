// The memory preflight (features.md 11): what a model will need, from headers alone, against what there is.
// Thread: any. Failure: as plan_model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "app/options.h"
#include "checkpoint/checkpoint.h"
#include "engine/engine.h"
#include "models/model.h"
#include "state/kv_mode.h"

namespace mlxcel::app {

struct Estimate {
  std::uintmax_t weights = 0, kv = 0, activation = 0, headroom = 0, inflight = 0, total = 0, budget = 0;
  std::uintmax_t beside = 0;        // drafter and adapters
  std::uintmax_t kv_per_token = 0;  // all layers, in the mode asked for
  bool fits = false;
};

/// `tokens` per sequence, `batch` sequences; `chunk`: prompt tokens of one pass; `beside`: bytes held with
/// the weights.
Estimate estimate_memory(const ModelPlan& plan, const Config& config, const std::string& kv_mode,
                         std::uintmax_t tokens, std::uintmax_t batch, std::uintmax_t chunk,
                         std::uintmax_t beside = 0);

/// What an engine holds beside its model. Empty: nothing.
struct Beside {
  std::filesystem::path drafter = {};
  std::vector<AdapterSource> adapters = {};
};
/// Of a drafter its weights, and keys and values of `batch` sequences; of adapters their tensors as stored.
std::uintmax_t bytes_beside(const Beside& beside, std::uintmax_t tokens, std::uintmax_t batch);

/// How the model's slots keep keys and values in `mode`; invalid_request for one that they cannot take.
std::vector<KvFormat> kv_formats(const ModelPlan& plan, const std::string& mode);

/// The lines people read: weights, KV cache, activation, headroom, total, available.
std::string estimate_text(const ModelPlan& plan, const Estimate& estimate, std::uintmax_t tokens,
                          std::uintmax_t batch);

/// --estimate-memory: prints what `rows` sequences of this model would need; over budget is out_of_memory
/// unless --force. `most`: no window is larger (--max-kv-size); 0: no such bound.
void preflight(const ModelFlags& flags, const std::filesystem::path& model, int rows, int most,
               const Beside& beside);

}  // namespace mlxcel::app
