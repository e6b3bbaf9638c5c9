// Block drafters against the equations of tools/golden/dflash.py, of which transformers' own drafter is one
// case.
#include <gtest/gtest.h>
#include <mlx/transforms.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "golden.h"
#include "kernels/matrix.h"
#include "models/dflash.h"
#include "models/side_drafter.h"
#include "models/synthetic.h"

namespace mlxcel::golden {
namespace {

using Json = nlohmann::json;

constexpr const char* kTarget =
    R"({"model_type": "llama", "vocab_size": 97, "hidden_size": 48, "intermediate_size": 64, "num_hidden_layers": 3,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 12, "rms_norm_eps": 1e-5,
        "max_position_embeddings": 128, "tie_word_embeddings": false})";

/// A small target of the drafters' width and vocabulary.
std::unique_ptr<Model> target() {
  std::vector<TensorShape> tensors{
      {"model.embed_tokens.weight", {97, 48}}, {"model.norm.weight", {48}}, {"lm_head.weight", {97, 48}}};
  for (int i = 0; i < 3; ++i) {
    const std::string at = fmt::format("model.layers.{}.", i);
    for (const auto& [name, shape] : {std::pair<const char*, Shape>{"input_layernorm", {48}},
                                      {"post_attention_layernorm", {48}},
                                      {"self_attn.q_proj", {48, 48}},
                                      {"self_attn.k_proj", {24, 48}},
                                      {"self_attn.v_proj", {24, 48}},
                                      {"self_attn.o_proj", {48, 48}},
                                      {"mlp.gate_proj", {64, 48}},
                                      {"mlp.up_proj", {64, 48}},
                                      {"mlp.down_proj", {48, 64}}})
      tensors.push_back({at + name + ".weight", shape});
  }
  return build_model(Config::parse(kTarget, "target"), synthetic_source(tensors));
}

struct Case {
  Json json;
  explicit Case(const std::string& name) {
    std::ifstream file(std::string(MLXCEL_SOURCE_DIR "/tests/golden/dflash/") + name + ".json");
    json = Json::parse(file);
  }
  std::shared_ptr<Source> source() const {
    std::vector<TensorShape> tensors;
    for (const auto& [tensor, shape] : json.at("tensors").items()) {
      const auto sizes = shape.get<std::vector<int>>();
      tensors.push_back({tensor, Shape(sizes.begin(), sizes.end())});
    }
    return synthetic_source(tensors);
  }
  std::shared_ptr<const DflashHead> load(const Model& beside, const Json& patch = Json::object()) const {
    Json config = json.at("config");
    config.merge_patch(patch);
    return DflashHead::load(Config::parse(config.dump(), "drafter"), source(), beside);
  }
};

array evaluated(Step& step, const array& made) {
  const array result = mx::contiguous(mx::astype(made, mx::float32));
  std::vector<array> outputs = step.pending();
  outputs.push_back(result);
  mx::eval(std::move(outputs));
  return result;
}

void add_whole(Step& step, RowState& row, const std::vector<int32_t>& tokens, Wants wants) {
  step.add(&row, tokens, wants);
  step.seal();
}

/// The block's logits behind states that came in chunks.
std::vector<float> guesses(const DflashHead& head, const Case& one, int chunk) {
  StateStore store(head.layout(), {.kv_dtype = mx::float32, .max_tokens = 256});
  RowState row = store.make_row();
  const int context = one.json.at("context");
  const auto states = synthetic_values("states", {context, head.width()});
  for (int first = 0; first < context; first += chunk) {
    const int count = std::min(chunk, context - first);
    Step step;
    add_whole(step, row, std::vector<int32_t>(static_cast<size_t>(count), 1), Wants::none);
    evaluated(step, head.remember(step, array(states.data() + static_cast<ptrdiff_t>(first) * head.width(),
                                              {count, head.width()}, mx::float32)));
    step.commit();
  }
  std::vector<float> last;
  for (int again = 0; again < 2; ++again) {  // a block leaves nothing behind
    Step step;
    add_whole(step, row, one.json.at("block").get<std::vector<int32_t>>(), Wants::all);
    const array logits = evaluated(step, head.guess(step));
    std::vector<float> got(logits.data<float>(), logits.data<float>() + logits.size());
    if (again == 1) {
      EXPECT_EQ(got, last);
    }
    last = std::move(got);
  }
  return last;
}

class DflashGoldenTest : public ::testing::TestWithParam<const char*> {};

