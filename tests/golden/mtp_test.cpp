// Multi-token prediction blocks against the same blocks put together from transformers' layers (mtp/*.json,
// written by tools/golden/mtp.py).
#include <gtest/gtest.h>
#include <mlx/transforms.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "golden.h"
#include "kernels/matrix.h"
#include "models/mtp.h"

namespace mlxcel::golden {
namespace {

using Json = nlohmann::json;

Golden read_mtp(const std::string& name) {
  std::ifstream file(std::string(MLXCEL_SOURCE_DIR "/tests/golden/mtp/") + name + ".json");
  const Json json = Json::parse(file);
  Golden golden;
  golden.name = name;
  golden.config = json.at("config").dump();
  for (const auto& [tensor, shape] : json.at("tensors").items()) {
    const auto sizes = shape.get<std::vector<int>>();
    golden.tensors.push_back({tensor, Shape(sizes.begin(), sizes.end())});
  }
  golden.tokens = json.at("tokens").get<std::vector<int32_t>>();
  golden.positions = json.at("positions").get<std::vector<int>>();
  golden.expected = json.at("logits").get<Rows>();
  return golden;
}

Rows rows_of(const array& values) {
  const auto width = static_cast<size_t>(values.shape(1));
  Rows rows(static_cast<size_t>(values.shape(0)));
  for (size_t i = 0; i < rows.size(); ++i)
    rows[i].assign(values.data<float>() + i * width, values.data<float>() + (i + 1) * width);
  return rows;
}

/// Evaluates what a function makes of one row's tokens, in chunks, each f32 and in one piece.
std::vector<std::pair<array, array>> in_chunks(
    const StateLayout& layout, std::span<const int32_t> tokens, int chunk,
    const std::function<std::pair<array, array>(Step&, int first)>& run) {
  StateStore store(layout, {.kv_dtype = mx::float32, .max_tokens = 256});
  RowState row = store.make_row();
  std::vector<std::pair<array, array>> parts;
  for (size_t first = 0; first < tokens.size(); first += static_cast<size_t>(chunk)) {
    Step step;
    step.add(&row, tokens.subspan(first, std::min(static_cast<size_t>(chunk), tokens.size() - first)),
             Wants::all);
    step.seal();
    auto [a, b] = run(step, static_cast<int>(first));
    a = mx::contiguous(mx::astype(a, mx::float32));
    b = mx::contiguous(mx::astype(b, mx::float32));
    std::vector<array> outputs = step.pending();
    outputs.insert(outputs.end(), {a, b});
    mx::eval(std::move(outputs));
    step.commit();
    parts.emplace_back(a, b);
  }
  return parts;
}

class MtpGoldenTest : public ::testing::TestWithParam<const char*> {};

TEST_P(MtpGoldenTest, guesses_as_its_layers_do) {
  Golden golden = read_mtp(GetParam());
  const auto mode = kernel_mode();
  const auto precision = kernels::precision();
  const std::span<const int32_t> tokens(golden.tokens);
  for (const auto& [form, used, limit] : {std::tuple{KernelMode::native, kernels::Precision::exact, 2e-3f},
                                          {KernelMode::native, kernels::Precision::high, 5e-3f},
                                          {KernelMode::reference, kernels::Precision::exact, 2e-3f}}) {
    set_kernel_mode(form);
    kernels::set_precision(used);
    const auto model = build(golden, golden.config);
    const auto head = model->mtp();
    ASSERT_TRUE(head);
    // The logits beside the states are those of a step without them.
    const auto whole = in_chunks(model->layout(), tokens, 100,
                                 [&](Step& step, int) { return model->logits_and_hidden(step); });
    const Rows plain = run(*model, golden.tokens);
    if (form == KernelMode::native) {
      EXPECT_EQ(rows_of(whole[0].first), plain) << golden.name;
    }
    const array& states = whole[0].second;
    for (const int chunk : {100, 5}) {
      const auto parts = in_chunks(head->layout(), tokens.subspan(1), chunk, [&](Step& step, int first) {
        return (*head)(step, mx::slice(states, {first, 0}, {first + step.count(), states.shape(1)}));
      });
      Rows got;
      for (const auto& [logits, out] : parts)
        for (auto& row : rows_of(logits)) got.push_back(std::move(row));
      got.push_back(got.back());  // distance() wants one answer for each token; the last has none
      EXPECT_LE(distance(golden, got), limit) << golden.name << ", chunks of " << chunk;
    }
  }
  set_kernel_mode(mode);
  kernels::set_precision(precision);
}

TEST_P(MtpGoldenTest, checkpoints_without_its_tensors_have_none) {
  Golden golden = read_mtp(GetParam());
  const int layers = Json::parse(golden.config).at("num_hidden_layers");
  const std::string stem = GetParam() == std::string("qwen3_5") ? "mtp." : "model.layers." + std::to_string(layers) + ".";
  const auto half = std::find_if(golden.tensors.begin(), golden.tensors.end(), [&](const TensorShape& t) {
    return t.name.starts_with(stem) && t.name.ends_with("q_proj.weight");
  });
  const auto kept = half == golden.tensors.end() ? golden.tensors.front() : *half;
  std::erase_if(golden.tensors, [&](const TensorShape& t) { return t.name.starts_with(stem); });
  EXPECT_FALSE(build(golden, golden.config)->mtp());
  if (!kept.name.starts_with(stem)) return;
  golden.tensors.push_back(kept);
  EXPECT_THROW((void)build(golden, golden.config)->mtp(), Error);  // half a block
}

INSTANTIATE_TEST_SUITE_P(All, MtpGoldenTest, ::testing::Values("deepseek_v3", "glm4_moe", "qwen3_5"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace mlxcel::golden
