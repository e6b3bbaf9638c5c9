// Gemma 4's assistants against transformers' own (assistant/*.json, written by tools/golden/assistant.py):
// what they guess, one token after another, over the keys and values that a tiny target holds.
#include <gtest/gtest.h>
#include <mlx/transforms.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "golden.h"
#include "kernels/matrix.h"
#include "models/assistant.h"
#include "models/side_drafter.h"
#include "models/synthetic.h"

namespace mlxcel::golden {
namespace {

using Json = nlohmann::json;

constexpr const char* kOrder = "masked_embedding.token_ordering";

/// Synthetic tensors, and an order of the tokens: that of the values which they would have.
class Ordered final : public Source {
 public:
  explicit Ordered(const std::vector<TensorShape>& tensors) : inner_(synthetic_source(tensors)) {}
  std::vector<std::string> names() const override { return inner_->names(); }
  std::optional<WeightInfo> find(const std::string& name) const override { return inner_->find(name); }
  Weight load(const std::string& name) override {
    Weight weight = inner_->load(name);
    if (name != kOrder) return weight;
    const auto values = synthetic_values(name, weight.shape);
    std::vector<int32_t> order(values.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      return values[static_cast<size_t>(a)] < values[static_cast<size_t>(b)];
    });
    weight.data = array(order.begin(), weight.shape, mx::int32);
    return weight;
  }

