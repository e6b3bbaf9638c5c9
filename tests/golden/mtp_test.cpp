// Multi-token prediction blocks against the same blocks put together from transformers' and mlx-lm's layers
// (mtp/*.json, written by tools/golden/mtp.py and mtp_mlx.py).
#include <gtest/gtest.h>
#include <mlx/transforms.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "golden.h"
#include "kernels/matrix.h"
#include "models/mtp.h"
#include "models/side_drafter.h"
#include "models/synthetic.h"

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

/// What the names of the block begin with.
std::string stem_of(const std::string& name, const std::string& config) {
  if (name == "mimo") return "model.mtp_layers.0.";
  if (name == "mimo_v2_flash") return "model.mtp.layers.0.";
  if (name == "longcat_flash") return "model.mtp.";
  if (name == "ernie4_5_moe") return "model.mtp_";
  for (const char* under : {"exaone_moe", "nemotron_h", "qwen3_5", "qwen3_next"})
    if (name == under) return "mtp.";
  return fmt::format("model.layers.{}.", Json::parse(config).at("num_hidden_layers").get<int>());
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
  const std::string name = GetParam(), stem = stem_of(name, golden.config);
  const auto half = std::find_if(golden.tensors.begin(), golden.tensors.end(), [&](const TensorShape& t) {
    return t.name.starts_with(stem) && t.name.find("q_") != std::string::npos;
  });
  const auto kept = half == golden.tensors.end() ? golden.tensors.front() : *half;
  std::erase_if(golden.tensors, [&](const TensorShape& t) { return t.name.starts_with(stem); });
  EXPECT_FALSE(build(golden, golden.config)->mtp());
  if (!kept.name.starts_with(stem)) return;
  golden.tensors.push_back(kept);
  EXPECT_THROW((void)build(golden, golden.config)->mtp(), Error);  // half a block
}

INSTANTIATE_TEST_SUITE_P(All, MtpGoldenTest,
                         ::testing::Values("bailing_moe", "deepseek_v3", "deepseek_v32", "ernie4_5_moe",
                                           "exaone_moe", "glm4_moe", "glm4_moe_lite", "glm_moe_dsa",
                                           "longcat_flash", "mimo", "mimo_v2_flash", "nemotron_h", "qwen3_5",
                                           "qwen3_next", "step3p5"),
                         [](const auto& one) { return std::string(one.param); });

/// The block's tensors under the names that a drafter's folder has for them.
std::shared_ptr<Source> cut_out(const Golden& golden, std::vector<Rule> names) {
  return apply_rules(synthetic_source(golden.tensors), std::move(names));
}

/// What a head makes of the states that the decoder computes.
Rows guessed(const MtpHead& head, const Golden& golden, const Model& model) {
  const std::span<const int32_t> tokens(golden.tokens);
  auto& whole = const_cast<Model&>(model);
  const array states = in_chunks(model.layout(), tokens, 100,
                                 [&](Step& step, int) { return whole.logits_and_hidden(step); })[0]
                           .second;
  return rows_of(
      in_chunks(head.layout(), tokens.subspan(1), 100,
                [&](Step& step, int first) {
                  return head(step, mx::slice(states, {first, 0}, {first + step.count(), states.shape(1)}));
                })[0]
          .first);
}

TEST(MtpDrafterTest, a_folder_of_its_own_drafts_as_the_checkpoint_does) {
  for (const std::string name : {"glm4_moe_lite", "qwen3_5"}) {
    const Golden golden = read_mtp(name);
    const auto model = build(golden, golden.config);
    std::vector<Rule> names;
    if (name == "qwen3_5") {
      // Norms are whole there.
      for (const char* norm : {"mtp.norm.weight", "mtp.pre_fc_norm_*.weight", "mtp.layers.0.*norm.weight"})
        names.push_back(add_constant(norm, 1.0f));
      names = std::move(names) + std::vector<Rule>{drop("model.*"), rename("mtp.*", "*")};
    } else {
      for (int i = 0; i < model->info().layers; ++i)
        names.push_back(drop(fmt::format("model.layers.{}.*", i)));
      const std::string block = fmt::format("model.layers.{}.", model->info().layers);
      names = std::move(names) + std::vector<Rule>{drop("model.norm.*"), rename(block + "shared_head.norm.*",
                                                                                "model.shared_head_norm.*")};
      for (const char* part : {"enorm", "hnorm", "eh_proj"})
        names.push_back(rename(block + part + ".*", std::string("model.") + part + ".*"));
      names.push_back(rename(block + "*", "model.mtp_block.*"));
    }
    Json config;
    config["model_type"] = name + "_mtp";
    config["text_config"] = Json::parse(golden.config);
    const auto load = [&](const Json& patch) {
      Json own = config;
      own.merge_patch(patch);
      return load_mtp(Config::parse(own.dump(), "drafter"), cut_out(golden, names), *model).block;
    };
    const auto head = load(Json::object());
    EXPECT_EQ(guessed(*head, golden, *model), guessed(*model->mtp(), golden, *model)) << name;
    EXPECT_THROW((void)load({{"text_config", {{"hidden_size", 64}}}}), Error);
    EXPECT_THROW((void)load({{"text_config", {{"vocab_size", 1000}}}}), Error);
    EXPECT_THROW((void)load({{"model_type", "llama"}}), Error);
  }
}

}  // namespace
}  // namespace mlxcel::golden
