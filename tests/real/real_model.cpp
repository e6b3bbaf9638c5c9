#include "real_model.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include <mlx/transforms.h>

#include "state/recent.h"

namespace mlxcel::real {

namespace fs = std::filesystem;

namespace {

std::vector<std::vector<float>> rows_of(const array& values) {
  array dense = mx::contiguous(values);
  dense.eval();
  const auto width = static_cast<size_t>(dense.shape(-1));
  std::vector<std::vector<float>> rows(dense.size() / width);
  for (size_t i = 0; i < rows.size(); ++i)
    rows[i].assign(dense.data<float>() + i * width, dense.data<float>() + (i + 1) * width);
  return rows;
}

}  // namespace

std::optional<fs::path> find(const std::string& name) {
  std::vector<fs::path> places;
  if (const char* cache = std::getenv("MLXCEL_TEST_CACHE")) {
    places.push_back(fs::path(cache) / name);
    places.push_back(fs::path(cache) / fs::path(name).filename());
  }
  if (const char* models = std::getenv("MLXCEL_MODELS_DIR")) {
    places.push_back(fs::path(models) / name);
  } else if (const char* cache = std::getenv("MLXCEL_CACHE_DIR")) {
    places.push_back(fs::path(cache) / "models" / name);
  } else if (const char* home = std::getenv("HOME")) {
    places.push_back(fs::path(home) / ".cache/mlxcel/models" / name);
  }
  for (const auto& place : places)
    if (fs::exists(place)) return place;
  return std::nullopt;
}

Loaded::Loaded(const fs::path& path, const Setup& setup)
    : mode_before_(kernel_mode()), precision_before_(kernels::precision()) {
  set_kernel_mode(setup.mode);
  kernels::set_precision(setup.precision);
  checkpoint_ = open_checkpoint(path);
  LoadOptions load;
  load.packed = setup.packed;
  model_ = load_model(checkpoint_, load);
  if (!model_->info().encoder) {
    const ModelInfo& info = model_->info();
    const KvPlan kv = plan_kv(model_->layout(), setup.kv_mode, setup.kv, info.layers, info.model_type);
    store_ = std::make_unique<StateStore>(
        model_->layout(), StoreOptions{.kv_dtype = setup.kv, .max_tokens = 2048, .formats = kv.formats});
    keep_recent(*store_, kv.recent);
  }
}

Loaded::~Loaded() {
  set_kernel_mode(mode_before_);
  kernels::set_precision(precision_before_);
}

std::vector<std::vector<float>> Loaded::logits(RowState& row, const std::vector<int32_t>& tokens,
                                               Wants wants) {
  Step step;
  step.add(&row, tokens, wants);
  step.seal();
  const array answer = model_->logits(step);
  auto all = step.pending();
  all.push_back(answer);
  mx::eval(all);
  step.commit();
  return rows_of(answer);
}

std::vector<std::vector<float>> Loaded::hidden(const std::vector<std::vector<int32_t>>& rows) {
  Step step;
  for (const auto& row : rows) step.add(nullptr, row, Wants::none);
  step.seal();
  const auto values = rows_of(model_->hidden(step));
  step.commit();
  return values;
}

std::vector<double> log_probabilities(const std::vector<float>& logits) {
  const double top = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float x : logits) sum += std::exp(x - top);
  const double log_sum = top + std::log(sum);
  std::vector<double> result(logits.size());
  std::transform(logits.begin(), logits.end(), result.begin(), [&](float x) { return x - log_sum; });
  return result;
}

}  // namespace mlxcel::real
