// Text diffusion through the engine: blocks of masks become text, the surest tokens first; several rows at
// once.
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/engine.h"
#include "engine/loop/canvas.h"
#include "engine/loop/sketch.h"
#include "models/model.h"
#include "state/step.h"

namespace mlxcel {
namespace {

constexpr int kVocab = 97, kMask = 96, kEos = 95, kBlock = 4;

/// Every place has one right token. A place is sure of it where all before it in its step are known, or
/// always.
class BlockFake final : public Model {
 public:
  BlockFake(std::shared_ptr<std::atomic<int>> steps, bool sure) : steps_(std::move(steps)), sure_(sure) {
    info_.model_type = "fake_blocks";
    info_.vocab_size = kVocab;
    info_.hidden = 4;
    info_.layers = 1;
    info_.max_positions = 64;
    info_.diffusion = {.block = kBlock, .mask = kMask, .threshold = 0.9f};
    layout_.add_kv({.kv_heads = 1, .key_dim = 8, .value_dim = 8});
  }
  static int right(int position) { return position == 29 ? kEos : (position * 7 + 3) % 80; }
  const ModelInfo& info() const override { return info_; }
  const StateLayout& layout() const override { return layout_; }
  array logits(Step& step) override {
    ++*steps_;
    std::vector<float> values;
    for (const StepRow& row : step.rows()) {
      EXPECT_EQ(row.position % kBlock, 0) << "a row goes on where a block begins";
      bool known = true;
      for (int i = 0; i < row.count; ++i) {
        const int token = step.token_ids()[static_cast<size_t>(row.first + i)];
        if (row.wants == Wants::all)
          for (int c = 0; c < kVocab; ++c)
            values.push_back(c == right(row.position + i) ? (sure_ || known ? 20.0f : 3.0f)
                             : c == kMask                 ? 30.0f
                                                          : 0.0f);
        known = known && token != kMask;
      }
    }
    return array(values.begin(), {static_cast<int>(step.wanted().size()), kVocab}, mx::float32);
  }
  array hidden(Step& step) override { return mx::zeros({step.count(), 4}); }