 private:
  std::shared_ptr<Source> inner_;
};

struct Case {
  Json json;
  explicit Case(const std::string& name) {
    std::ifstream file(std::string(MLXCEL_SOURCE_DIR "/tests/golden/assistant/") + name + ".json");
    json = Json::parse(file);
  }
  std::shared_ptr<Source> source(const char* list) const {
    std::vector<TensorShape> tensors;
    for (const auto& [tensor, shape] : json.at(list).items()) {
      const auto sizes = shape.get<std::vector<int>>();
      tensors.push_back({tensor, Shape(sizes.begin(), sizes.end())});
    }
    return std::make_shared<Ordered>(tensors);
  }
  std::unique_ptr<Model> target() const {
    return build_model(Config::parse(json.at("target").dump(), "target"), source("target_tensors"));
  }
  SideMtp load(const Model& beside, const Json& patch = Json::object()) const {
    Json config = json.at("config");
    config.merge_patch(patch);
    return load_mtp(Config::parse(config.dump(), "assistant"), source("tensors"), beside);
  }
};

std::pair<array, array> evaluated(Step& step, const std::pair<array, array>& made) {
  const auto settled = [](const array& x) { return mx::contiguous(mx::astype(x, mx::float32)); };
  const array first = settled(made.first), second = settled(made.second);
  std::vector<array> outputs = step.pending();
  outputs.insert(outputs.end(), {first, second});
  mx::eval(std::move(outputs));
  return {first, second};
}

/// The guesses behind the last token, which the target's row does not hold yet.
std::vector<std::vector<float>> guesses(const AssistantHead& head, Model& target,
                                        const std::vector<int32_t>& tokens, size_t count, int neighbours) {
  StateStore store(target.layout(), {.kv_dtype = mx::float32, .max_tokens = 256});
  std::vector<RowState> rows;
  for (int i = 0; i <= neighbours; ++i) rows.push_back(store.make_row());
  std::vector<float> states;
  // Neighbours are longer, and come first; the row itself is the last.
  for (int i = neighbours; i >= 0; --i) {
    RowState& row = rows[static_cast<size_t>(neighbours - i)];
    std::vector<int32_t> known(static_cast<size_t>(i), 7);
    known.insert(known.end(), tokens.begin(), tokens.end() - 1);
    Step step;
    step.add(&row, known, Wants::last);
    step.seal();
    const array hidden = evaluated(step, target.logits_and_hidden(step)).second;
    step.commit();
    const int width = hidden.shape(1);
    const float* last = hidden.data<float>() + (hidden.shape(0) - 1) * width;
    states.insert(states.end(), last, last + width);
  }
  std::vector<int32_t> at(rows.size(), tokens.back());
  std::vector<std::vector<float>> found;
  while (found.size() < count) {
    Step step;
    for (size_t i = 0; i < rows.size(); ++i) step.add(&rows[i], {&at[i], 1}, Wants::last);
    step.seal();
    const auto [logits, out] = evaluated(
        step, head(step, array(states.data(), {static_cast<int>(rows.size()), head.width()}, mx::float32)));
    const auto vocab = static_cast<size_t>(logits.shape(1));
    for (size_t i = 0; i < rows.size(); ++i) {
      const float* row = logits.data<float>() + i * vocab;
      at[i] = static_cast<int32_t>(std::max_element(row, row + vocab) - row);
      if (i + 1 == rows.size()) found.emplace_back(row, row + vocab);
    }
    states.assign(out.data<float>(), out.data<float>() + out.size());
  }
  for (const RowState& row : rows) EXPECT_GE(row.length(), static_cast<int>(tokens.size()) - 1);
  EXPECT_EQ(rows.back().length(), static_cast<int>(tokens.size()) - 1);  // nothing was committed
  return found;
}

class AssistantGoldenTest : public ::testing::TestWithParam<const char*> {};

TEST_P(AssistantGoldenTest, guesses_as_transformers_does) {
  const Case one(GetParam());
  const auto tokens = one.json.at("tokens").get<std::vector<int32_t>>();
  const auto drafted = one.json.at("draft").get<std::vector<int32_t>>();
  const auto mode = kernel_mode();
  const auto precision = kernels::precision();
  for (const auto& [form, used, limit] : {std::tuple{KernelMode::native, kernels::Precision::exact, 2e-3f},
                                          {KernelMode::native, kernels::Precision::high, 1e-2f},
                                          {KernelMode::reference, kernels::Precision::exact, 2e-3f}}) {
    set_kernel_mode(form);
    kernels::set_precision(used);
    const auto beside = one.target();
    const SideMtp side = one.load(*beside);
    ASSERT_TRUE(side.assistant);
    EXPECT_FALSE(side.block);
    for (const int neighbours : {0, 2}) {
      const auto found = guesses(*side.assistant, *beside, tokens, drafted.size(), neighbours);
      for (size_t i = 0; i < drafted.size(); ++i) {
        const auto want = one.json.at("logits").at(i).get<std::vector<float>>();
        ASSERT_EQ(want.size(), found[i].size());
        float worst = 0.0f;
        for (size_t t = 0; t < want.size(); ++t) worst = std::max(worst, std::abs(want[t] - found[i][t]));
        EXPECT_LE(worst, limit) << GetParam() << ", guess " << i << ", " << neighbours << " neighbours";
        EXPECT_EQ(std::max_element(found[i].begin(), found[i].end()) - found[i].begin(), drafted[i]);
      }
    }
  }
  set_kernel_mode(mode);
  kernels::set_precision(precision);
}

INSTANTIATE_TEST_SUITE_P(All, AssistantGoldenTest, ::testing::Values("plain", "ordered", "shared"),
                         [](const auto& one) { return std::string(one.param); });

TEST(AssistantTest, those_of_other_targets_are_refused_by_name) {
  const Case one("plain"), ordered("ordered");
  const auto says = [&](const Case& which, const Json& patch, const char* part) {
    std::string text = "no error";
    try {
      (void)which.load(*which.target(), patch);
    } catch (const Error& error) {
      text = error.what();
    }
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  says(one, {{"backbone_hidden_size", 64}}, "backbone_hidden_size");
  says(one, {{"text_config", {{"vocab_size", 95}}}}, "vocab_size");
  says(one, {{"text_config", {{"head_dim", 8}}}}, "sliding layers");
  says(one, {{"text_config", {{"global_head_dim", 32}}}}, "full layers");
  says(one, {{"text_config", {{"num_attention_heads", 3}}}}, "heads");
  says(one, {{"text_config", {{"enable_moe_block", true}}}}, "enable_moe_block");
  says(one, {{"text_config", {{"hidden_size_per_layer_input", 16}}}}, "hidden_size_per_layer_input");
  says(one, {{"text_config", {{"num_hidden_layers", 2}, {"layer_types", nullptr}}}}, "layers.1.");
  says(one, {{"text_config", nullptr}}, "text_config");
  says(one, {{"use_ordered_embeddings", true}, {"num_centroids", 8}}, "masked_embedding");
  says(ordered, {{"num_centroids", 7}}, "num_centroids");
  says(ordered, {{"use_ordered_embeddings", false}}, "masked_embedding");
  says(ordered, {{"centroid_intermediate_top_k", 9}}, "centroid_intermediate_top_k");
  EXPECT_EQ(drafter_kind(Config::parse(one.json.at("config").dump(), "x")), DrafterKind::mtp);
}

}  // namespace
}  // namespace mlxcel::golden