TEST_P(DflashGoldenTest, guesses_as_its_equations_do) {
  const Case one(GetParam());
  const auto mode = kernel_mode();
  const auto precision = kernels::precision();
  for (const auto& [form, used, limit] : {std::tuple{KernelMode::native, kernels::Precision::exact, 2e-3f},
                                          {KernelMode::native, kernels::Precision::high, 1e-2f},
                                          {KernelMode::reference, kernels::Precision::exact, 2e-3f}}) {
    set_kernel_mode(form);
    kernels::set_precision(used);
    const auto beside = target();
    const auto head = one.load(*beside);
    EXPECT_EQ(head->form().proposals, 5);
    for (const int chunk : {100, 7}) {
      const auto got = guesses(*head, one, chunk);
      size_t at = 0;
      float worst = 0.0f;
      for (const auto& row : one.json.at("logits"))
        for (const float want : row) worst = std::max(worst, std::abs(want - got.at(at++)));
      EXPECT_EQ(at, got.size());
      EXPECT_LE(worst, limit) << GetParam() << ", chunks of " << chunk;
      if (!one.json.contains("corrected")) continue;
      const auto corrected = head->corrected(std::span(got).first(97), one.json.at("block").at(0));
      ASSERT_EQ(corrected.size(), 97u);
      for (size_t i = 0; i < corrected.size(); ++i)
        EXPECT_NEAR(corrected[i], one.json.at("corrected").at(i).get<float>(), limit);
    }
  }
  set_kernel_mode(mode);
  kernels::set_precision(precision);
}

INSTANTIATE_TEST_SUITE_P(All, DflashGoldenTest, ::testing::Values("qwen3", "muse", "laguna", "dspark"),
                         [](const auto& one) { return std::string(one.param); });

std::string refusal(const Case& one, const Json& patch) {
  try {
    (void)one.load(*target(), patch);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(DflashTest, drafters_of_other_targets_are_refused_by_name) {
  const Case one("qwen3");
  const auto says = [&](const Json& patch, const char* part) {
    EXPECT_NE(refusal(one, patch).find(part), std::string::npos) << refusal(one, patch);
  };
  says({{"hidden_size", 64}}, "hidden_size");
  says({{"vocab_size", 98}}, "vocab_size");
  says({{"dflash_config", {{"num_target_layers", 4}}}}, "num_target_layers");
  says({{"dflash_config", {{"target_layer_ids", {0, 3}}}}}, "target_layer_ids");
  says({{"dflash_config", {{"target_layer_ids", {2, 0}}}}}, "target_layer_ids");
  says({{"dflash_config", {{"target_layer_ids", {0, 1, 2}}}}}, "fc.weight");
  says({{"dflash_config", {{"mask_token_id", 97}}}}, "mask_token_id");
  says({{"block_size", 65}}, "block_size");
  says({{"block_size", 1}}, "block_size");
  says({{"layer_types", {"sliding_attention"}}}, "layer_types");
  says({{"layer_types", {"sliding_attention", "full_attention"}}}, "sliding_window");
  says({{"num_hidden_layers", 1}}, "layers.1.");
  says({{"dflash_config", {{"markov_rank", 8}}}}, "markov_head");
  says({{"dflash_config", {{"markov_head_type", "gated"}}}}, "markov_head_type");
  says({{"architectures", {"DFlash2DraftModel"}}}, "second DFlash form");
}

TEST(DflashTest, its_config_says_what_a_folder_holds) {
  const auto kind = [](const Json& config) { return drafter_kind(Config::parse(config.dump(), "x")); };
  for (const char* name : {"qwen3", "muse", "laguna", "dspark"})
    EXPECT_EQ(kind(Case(name).json.at("config")), DrafterKind::dflash) << name;
  EXPECT_EQ(kind({{"model_type", "glm4_moe_lite_mtp"}}), DrafterKind::mtp);
  EXPECT_EQ(kind({{"model_type", "qwen3_5_mtp"}}), DrafterKind::mtp);
  EXPECT_EQ(kind({{"model_type", "llama"}}), DrafterKind::model);
}

TEST(DflashTest, what_layers_give_is_shown_without_changing_anything) {
  const auto model = target();
  const std::vector<int32_t> tokens = {5, 90, 3, 44, 17, 6};
  const auto run = [&](const auto& compute) {
    StateStore store(model->layout(), {.kv_dtype = mx::float32, .max_tokens = 64});
    RowState row = store.make_row();
    Step step;
    add_whole(step, row, tokens, Wants::all);
    auto [logits, states] = compute(step);
    states = mx::contiguous(mx::astype(states, mx::float32));
    const array first = evaluated(step, logits);
    mx::eval(states);
    return std::pair(std::vector<float>(first.data<float>(), first.data<float>() + first.size()), states);
  };
  const int both[] = {0, 2}, last[] = {2};
  const auto plain = run([&](Step& step) { return model->logits_and_hidden(step); });
  const auto two = run([&](Step& step) { return model->logits_and_layers(step, both); });
  const auto one = run([&](Step& step) { return model->logits_and_layers(step, last); });
  EXPECT_EQ(plain.first, two.first);
  EXPECT_EQ(plain.first, one.first);
  EXPECT_EQ(two.second.shape(), (Shape{6, 96}));
  for (int t = 0; t < 6; ++t)
    for (int i = 0; i < 48; ++i)
      EXPECT_EQ(two.second.data<float>()[t * 96 + 48 + i], one.second.data<float>()[t * 48 + i]);
  const int bad[] = {0, 3};
  EXPECT_THROW((void)run([&](Step& step) { return model->logits_and_layers(step, bad); }), Error);
}

}  // namespace
}  // namespace mlxcel::golden
