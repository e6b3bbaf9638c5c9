#include "nn/weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "nn/dims.h"
#include "nn/layer_plan.h"

namespace mlxcel {
namespace {

/// A handful of dense tensors.
class Few : public Source {
 public:
  void add(const std::string& name, const Shape& shape, mx::Dtype dtype = mx::float32) {
    size_t count = 1;
    for (const int n : shape) count *= static_cast<size_t>(n);
    std::vector<float> values(count);
    for (size_t i = 0; i < count; ++i) values[i] = 0.25f * static_cast<float>(i) - 1.0f;
    array data = mx::astype(array(values.data(), shape, mx::float32), dtype);
    data.eval();
    weights_.insert_or_assign(name, Weight{name, shape, data, {}, {}, {}});
  }
  std::vector<std::string> names() const override {
    std::vector<std::string> all;
    for (const auto& [name, weight] : weights_) all.push_back(name);
    return all;
  }
  std::optional<WeightInfo> find(const std::string& name) const override {
    const auto at = weights_.find(name);
    if (at == weights_.end()) return std::nullopt;
    const Weight& w = at->second;
    return WeightInfo{
        w.shape, w.data.dtype(), {}, w.data.dtype() == mx::float16 ? "F16" : "F32", w.data.nbytes()};
  }
  Weight load(const std::string& name) override { return weights_.at(name); }

 private:
  std::map<std::string, Weight> weights_;
};

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::bad_checkpoint);
    return error.what();
  }
  return "nothing was thrown";
}

TEST(Weights, checks_shapes_and_says_where) {
  auto source = std::make_shared<Few>();
  source->add("layers.3.q_proj.weight", {4, 8});
  StateLayout layout;
  const auto w = Weights::load(source, layout);
  const auto layer = w.layers("layers", 4)[3].second;
  EXPECT_EQ(layer.path(), "layers.3");
  EXPECT_EQ(message_of([&] { (void)layer.linear("q_proj", 8, 4); }),
            "layers.3.q_proj.weight: expected [8, 4], checkpoint has [4, 8]");
  EXPECT_EQ(message_of([&] { (void)layer.linear("k_proj", 8, 4); }),
            "layers.3.k_proj.weight: expected [8, 4], checkpoint has no such tensor");
  EXPECT_EQ(message_of([&] { (void)layer.linear("q_proj", 4, 8, Bias::required); }),
            "layers.3.q_proj.bias: expected [4], checkpoint has no such tensor");
}

TEST(Weights, fuses_with_zeros_for_a_bias_that_one_of_them_lacks) {
  auto source = std::make_shared<Few>();
  source->add("q.weight", {4, 8});
  source->add("k.weight", {2, 8});
  source->add("k.bias", {2});
  StateLayout layout;
  const auto w = Weights::load(source, layout);
  const Linear both = w.fused({"q", "k"}, {4, 2}, 8);
  EXPECT_EQ(both.out, 6);
  ASSERT_TRUE(both.bias);
  const float* bias = both.bias->data<float>();
  EXPECT_EQ(bias[0], 0.0f);
  EXPECT_EQ(bias[3], 0.0f);
  EXPECT_EQ(bias[4], -1.0f);
  EXPECT_EQ(bias[5], -0.75f);
  EXPECT_TRUE(w.report().unasked.empty());
  EXPECT_EQ(w.report().parameters, 4 * 8 + 2 * 8 + 2);
}

TEST(Weights, lists_what_nobody_asked_for) {
  auto source = std::make_shared<Few>();
  source->add("norm.weight", {8});
  source->add("stray.bias", {8});
  source->add("layers.0.rotary_emb.inv_freq", {4});
  source->add("left.weight", {8});
  StateLayout layout;
  const auto w = Weights::load(source, layout);
  (void)w.rms_norm("norm", 8, 1e-6f);
  w.leave_out("left.weight");
  EXPECT_EQ(w.report().unasked, std::vector<std::string>{"stray.bias"});
}