 private:
  std::shared_ptr<std::atomic<int>> steps_;
  bool sure_;
  ModelInfo info_;
  StateLayout layout_;
};

struct Answer {
  std::vector<int32_t> tokens;
  FinishReason reason = FinishReason::cancelled;
};

class DiffusionTest : public ::testing::Test {
 protected:
  std::unique_ptr<Engine> make(bool sure, EngineOptions options = {}) {
    steps_ = std::make_shared<std::atomic<int>>(0);
    Checkpoint checkpoint;
    checkpoint.eos_ids = {kEos};
    options.warmup = false;
    return Engine::with_model([&] { return std::make_unique<BlockFake>(steps_, sure); }, nullptr, nullptr,
                              checkpoint, options);
  }
  static std::future<Answer> ask(Engine& engine, int prompt, int most, GrammarUse form = {}) {
    Request request;
    request.grammar = std::move(form);
    for (int i = 0; i < prompt; ++i) request.prompt.push_back(BlockFake::right(i) % 80);
    request.max_tokens = most;
    request.sampling.temperature = 0.0f;
    auto promise = std::make_shared<std::promise<Answer>>();
    auto answer = std::make_shared<Answer>();
    engine.submit(std::move(request), [promise, answer](Event event) {
      if (const auto* token = std::get_if<Token>(&event)) answer->tokens.push_back(token->draw.token);
      if (const auto* end = std::get_if<Finished>(&event)) {
        answer->reason = end->reason;
        promise->set_value(*answer);
      }
      if (const auto* failed = std::get_if<Failed>(&event))
        promise->set_exception(std::make_exception_ptr(failed->error));
    });
    return promise->get_future();
  }
  static std::vector<int32_t> right(int from, int count) {
    std::vector<int32_t> list;
    for (int i = 0; i < count; ++i) list.push_back(BlockFake::right(from + i));
    return list;
  }
  std::shared_ptr<std::atomic<int>> steps_;
};

TEST_F(DiffusionTest, sure_blocks_take_one_round_each) {
  const auto engine = make(true);
  const Answer answer = ask(*engine, 8, 12).get();
  EXPECT_EQ(answer.tokens, right(8, 12));
  EXPECT_EQ(answer.reason, FinishReason::length);
  // Two blocks of prompt come whole, then three of the answer, each with the one before it.
  EXPECT_LE(*steps_, 4);
}

TEST_F(DiffusionTest, unsure_places_wait_for_what_is_before_them) {
  const auto engine = make(false);
  EXPECT_EQ(ask(*engine, 6, 10).get().tokens, right(6, 10));
  EXPECT_GE(*steps_, 10);
}

TEST_F(DiffusionTest, an_answer_ends_within_a_block) {
  for (const bool sure : {true, false}) {
    const auto engine = make(sure);
    EXPECT_EQ(ask(*engine, 9, 1).get().tokens, right(9, 1));
    const Answer answer = ask(*engine, 26, 30).get();
    EXPECT_EQ(answer.tokens, right(26, 3));
    EXPECT_EQ(answer.reason, FinishReason::stop);
  }
}

TEST_F(DiffusionTest, rows_have_canvases_of_their_own) {
  const auto engine = make(false, {.parallel = 3, .prefill_chunk = 5});
  std::vector<std::future<Answer>> answers;
  for (const int prompt : {1, 4, 11, 15, 18}) answers.push_back(ask(*engine, prompt, 9));
  size_t i = 0;
  for (const int prompt : {1, 4, 11, 15, 18})
    EXPECT_EQ(answers[i++].get().tokens, right(prompt, 9)) << prompt;
}

TEST_F(DiffusionTest, a_prompt_may_want_no_answer) {
  const auto engine = make(true);
  for (const int prompt : {1, 4, 10}) EXPECT_EQ(ask(*engine, prompt, 0).get().reason, FinishReason::length);
}

TEST_F(DiffusionTest, what_has_no_meaning_is_refused) {
  EXPECT_THROW((void)make(true, {.prompt_lookup = true}), Error);
  const auto engine = make(true);
  Request request;
  request.prompt = {1, 2, 3};
  request.prompt_logprobs = true;
  EXPECT_THROW(engine->submit(request, [](Event) {}), Error);
}

/// Draws whole drafts: sure of a place's right token once it has seen what an earlier round expected there.
class DraftFake final : public Model {
 public:
  explicit DraftFake(std::shared_ptr<std::atomic<int>> steps) : steps_(std::move(steps)) {
    info_.model_type = "fake_drafts";
    info_.vocab_size = kVocab;
    info_.hidden = 4;
    info_.layers = 1;
    info_.max_positions = 512;
    info_.diffusion = {
        .block = 12, .mask = -1, .steps = 9, .redraws = true, .sampler = Diffusion::Sampler::entropy_bound};
    layout_.add_kv({.kv_heads = 1, .key_dim = 8, .value_dim = 8});
  }
  const ModelInfo& info() const override { return info_; }
  const StateLayout& layout() const override { return layout_; }
  array logits(Step& step) override {
    ++*steps_;
    std::vector<float> values;
    for (const StepRow& row : step.rows()) {
      EXPECT_TRUE(row.open == 0 || row.open == row.count) << "what is known is evaluated before a draft";
      if (row.wants != Wants::all) continue;
      const bool second = row.before.has_value();
      if (second) {
        EXPECT_EQ(row.before->shape(), (Shape{row.open, kVocab}));
      }
      for (int i = 0; i < row.count; ++i)
        for (int c = 0; c < kVocab; ++c)
          values.push_back(c == BlockFake::right(row.position + i) ? (second ? 20.0f : 6.0f) : 0.0f);
    }
    return array(values.begin(), {static_cast<int>(step.wanted().size()), kVocab}, mx::float32);
  }
  array hidden(Step& step) override { return mx::zeros({step.count(), 4}); }

