// Sizes that a config leaves out. transformers saves a text_config as what differs from the family's
// defaults, so files of models with towers (LLaVA 1.5 and 1.6, Pixtral, Idefics) lack most of them: the
// shapes of the whole model must follow, without any data.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>

#include "base/error.h"
#include "checkpoint/config.h"
#include "checkpoint/source.h"
#include "models/model.h"

namespace mlxcel {
namespace {

/// Shapes without values.
class Shapes : public Source {
 public:
  explicit Shapes(std::map<std::string, Shape> shapes) : shapes_(std::move(shapes)) {}
  std::vector<std::string> names() const override {
    std::vector<std::string> names;
    for (const auto& [name, shape] : shapes_) names.push_back(name);
    return names;
  }
  std::optional<WeightInfo> find(const std::string& name) const override {
    const auto at = shapes_.find(name);
    if (at == shapes_.end()) return std::nullopt;
    return WeightInfo{
        .shape = at->second, .dtype = mx::float32, .format = {}, .stored_as = "F32", .bytes = 4};
  }
  Weight load(const std::string& name) override { fail(ErrorKind::internal, "{} was read", name); }

 private:
  std::map<std::string, Shape> shapes_;
};

struct Sizes {
  int vocab, hidden, layers, width, queries, keys;  // queries, keys: rows of q_proj and k_proj
  int head = 0;                                     // head_dim where q and k have norms
  bool qkv_bias = false;
};

std::shared_ptr<Source> layout_of(const Sizes& s, const std::string& before, const std::string& head) {
  std::map<std::string, Shape> shapes{{before + "embed_tokens.weight", {s.vocab, s.hidden}},
                                      {before + "norm.weight", {s.hidden}},
                                      {head, {s.vocab, s.hidden}}};
  for (int i = 0; i < s.layers; ++i) {
    const std::string layer = fmt::format("{}layers.{}.", before, i), attention = layer + "self_attn.";
    for (const char* norm : {"input_layernorm.weight", "post_attention_layernorm.weight"})
      shapes[layer + norm] = {s.hidden};
    for (const auto& [name, rows] :
         {std::pair{"q_proj", s.queries}, {"k_proj", s.keys}, {"v_proj", s.keys}}) {
      shapes[attention + name + ".weight"] = {rows, s.hidden};
      if (s.qkv_bias) shapes[attention + name + ".bias"] = {rows};
    }
    shapes[attention + "o_proj.weight"] = {s.hidden, s.queries};
    if (s.head > 0)
      for (const char* norm : {"q_norm.weight", "k_norm.weight"}) shapes[attention + norm] = {s.head};
    for (const char* name : {"gate_proj", "up_proj"})
      shapes[layer + "mlp." + name + ".weight"] = {s.width, s.hidden};
    shapes[layer + "mlp.down_proj.weight"] = {s.hidden, s.width};
  }
  return std::make_shared<Shapes>(std::move(shapes));
}

ModelInfo planned(const char* config, const Sizes& sizes) {
  const auto parsed = Config::parse(config, "config.json");
  const bool wrapped = parsed.has("text_config");
  return plan_model(parsed, layout_of(sizes, wrapped ? "language_model.model." : "model.",
                                      wrapped ? "language_model.lm_head.weight" : "lm_head.weight"))
      .info;
}

TEST(Defaults, llava_of_llama_names_no_size_but_the_vocabulary) {
  const auto info =
      planned(R"({"architectures": ["LlavaForConditionalGeneration"], "model_type": "llava",
      "tie_word_embeddings": false, "text_config": {"architectures": ["LlamaForCausalLM"], "model_type": "llama",
      "max_position_embeddings": 4096, "rms_norm_eps": 1e-05, "vocab_size": 32064}})",
              {.vocab = 32064, .hidden = 4096, .layers = 32, .width = 11008, .queries = 4096, .keys = 4096});
  EXPECT_EQ(info.layers, 32);
  EXPECT_EQ(info.vocab_size, 32064);
}

TEST(Defaults, llava_of_mistral_shares_keys_between_four_heads) {
  // num_key_value_heads too is Mistral's own eight, not one for each head.
  for (const char* keys : {"", R"("num_key_value_heads": 8,)"})
    EXPECT_EQ(
        planned(fmt::format(R"({{"model_type": "llava_next", "text_config": {{"model_type": "mistral",
      "max_position_embeddings": 32768, {} "rms_norm_eps": 1e-05, "rope_theta": 1000000.0,
      "sliding_window": null, "vocab_size": 32064}}}})",
                            keys)
                    .c_str(),
                {.vocab = 32064, .hidden = 4096, .layers = 32, .width = 14336, .queries = 4096, .keys = 1024})
            .layers,
        32);
}

TEST(Defaults, pixtral_names_its_width_and_leaves_out_its_heads) {
  const auto info =
      planned(R"({"model_type": "llava", "text_config": {"model_type": "mistral", "head_dim": 128,
      "hidden_size": 5120, "max_position_embeddings": 1024000, "num_hidden_layers": 40, "rms_norm_eps": 1e-05,
      "rope_theta": 1000000000.0, "sliding_window": null, "vocab_size": 131072}})",
              {.vocab = 131072, .hidden = 5120, .layers = 40, .width = 14336, .queries = 4096, .keys = 1024});
  EXPECT_EQ(info.layers, 40);
}

TEST(Defaults, qwen_heads_are_as_wide_as_the_family_says) {
  // hidden / heads would be 64.
  EXPECT_EQ(
      planned(
          R"({"model_type": "qwen3", "vocab_size": 1024, "hidden_size": 256, "num_hidden_layers": 2,
      "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 512})",
          {.vocab = 1024, .hidden = 256, .layers = 2, .width = 512, .queries = 512, .keys = 256, .head = 128})
          .layers,
      2);
  EXPECT_EQ(planned(R"({"model_type": "qwen2_5_vl", "text_config": {"model_type": "qwen2_5_vl_text",
      "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}}})",
                    {.vocab = 152064,
                     .hidden = 8192,
                     .layers = 80,
                     .width = 29568,
                     .queries = 8192,
                     .keys = 1024,
                     .qkv_bias = true})
                .layers,
            80);
}

TEST(Defaults, null_key_heads_are_one_for_each_head) {
  EXPECT_EQ(
      planned(R"({"model_type": "mistral", "vocab_size": 1024, "hidden_size": 256, "num_hidden_layers": 2,
      "num_attention_heads": 4, "num_key_value_heads": null, "intermediate_size": 512})",
              {.vocab = 1024, .hidden = 256, .layers = 2, .width = 512, .queries = 256, .keys = 256})
          .layers,
      2);
}

TEST(Defaults, other_shapes_are_still_refused_by_name) {
  try {
    planned(R"({"model_type": "llava", "text_config": {"model_type": "llama", "vocab_size": 32064}})",
            {.vocab = 32064, .hidden = 5120, .layers = 32, .width = 11008, .queries = 5120, .keys = 5120});
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::bad_checkpoint);
    EXPECT_NE(std::string(error.what()).find("expected [32064, 4096]"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace mlxcel