TEST(Weights, reads_narrow_types_as_f32_and_ignores_axes_of_one) {
  auto source = std::make_shared<Few>();
  source->add("half", {2, 3}, mx::float16);
  source->add("brain", {6}, mx::bfloat16);
  source->add("conv.weight", {6, 1, 2});
  StateLayout layout;
  const auto w = Weights::load(source, layout);
  const array half = w.tensor("half", {2, 3});
  EXPECT_EQ(half.dtype(), mx::float32);
  EXPECT_EQ(half.data<float>()[5], 0.25f);
  EXPECT_EQ(w.tensor("brain", {6}).data<float>()[3], -0.25f);
  EXPECT_EQ(w.tensor("conv.weight", {6, 2}).shape(), (Shape{6, 2}));
  EXPECT_EQ(message_of([&] { (void)w.tensor("half", {3, 2}); }),
            "half: expected [3, 2], checkpoint has [2, 3]");
}

TEST(Weights, record_lists_what_is_asked_and_keeps_slots_out_of_thin_air) {
  StateLayout layout;
  const auto w = Weights::record(layout);
  (void)(w / "a").linear("b", 4, 8, Bias::required);
  (void)(w / "a").linear("c", 4, 8);  // a bias only as stored: none
  EXPECT_FALSE(w.has("a.b.weight"));
  const auto asked = w.report().asked;
  ASSERT_EQ(asked.size(), 3u);
  EXPECT_EQ(asked[0].name, "a.b.weight");
  EXPECT_EQ(asked[1].name, "a.b.bias");
  EXPECT_EQ(asked[2].shape, (Shape{4, 8}));
}

TEST(Weights, progress_counts_stored_bytes) {
  auto source = std::make_shared<Few>();
  source->add("a", {4}, mx::float16);
  source->add("b", {2});
  StateLayout layout;
  std::vector<std::pair<size_t, size_t>> seen;
  const auto w =
      Weights::load(source, layout, [&](size_t done, size_t total) { seen.emplace_back(done, total); });
  (void)w.tensor("a", {4});
  (void)w.tensor("b", {2});
  EXPECT_EQ(seen, (std::vector<std::pair<size_t, size_t>>{{8, 16}, {16, 16}}));
  EXPECT_EQ(w.report().bytes_held, 24u);  // both as f32
}

Dims dims_of(const std::string& text) { return Dims::from(Config::parse(text, "config.json")); }

TEST(Dims, reads_and_checks_sizes) {
  const Dims d =
      dims_of(R"({"vocab_size": 9, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4})");
  EXPECT_EQ(d.kv_heads, 4);
  EXPECT_EQ(d.head_dim, 16);
  EXPECT_EQ(d.max_positions, 0);
  const auto message = [](const std::string& text) { return message_of([&] { (void)dims_of(text); }); };
  EXPECT_NE(message(
                R"({"vocab_size": 9, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
              "num_key_value_heads": 3})")
                .find("multiple of num_key_value_heads 3"),
            std::string::npos);
  EXPECT_NE(
      message(R"({"vocab_size": 9, "hidden_size": 65, "num_hidden_layers": 2, "num_attention_heads": 4})")
          .find("hidden_size 65"),
      std::string::npos);
  EXPECT_NE(
      message(R"({"vocab_size": 9, "hidden_size": 64, "num_hidden_layers": 0, "num_attention_heads": 4})")
          .find("num_hidden_layers"),
      std::string::npos);
  EXPECT_NE(
      message(R"({"vocab_size": 9, "num_hidden_layers": 2, "num_attention_heads": 4})").find("hidden_size"),
      std::string::npos);
}

TEST(LayerPlan, reads_the_list_or_asks_the_family) {
  const auto plan = [](const std::string& text, int window) {
    return LayerPlan::from(Config::parse(text, "config.json"), 2, window, [](int i) { return i == 1; });
  };
  EXPECT_EQ(plan("{}", 8).window(0), 0);
  EXPECT_EQ(plan("{}", 8).window(1), 8);
  EXPECT_EQ(plan(R"({"layer_types": ["sliding_attention", "full_attention"]})", 8).window(0), 8);
  EXPECT_THROW((void)plan(R"({"layer_types": ["full_attention"]})", 8), Error);
  EXPECT_THROW((void)plan(R"({"layer_types": ["full_attention", "chunked_attention"]})", 8), Error);
  EXPECT_THROW((void)plan("{}", 0), Error);  // slides, but over nothing
}

}  // namespace
}  // namespace mlxcel
