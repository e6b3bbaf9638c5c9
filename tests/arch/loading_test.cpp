// Loading, for every architecture: each tensor is needed and has an effect, faults are named, a saved folder
// loads through detection and rules to the same bits.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <mlx/io.h>
#include <mlx/transforms.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <optional>

#include "base/error.h"
#include "checkpoint/rules/pattern.h"
#include "network.h"

namespace mlxcel::archtest {
namespace {

namespace fs = std::filesystem;

/// A folder that goes when the test ends.
class Folder {
 public:
  Folder() : path_(fs::temp_directory_path() / fmt::format("mlxcel-arch-{}-{}", ::getpid(), count_++)) {
    fs::create_directories(path_);
  }
  ~Folder() { fs::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  static inline int count_ = 0;
  fs::path path_;
};

/// The source as a Hugging Face folder, planes under MLX's names.
void save(const fs::path& folder, Source& source, std::string config) {
  std::unordered_map<std::string, array> tensors;
  std::optional<QuantFormat> format;
  for (const auto& name : source.names()) {
    const Weight weight = source.load(name);
    tensors.insert_or_assign(name, weight.data);
    if (!weight.quantized()) continue;
    format = weight.format;
    const std::string base = name.substr(0, name.rfind('.'));
    tensors.insert_or_assign(base + ".scales", *weight.scales);
    tensors.insert_or_assign(base + ".biases", *weight.biases);
  }
  mx::save_safetensors((folder / "model.safetensors").string(), tensors, {{"format", "mlx"}});
  if (format) {
    const auto brace = config.rfind('}');
    config.insert(brace, fmt::format(R"(, "quantization": {{"group_size": {}, "bits": {}}})",
                                     format->group_size, format->bits));
  }
  std::ofstream(folder / "config.json") << config;
}

class LoadingTest : public ::testing::TestWithParam<size_t> {
 protected:
  static const NamedArch& entry() { return arch_table()[GetParam()]; }
  static std::unique_ptr<Model> build(std::shared_ptr<Source> source) {
    return build_model(tiny_config(entry()), std::move(source));
  }
};

/// The message of the Error that `action` must throw.
template <class Action>
std::string message_of(ErrorKind kind, Action action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

TEST_P(LoadingTest, is_saved_and_loaded_through_rules_to_the_same_bits) {
  for (const int group : {0, 32}) {
    const auto source = group ? quantised(tiny_source(entry()), group) : tiny_source(entry());
    const Folder folder;
    save(folder.path(), *source, entry().arch.tiny);
    const auto want = build(source);
    const auto got = load_model(open_checkpoint(folder.path()));
    EXPECT_EQ(got->info().family, entry().family);
    EXPECT_EQ(got->info().parameters, want->info().parameters);
    EXPECT_TRUE(got->info().warnings.empty()) << got->info().warnings.front();
    const Tokens tokens = some_tokens(want->info().vocab_size, 20);
    EXPECT_EQ(run(*want, tokens), run(*got, tokens)) << "group " << group;
  }
}

/// The answers for a draft behind `tokens` in the second of two rounds that read it.
Rows redrawn(Model& model, const Tokens& tokens, const Tokens& draft) {
  StateStore store(model.layout(), {.kv_dtype = mx::float32, .max_tokens = 1024});
  RowState row = store.make_row(static_cast<int>(tokens.size() + draft.size()));
  Step known;
  known.add(&row, tokens, Wants::all);
  finish(model, known);
  Rows answers;
  for (int round = 0; round < 2; ++round) {
    std::vector<float> logits;
    for (const auto& answer : answers) logits.insert(logits.end(), answer.begin(), answer.end());
    const int count = static_cast<int>(draft.size());
    Step step;
    step.add(&row, draft, Wants::all);
    step.open(count, round == 0 ? std::nullopt
                                : std::optional(
                                      array(logits.data(), {count, model.info().vocab_size}, mx::float32)));
    answers = finish(model, step);
  }
  return answers;
}

/// Values that cannot be mistaken for what they were: tables of whole numbers keep their range.
void bend(std::vector<float>& values) {
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  if (*least < *most &&
      std::all_of(values.begin(), values.end(), [](float x) { return x == std::floor(x); })) {
    std::reverse(values.begin(), values.end());
    return;
  }
  for (size_t i = 0; i < values.size(); ++i) values[i] *= i % 2 == 0 ? 1.5f : -0.5f;
}

TEST_P(LoadingTest, every_tensor_has_an_effect) {
  const auto model = build(tiny_source(entry()));
  const Tokens few = some_tokens(model->info().vocab_size, 40);
  const Rows want_few = run(*model, few);
  // Enough tokens that a router chooses every expert at least once.
  Tokens many;
  Rows want_many;
  for (const auto& tensor : published(entry())) {
    const bool expert = tensor.name.find(".experts.") != std::string::npos;
    if (expert && many.empty()) {
      many = some_tokens(model->info().vocab_size, 400);
      want_many = run(*model, many);
    }
    const Tokens& tokens = expert ? many : few;
    const Rows& want = expert ? want_many : want_few;
    const auto source =
        changed(tiny_source(entry()), [&](const std::string& name, std::vector<float>& values) {
          if (name == tensor.name) bend(values);
        });
    const auto bent = build(source);
    if (run(*bent, tokens) != want) continue;
    // Some tensors are for drafts alone.
    ASSERT_TRUE(model->info().diffusion.redraws) << tensor.name << " makes no difference";
    const Tokens draft = some_tokens(model->info().vocab_size, 4);
    EXPECT_NE(redrawn(*bent, few, draft), redrawn(*model, few, draft))
        << tensor.name << " makes no difference";
  }
}

/// The name under which a member of a stack is asked for.
std::string stacked_name(const std::vector<Rule>& rules, const std::string& name) {
  for (const Rule& rule : rules)
    if (const auto captures = match(rule.from, name); captures && rule.kind == Rule::Kind::stack)
      return fill(rule.to.front(), *captures);
  return name;
}

TEST_P(LoadingTest, a_missing_tensor_is_named) {
  const auto rules = entry().arch.weights(tiny_config(entry()), *tiny_source(entry()));
  for (const auto& tensor : published(entry())) {
    const auto what = message_of(ErrorKind::bad_checkpoint,
                                 [&] { (void)build(without(tiny_source(entry()), tensor.name)); });
    // A member of a stack is named by its rule; others by the name that is asked for.
    const std::string name = stacked_name(rules, tensor.name);
    const std::string last = name.substr(name.find_last_of('.', name.rfind('.') - 1) + 1);
    // A gap in a stack is told by the number that is missing and the member behind it.
    const bool gap = what.find("is missing before ") != std::string::npos;
    EXPECT_TRUE(gap || what.find(last) != std::string::npos) << tensor.name << ": " << what;
  }
}

TEST_P(LoadingTest, a_misshapen_tensor_is_named_with_both_shapes) {
  auto tensors = published(entry());
  const auto at = std::find_if(tensors.begin(), tensors.end(), [](const TensorShape& t) {
    return t.shape.size() == 2 && t.name.find("c_attn") == std::string::npos &&
           t.name.find("experts") == std::string::npos;
  });
  ASSERT_NE(at, tensors.end());
  at->shape[0] += 3;
  const auto what = message_of(ErrorKind::bad_checkpoint, [&] { (void)build(synthetic_source(tensors)); });
  EXPECT_NE(what.find(to_string(at->shape)), std::string::npos) << what;
  EXPECT_NE(what.find("expected ["), std::string::npos) << what;
}

TEST_P(LoadingTest, a_tensor_that_nobody_asks_for_is_an_error) {
  const float values[] = {1, 2, 3};
  const Weight stray{
      "model.layers.0.self_attn.stray.weight", {3}, array(values, {3}, mx::float32), {}, {}, {}};
  const auto what =
      message_of(ErrorKind::bad_checkpoint, [&] { (void)build(with(tiny_source(entry()), stray)); });
  // A rule may have renamed what stands before the layers.
  EXPECT_NE(what.find("layers.0.self_attn.stray.weight"), std::string::npos) << what;
}

TEST_P(LoadingTest, rotary_buffers_of_older_exporters_are_left_alone) {
  const float values[] = {1, 2, 3};
  const Weight buffer{
      "model.layers.0.self_attn.rotary_emb.inv_freq", {3}, array(values, {3}, mx::float32), {}, {}, {}};
  EXPECT_NO_THROW((void)build(with(tiny_source(entry()), buffer)));
}

TEST_P(LoadingTest, a_plan_reads_no_data) {
  class HeadersOnly : public Source {
   public:
    explicit HeadersOnly(std::shared_ptr<Source> source) : source_(std::move(source)) {}
    std::vector<std::string> names() const override { return source_->names(); }
    std::optional<WeightInfo> find(const std::string& name) const override { return source_->find(name); }
    Weight load(const std::string& name) override { fail(ErrorKind::internal, "{} was read", name); }

   private:
    std::shared_ptr<Source> source_;
  };
  const auto model = build(tiny_source(entry()));
  const ModelPlan plan =
      plan_model(tiny_config(entry()), std::make_shared<HeadersOnly>(tiny_source(entry())));
  EXPECT_EQ(plan.info.parameters, model->info().parameters);
  EXPECT_EQ(plan.info.layers, model->info().layers);
  EXPECT_EQ(plan.layout.kv().size(), model->layout().kv().size());
  EXPECT_EQ(plan.layout.recurrent_bytes(), model->layout().recurrent_bytes());
  // Drafts that are drawn anew read the table of tokens as rows too: it is held a second time.
  const int64_t twice =
      plan.info.diffusion.redraws ? int64_t{plan.info.vocab_size} * model->info().hidden : 0;
  EXPECT_EQ(plan.info.weight_bytes, static_cast<size_t>(model->info().parameters + twice) * sizeof(float));
}

TEST_P(LoadingTest, progress_ends_at_the_whole) {
  size_t last = 0, whole = 0;
  const auto model =
      build_model(tiny_config(entry()), tiny_source(entry()), {.progress = [&](size_t done, size_t total) {
                    EXPECT_GT(done, last);
                    last = done;
                    whole = total;
                  }});
  EXPECT_EQ(last, whole);
  EXPECT_EQ(whole, static_cast<size_t>(model->info().parameters) * sizeof(float));
}

TEST_P(LoadingTest, its_tiny_config_is_read_to_the_last_key) {
  const Config config = tiny_config(entry());
  const auto model = build_model(config, tiny_source(entry()));
  for (const auto& key : config.unread())
    ADD_FAILURE() << entry().family << ".tiny has a key that nobody reads: " << key;
}

std::vector<size_t> indices() {
  std::vector<size_t> list;
  for (size_t i = 0; i < arch_table().size(); ++i) list.push_back(i);
  return list;
}
INSTANTIATE_TEST_SUITE_P(Every, LoadingTest, ::testing::ValuesIn(indices()),
                         [](const auto& parameter) { return arch_table()[parameter.param].family; });

Config config_with_type(const std::string& type) {
  return Config::parse(fmt::format(R"({{"model_type": "{}"}})", type), "config.json");
}

TEST(Detection, unknown_and_later_names_are_told_apart) {
  EXPECT_EQ(message_of(ErrorKind::unsupported, [] { (void)detect_arch(config_with_type("no_such_model")); }),
            "unknown model_type no_such_model; `mlxcel arch` lists what is supported");
  EXPECT_EQ(message_of(ErrorKind::unsupported, [] { (void)detect_arch(config_with_type("zaya1_vl")); }),
            "model_type zaya1_vl is known but not supported yet");
  EXPECT_EQ(
      message_of(ErrorKind::unsupported, [] { (void)detect_arch(config_with_type("paligemma")); }),
      "model_type paligemma is known but not supported yet: all tokens of its prompt see each other, and "
      "prompts are read here in pieces that are shared");
  EXPECT_EQ(detect_arch(config_with_type("mistral")).family, "llama");
  EXPECT_EQ(detect_arch(config_with_type("phi")).family, "phi");
  EXPECT_EQ(
      detect_arch(Config::parse(R"({"model_type": "phi", "num_local_experts": 4})", "config.json")).family,
      "phixtral");
  EXPECT_THROW((void)detect_arch(Config::parse("{}", "config.json")), Error);
}

Config config_of(const std::string& text) { return Config::parse(text, "config.json"); }

TEST(Detection, settings_that_would_change_the_graph_are_refused) {
  const auto refused = [](const std::string& text, ErrorKind kind) {
    return message_of(kind, [&] { (void)build_model(config_of(text), synthetic_source({})); });
  };
  const std::string sizes =
      R"("vocab_size": 8, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
                               "num_key_value_heads": 1, "intermediate_size": 8, )";
  struct Case {
    const char* setting;
    ErrorKind kind;
    const char* named;
  };
  for (const Case& c : {
           Case{R"("model_type": "iquestcoder", "clip_qkv": 3.0)", ErrorKind::unsupported, "clip_qkv"},
           Case{R"("model_type": "gemma", "use_bidirectional_attention": true)", ErrorKind::unsupported,
                "use_bidirectional_attention"},
           Case{R"("model_type": "phi", "qk_layernorm": true)", ErrorKind::unsupported, "qk_layernorm"},
           Case{R"("model_type": "apertus", "hidden_act": "silu")", ErrorKind::unsupported, "hidden_act"},
           Case{R"("model_type": "granite", "residual_multiplier": 0.0)", ErrorKind::bad_checkpoint,
                "residual_multiplier"},
           Case{R"("model_type": "exaone4", "sliding_window_pattern": "LX")", ErrorKind::bad_checkpoint,
                "LX"},
           Case{R"("model_type": "nemotron-nas", "block_configs": [])", ErrorKind::bad_checkpoint,
                "block_configs"},
           Case{R"("model_type": "starcoder2", "hidden_act": "mish")", ErrorKind::unsupported, "hidden_act"},
           Case{R"("model_type": "plamo", "n_shared_head": 5)", ErrorKind::unsupported, "n_shared_head"},
           Case{R"("model_type": "mistral3", "text_config": {"model_type": "no_such"})",
                ErrorKind::unsupported, "no_such"},
       }) {
    const auto what = refused("{" + sizes + c.setting + "}", c.kind);
    EXPECT_NE(what.find(c.named), std::string::npos) << c.setting << ": " << what;
  }
}

TEST(Detection, other_heads_and_drafters_are_named) {
  const auto build_with = [](const char* extra) {
    const auto text = fmt::format(R"({{"model_type": "bert", {}}})", extra);
    (void)build_model(Config::parse(text, "config.json"), synthetic_source({}));
  };
  EXPECT_NE(message_of(ErrorKind::unsupported,
                       [&] { build_with(R"("architectures": ["BertForTokenClassification"])"); })
                .find("BertForTokenClassification"),
            std::string::npos);
  EXPECT_NE(
      message_of(ErrorKind::unsupported, [&] { build_with(R"("architectures": ["DFlashDraftModel"])"); })
          .find("drafter"),
      std::string::npos);
}

/// A tied checkpoint with a head of its own: used with a warning only where it differs (cases.md H12).
TEST(StrayHead, is_left_out_with_a_warning_where_it_differs) {
  const auto& table = arch_table();
  const auto qwen2 =
      std::find_if(table.begin(), table.end(), [](const NamedArch& a) { return a.family == "qwen2"; });
  ASSERT_NE(qwen2, table.end());
  const auto source = tiny_source(*qwen2);
  const auto plain = build_model(tiny_config(*qwen2), source);
  const Tokens tokens = some_tokens(plain->info().vocab_size, 8);
  Weight head = source->load("model.embed_tokens.weight");
  head.name = "lm_head.weight";
  const auto equal = build_model(tiny_config(*qwen2), with(source, head));
  EXPECT_TRUE(equal->info().warnings.empty());
  EXPECT_EQ(run(*plain, tokens), run(*equal, tokens));
  head.data = mx::add(head.data, array(1.0f));
  head.data.eval();
  const auto other = build_model(tiny_config(*qwen2), with(source, head));
  ASSERT_EQ(other->info().warnings.size(), 1u);
  EXPECT_NE(other->info().warnings[0].find("lm_head.weight"), std::string::npos);
  EXPECT_EQ(run(*plain, tokens), run(*other, tokens));
}

TEST(StrayHead, is_used_by_gemma3) {
  const auto& table = arch_table();
  const auto gemma =
      std::find_if(table.begin(), table.end(), [](const NamedArch& a) { return a.family == "gemma3_text"; });
  ASSERT_NE(gemma, table.end());
  const auto source = tiny_source(*gemma);
  Weight head = source->load("model.embed_tokens.weight");
  head.name = "lm_head.weight";
  head.data = mx::multiply(head.data, array(2.0f));
  head.data.eval();
  const Tokens tokens = some_tokens(64, 8);
  const Rows tied = run(*build_model(tiny_config(*gemma), source), tokens);
  const Rows own = run(*build_model(tiny_config(*gemma), with(source, head)), tokens);
  EXPECT_NEAR(own[3][5], 2.0f * tied[3][5], 1e-3f);
}

}  // namespace
}  // namespace mlxcel::archtest
