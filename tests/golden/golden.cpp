#include "golden.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <stdexcept>

#include <mlx/transforms.h>

#include "models/arch.h"

namespace mlxcel::golden {

namespace {

using Json = nlohmann::json;

/// A spelling is an object, or text where JSON's numbers do not suffice (Infinity).
std::string text_of(const Json& config) {
  return config.is_string() ? config.get<std::string>() : config.dump();
}

Golden read(const std::filesystem::path& path) {
  std::ifstream file(path);
  const Json json = Json::parse(file);
  Golden golden;
  golden.name = json.at("name");
  golden.reference = json.at("reference");
  const Json& config = json.at("config");
  golden.model_type = config.at("model_type");
  golden.config = config.dump();
  for (const auto& spelling : json.at("spellings")) golden.spellings.push_back(text_of(spelling));
  for (const auto& [name, shape] : json.at("tensors").items()) {
    const auto sizes = shape.get<std::vector<int>>();
    golden.tensors.push_back({name, Shape(sizes.begin(), sizes.end())});
  }
  const Json formats = json.value("quantized", Json::object());
  for (const auto& [name, format] : formats.items())
    golden.formats[name] = {
        .mode = QuantMode::affine, .bits = format.at("bits"), .group_size = format.at("group")};
  golden.tokens = json.at("tokens").get<std::vector<int32_t>>();
  golden.positions = json.at("positions").get<std::vector<int>>();
  golden.encoder = json.contains("hidden");
  golden.scored = json.value("scored", false);
  golden.second = json.value("second", 0);
  golden.draft = json.value("draft", 0);
  golden.prompt = json.value("prompt", 0);
  golden.expected = json.at(golden.encoder ? "hidden" : "logits").get<Rows>();
  if (golden.expected.size() != golden.positions.size() || golden.positions.empty())
    throw std::runtime_error(path.string() + ": positions and answers differ in number");
  for (const auto& mutant : json.at("mutants")) {
    Json changed = config;
    changed.merge_patch(mutant.at("patch"));
    golden.mutants.push_back({mutant.at("patch").dump(), changed.dump(), mutant.at("distance")});
  }
  return golden;
}

Rows rows_of(const array& values) {
  array dense = mx::contiguous(mx::astype(values, mx::float32));
  dense.eval();
  const auto width = static_cast<size_t>(dense.shape(-1));
  const auto count = dense.size() / width;
  Rows rows(count);
  for (size_t i = 0; i < count; ++i)
    rows[i].assign(dense.data<float>() + i * width, dense.data<float>() + (i + 1) * width);
  return rows;
}

/// Runs a step to its end and gives every token's answer.
Rows finish(Model& model, Step& step) {
  step.seal();
  const bool encoder = model.info().encoder;
  if (model.info().labels > 0) {  // one answer for each row, at its first token
    const Rows scores = rows_of(model.scores(step));
    Rows answers(static_cast<size_t>(step.count()));
    for (size_t i = 0; i < scores.size(); ++i) answers[static_cast<size_t>(step.rows()[i].first)] = scores[i];
    return answers;
  }
  const array answer = encoder ? model.hidden(step) : model.logits(step);
  std::vector<array> all = step.pending();
  all.push_back(answer);
  mx::eval(all);
  step.commit();
  return rows_of(answer);
}

std::vector<double> log_probabilities(const std::vector<float>& logits) {
  const double top = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float x : logits) sum += std::exp(x - top);
  std::vector<double> result;
  for (const float x : logits) result.push_back(x - top - std::log(sum));
  return result;
}

/// The answers for drafts behind what the rows hold, in the second of two rounds that read them; rows without
/// one are left out.
Rows redrawn(Model& model, std::vector<RowState>& states, const std::vector<std::vector<int32_t>>& drafts) {
  Rows answers;
  for (int round = 0; round < 2; ++round) {
    Step step;
    auto before = answers.begin();
    for (size_t i = 0; i < drafts.size(); ++i) {
      const auto count = static_cast<std::ptrdiff_t>(drafts[i].size());
      if (count == 0) continue;
      step.add(&states[i], drafts[i], Wants::all);
      std::vector<float> logits;
      if (round > 0)
        for (auto row = before; row != before + count; ++row)
          logits.insert(logits.end(), row->begin(), row->end());
      if (round > 0) before += count;
      const int vocab = model.info().vocab_size;
      step.open(static_cast<int>(count),
                round > 0 ? std::optional(array(logits.data(), {static_cast<int>(count), vocab}, mx::float32))
                          : std::nullopt);
    }
    answers = finish(model, step);
  }
  return answers;
}

StoreOptions exact_memory() { return {.kv_dtype = mx::float32, .max_tokens = 1024}; }

}  // namespace