 private:
  std::shared_ptr<std::atomic<int>> steps_;
  ModelInfo info_;
  StateLayout layout_;
};

TEST_F(DiffusionTest, drafts_are_drawn_until_they_settle) {
  steps_ = std::make_shared<std::atomic<int>>(0);
  Checkpoint checkpoint;
  checkpoint.eos_ids = {kEos};
  EngineOptions options;
  options.warmup = false;
  options.parallel = 3;
  const auto engine = Engine::with_model([&] { return std::make_unique<DraftFake>(steps_); }, nullptr,
                                         nullptr, checkpoint, options);
  // A prompt, and rounds until two agree that are sure of it: the third.
  EXPECT_EQ(ask(*engine, 5, 12).get().tokens, right(5, 12));
  EXPECT_LE(*steps_, 4);
  std::vector<std::future<Answer>> answers;
  for (const int prompt : {1, 4, 7, 40}) answers.push_back(ask(*engine, prompt, 17));
  size_t i = 0;
  for (const int prompt : {1, 4, 7, 40}) EXPECT_EQ(answers[i++].get().tokens, right(prompt, 17)) << prompt;
  EXPECT_EQ(ask(*engine, 9, 1).get().tokens, right(9, 1));
  const Answer ends = ask(*engine, 26, 30).get();  // its end token stands at 29
  EXPECT_EQ(ends.tokens, right(26, 3));
  EXPECT_EQ(ends.reason, FinishReason::stop);
  EXPECT_EQ(ask(*engine, 3, 0).get().reason, FinishReason::length);
}

// A model's shortest draft is longer than what is left of a window: there is no room behind it.
TEST_F(DiffusionTest, drafts_end_with_the_window) {
  steps_ = std::make_shared<std::atomic<int>>(0);
  const EngineOptions options{.context = 64, .parallel = 1, .prompt_cache = false, .warmup = false};
  const auto engine = Engine::with_model([&] { return std::make_unique<DraftFake>(steps_); }, nullptr,
                                         nullptr, Checkpoint{}, options);
  EXPECT_EQ(ask(*engine, 55, 9).get().tokens, right(55, 9));
  EXPECT_EQ(ask(*engine, 63, 5).get().tokens, right(63, 1));
  EXPECT_EQ(engine->stats().pages_free, engine->stats().pages_total);
}

// Where a request asks nothing, what the engine was told holds; lengths that cannot be are refused.
TEST_F(DiffusionTest, the_engine_may_be_told_how_drafts_are) {
  const auto made = [&](const Denoising& denoising) {
    steps_ = std::make_shared<std::atomic<int>>(0);
    EngineOptions options;
    options.warmup = false;
    options.denoising = denoising;
    return Engine::with_model([&] { return std::make_unique<DraftFake>(steps_); }, nullptr, nullptr,
                              Checkpoint{}, options);
  };
  EXPECT_EQ(ask(*made({.most = 3}), 40, 9).get().tokens, right(40, 9));
  const int three = *steps_;
  EXPECT_EQ(ask(*made({}), 40, 9).get().tokens, right(40, 9));
  EXPECT_LT(*steps_, three) << "drafts of three tokens take three times the rounds";
  EXPECT_EQ(ask(*made({.steps = 1}), 40, 9).get().tokens, right(40, 9));
  EXPECT_EQ(*steps_, 1) << "one round; the prompt asks for no logits";
  EXPECT_THROW((void)made({.most = 13}), Error);
  EXPECT_THROW((void)make(true, {.denoising = {.whole = true}}), Error);
}

/// Printable ASCII by its byte, and three marks.
std::shared_ptr<const Tokenizer> ascii() {
  std::string vocab, marks;
  for (int c = 33; c < 127; ++c)
    vocab += std::string(c > 33 ? ",\"" : "\"") + (c == '"' || c == '\\' ? "\\" : "") + static_cast<char>(c) +
             "\":" + std::to_string(c - 33);
  for (const auto& [id, text] : {std::pair{94, "<|pad|>"}, {kEos, "<|end|>"}, {kMask, "<|mask|>"}})
    marks += std::string(marks.empty() ? "" : ",") + "{\"id\":" + std::to_string(id) + ",\"content\":\"" +
             text +
             R"(","special":true,"single_word":false,"lstrip":false,"rstrip":false,"normalized":false})";
  return Tokenizer::from_json(
      R"({"version":"1.0","added_tokens":[)" + marks +
      R"(],"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":false},
"decoder":{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":false},
"model":{"type":"BPE","vocab":{)" +
      vocab + R"(},"merges":[]}})");
}

/// Digits only, or an x and then digits: at every place the right token where the form allows it, else the
/// lowest of those that it does.
std::vector<int32_t> in_form(int prompt, int count, bool after_x) {
  std::vector<int32_t> list;
  for (int i = 0; i < count; ++i) {
    const int right = BlockFake::right(prompt + i), zero = '0' - 33;
    if (after_x && i == 0)
      list.push_back('x' - 33);
    else
      list.push_back(right >= zero && right < zero + 10 ? right : zero);
  }
  return list;
}

TEST_F(DiffusionTest, forms_are_enforced_from_the_left) {
  Checkpoint checkpoint;
  checkpoint.eos_ids = {kEos};
  EngineOptions options;
  options.warmup = false;
  options.parallel = 3;
  const auto tokens = ascii();
  for (const int kind : {0, 1, 2}) {  // blocks of the sure and of the unsure, drafts
    SCOPED_TRACE(kind);
    steps_ = std::make_shared<std::atomic<int>>(0);
    const auto engine = Engine::with_model(
        [&]() -> std::unique_ptr<Model> {
          if (kind == 2) return std::make_unique<DraftFake>(steps_);
          return std::make_unique<BlockFake>(steps_, kind == 0);
        },
        tokens, nullptr, checkpoint, options);
    const auto digits = engine->compile({.kind = Constraint::Kind::regex, .text = "[0-9]{11}"});
    const auto marked = engine->compile({.kind = Constraint::Kind::regex, .text = "x[0-9]{10}"});
    std::vector<std::future<Answer>> formed, free;
    for (const int prompt : {3, 8, 14}) {
      formed.push_back(ask(*engine, prompt, 20, {.grammar = digits}));
      free.push_back(ask(*engine, prompt, 9));
      formed.push_back(ask(*engine, prompt, 20, {.grammar = marked}));
    }
    size_t i = 0;
    for (const int prompt : {3, 8, 14}) {
      EXPECT_EQ(free[i / 2].get().tokens, right(prompt, 9)) << prompt;
      for (const bool after_x : {false, true}) {
        const Answer answer = formed[i++].get();
        EXPECT_EQ(answer.tokens, in_form(prompt, 11, after_x)) << prompt;
        EXPECT_EQ(answer.reason, FinishReason::stop);  // the form is whole
      }
    }
    // A limit that strikes first ends it; what is free before the form is as ever.
    const Answer cut = ask(*engine, 8, 5, {.grammar = digits}).get();
    EXPECT_EQ(cut.tokens, in_form(8, 5, false));
    EXPECT_EQ(cut.reason, FinishReason::length);
    std::vector<int32_t> thought = right(8, 4);
    const auto rest = in_form(12, 11, false);
    thought.insert(thought.end(), rest.begin(), rest.end());
    const std::string close(1, static_cast<char>(33 + BlockFake::right(11)));
    EXPECT_EQ(ask(*engine, 8, 30, {.grammar = digits, .after = close}).get().tokens, thought);
    EXPECT_EQ(engine->stats().pages_free, engine->stats().pages_total);
  }
}

TEST(Sketch, keeps_the_surest_and_cools_down) {
  Sketch sketch({.block = 4,
                 .mask = -1,
                 .steps = 4,
                 .redraws = true,
                 .sampler = Diffusion::Sampler::entropy_bound,
                 .entropy = 0.5f},
                10, 7);
  sketch.begin(4, 100);
  EXPECT_EQ(sketch.tokens().size(), 4u);
  EXPECT_FALSE(sketch.before().has_value());
  EXPECT_FLOAT_EQ(sketch.temperature(), 0.8f);
  // Entropies: nothing, ln 2, ln 10, ln 10: the first two stay, for a token's own entropy does not count.
  std::vector<float> logits(40, 0.0f);
  logits[3] = 100.0f;
  logits[10 + 1] = logits[10 + 2] = 100.0f;
  EXPECT_FALSE(sketch.settle(logits, std::vector<TokenId>{3, 2, 5, 6}));
  EXPECT_EQ(sketch.tokens()[0], 3);
  EXPECT_EQ(sketch.tokens()[1], 2);
  EXPECT_FLOAT_EQ(sketch.temperature(), 0.7f);
  EXPECT_EQ(sketch.before()->shape(), (Shape{4, 10}));
  // Agreement alone is not enough, nor is certainty: both are asked for, or the rounds run out.
  EXPECT_FALSE(sketch.settle(logits, std::vector<TokenId>{3, 1, 0, 0}));
  for (int place = 0; place < 4; ++place) logits[static_cast<size_t>(place * 10 + place)] = 300.0f;
  EXPECT_FALSE(sketch.settle(logits, std::vector<TokenId>{0, 1, 2, 3}));
  EXPECT_TRUE(sketch.settle(logits, std::vector<TokenId>{0, 1, 2, 3}));
  EXPECT_EQ(sketch.take(), (std::vector<TokenId>{0, 1, 2, 3}));
  EXPECT_TRUE(sketch.empty());
}

TEST(Sketch, noise_follows_from_seed_place_and_round) {
  const Diffusion model{.block = 64, .mask = -1, .steps = 4, .redraws = true};
  Sketch a(model, 1000, 1), b(model, 1000, 1), other(model, 1000, 2);
  a.begin(64, 5);
  b.begin(64, 5);
  other.begin(64, 5);
  EXPECT_EQ(a.tokens(), b.tokens());
  EXPECT_NE(a.tokens(), other.tokens());
  b.begin(64, 6);
  EXPECT_NE(a.tokens(), b.tokens());
  for (const TokenId token : a.tokens()) {
    EXPECT_GE(token, 0);
    EXPECT_LT(token, 1000);
  }
}

TEST(Sketch, generation_config_is_bounded) {
  Checkpoint checkpoint;
  checkpoint.config = Config::parse("{}", "config.json");
  const Diffusion model{
      .block = 8, .mask = -1, .steps = 4, .redraws = true, .sampler = Diffusion::Sampler::entropy_bound};
  checkpoint.generation_config = Config::parse(
      R"({"max_denoising_steps": 9, "t_max": 0.9, "t_min": 0.2, "sampler_config": {"entropy_bound": 0.3}})",
      "generation_config.json");
  const Diffusion own = tuned(model, checkpoint);
  EXPECT_EQ(own.steps, 9);
  EXPECT_FLOAT_EQ(own.hottest, 0.9f);
  EXPECT_FLOAT_EQ(own.coolest, 0.2f);
  EXPECT_FLOAT_EQ(own.entropy, 0.3f);
  for (const char* wrong : {R"({"t_max": 0})", R"({"max_denoising_steps": 0})",
                            R"({"sampler_config": {"entropy_bound": -1}})", R"({"t_min": Infinity})"}) {
    checkpoint.generation_config = Config::parse(wrong, "generation_config.json");
    checkpoint.config = Config::parse("{}", "config.json");
    EXPECT_THROW((void)tuned(model, checkpoint), Error) << wrong;
  }
}

Draw drawn(int32_t token) {
  Draw draw;
  draw.token = token;
  return draw;
}

TEST(Canvas, the_last_round_leaves_nothing_open) {
  Canvas canvas({.block = 6, .mask = 9, .threshold = 0.9f, .steps = 4});
  canvas.begin(5);
  const auto offers = [&](float sure) {
    std::vector<Canvas::Offer> list;
    for (int i = 0; i < 5; ++i)
      if (!canvas.known(i)) list.push_back({i, drawn(i), sure + 0.01f * static_cast<float>(i)});
    return list;
  };
  canvas.settle(offers(0.1f));  // 6 tokens in 4 rounds: two, two, one, one
  EXPECT_EQ(canvas.tokens(), (std::vector<TokenId>{9, 9, 9, 3, 4}));
  canvas.settle({{0, drawn(0), 0.95f}, {1, drawn(1), 0.2f}, {2, drawn(2), 0.1f}});
  EXPECT_EQ(canvas.tokens(), (std::vector<TokenId>{0, 1, 9, 3, 4}));
  canvas.settle(offers(0.1f));
  EXPECT_TRUE(canvas.done());
  EXPECT_EQ(canvas.take().size(), 5u);
  EXPECT_TRUE(canvas.empty());
}

}  // namespace
}  // namespace mlxcel