const std::vector<Golden>& all() {
  static const std::vector<Golden> goldens = [] {
    std::vector<std::filesystem::path> paths;
    for (const auto& entry : std::filesystem::directory_iterator(MLXCEL_SOURCE_DIR "/tests/golden/data"))
      if (entry.path().extension() == ".json") paths.push_back(entry.path());
    std::sort(paths.begin(), paths.end());
    std::vector<Golden> list;
    for (const auto& path : paths) list.push_back(read(path));
    return list;
  }();
  return goldens;
}

bool has_arch(const Golden& golden) {
  for (const auto& entry : arch_table()) {
    const auto& types = entry.arch.model_types;
    if (std::find(types.begin(), types.end(), golden.model_type) != types.end()) return true;
  }
  return false;
}

std::unique_ptr<Model> build(const Golden& golden, const std::string& config) {
  return build_model(Config::parse(config, golden.name), source_of(golden.tensors, golden.formats),
                     {.keeps_nothing = golden.encoder});
}

Rows run(Model& model, const std::vector<int32_t>& all, const std::vector<int>& chunks, int second, int draft,
         int prompt) {
  if (model.info().encoder) return run_together(model, {all}, {second}).front();
  const std::vector<int32_t> tokens(all.begin(), all.end() - draft);
  StateStore store(model.layout(), exact_memory());
  std::vector<RowState> states;
  states.push_back(store.make_row(prompt > 0 ? prompt : static_cast<int>(tokens.size())));
  RowState& row = states[0];
  Rows answers;
  size_t first = 0;
  for (size_t i = 0; first < tokens.size(); ++i) {
    const size_t left = tokens.size() - first;
    const size_t count = i < chunks.size() ? std::min(left, static_cast<size_t>(chunks[i])) : left;
    Step step;
    step.add(&row, std::span(tokens).subspan(first, count), Wants::all);
    for (auto& answer : finish(model, step)) answers.push_back(std::move(answer));
    first += count;
  }
  if (draft > 0)
    for (auto& answer : redrawn(model, states, {{all.end() - draft, all.end()}}))
      answers.push_back(std::move(answer));
  return answers;
}

std::vector<Rows> run_together(Model& model, const std::vector<std::vector<int32_t>>& rows,
                               const std::vector<int>& seconds, const std::vector<int>& drafts,
                               const std::vector<int>& prompts) {
  const auto draft_of = [&](size_t i) { return drafts.empty() ? 0 : drafts[i]; };
  std::optional<StateStore> store;
  std::vector<RowState> states;
  if (!model.info().encoder) {
    store.emplace(model.layout(), exact_memory());
    for (size_t i = 0; i < rows.size(); ++i)
      states.push_back(store->make_row(prompts.empty() ? 0 : prompts[i]));
  }
  Step step;
  for (size_t i = 0; i < rows.size(); ++i)
    step.add(store ? &states[i] : nullptr,
             std::span(rows[i]).first(rows[i].size() - static_cast<size_t>(draft_of(i))), Wants::all, nullptr,
             seconds.empty() ? 0 : seconds[i]);
  const Rows answers = finish(model, step);
  std::vector<std::vector<int32_t>> open;
  for (size_t i = 0; i < rows.size(); ++i) open.emplace_back(rows[i].end() - draft_of(i), rows[i].end());
  Rows redrawn_answers;
  if (!drafts.empty() && std::any_of(drafts.begin(), drafts.end(), [](int n) { return n > 0; }))
    redrawn_answers = redrawn(model, states, open);
  auto behind = redrawn_answers.begin();
  std::vector<Rows> parts;
  auto at = answers.begin();
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::ptrdiff_t draft = draft_of(i), known = static_cast<std::ptrdiff_t>(rows[i].size()) - draft;
    parts.emplace_back(at, at + known);
    at += known;
    parts.back().insert(parts.back().end(), behind, behind + draft);
    behind += draft;
  }
  return parts;
}

float distance(const Golden& golden, const Rows& actual) {
  constexpr double kUnequal = std::numeric_limits<float>::infinity();
  if (actual.size() != golden.tokens.size()) return kUnequal;
  double worst = 0;
  const auto differ = [&worst](double difference) {  // NaN counts as unequal
    worst = std::isfinite(difference) ? std::max(worst, std::abs(difference)) : kUnequal;
  };
  float scale = 1.0f;
  if (golden.encoder)
    for (const auto& row : golden.expected)
      for (const float x : row) scale = std::max(scale, std::abs(x));
  for (size_t i = 0; i < golden.positions.size() && std::isfinite(worst); ++i) {
    const auto& want = golden.expected[i];
    const auto& got = actual[static_cast<size_t>(golden.positions[i])];
    if (want.size() != got.size()) return kUnequal;
    if (golden.encoder) {
      for (size_t j = 0; j < want.size(); ++j) differ((got[j] - want[j]) / scale);
      continue;
    }
    const auto a = log_probabilities(want), b = log_probabilities(got);
    for (size_t j = 0; j < a.size(); ++j)
      if (a[j] > -10) differ(a[j] - b[j]);
  }
  return static_cast<float>(worst);
}

}  // namespace mlxcel::golden
