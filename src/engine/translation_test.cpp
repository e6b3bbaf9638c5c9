// Drafts by a model over another vocabulary.
#include "engine/loop/translation.h"

#include <gtest/gtest.h>

#include <future>

#include "base/error.h"
#include "engine/engine.h"
#include "engine/loop/fake_model.h"

namespace mlxcel {
namespace {

using testing::FakeControl;
using testing::FakeModel;

/// Byte-level BPE whose tokens are `words`, in this order, then special ones.
std::shared_ptr<const Tokenizer> tokenizer(const std::vector<std::string>& words,
                                           const std::vector<std::string>& special = {}) {
  std::string vocab, added;
  int id = 0;
  for (const std::string& word : words) {
    std::string text;
    for (const char c : word) text += (c == '"' || c == '\\') ? std::string{'\\', c} : std::string{c};
    vocab += (id > 0 ? ",\"" : "\"") + text + "\":" + std::to_string(id);
    ++id;
  }
  for (const std::string& word : special)
    added += (added.empty() ? R"({"id":)" : R"(,{"id":)") + std::to_string(id++) + R"(,"content":")" + word +
             R"(","special":true,"single_word":false,"lstrip":false,"rstrip":false,"normalized":false})";
  return Tokenizer::from_json(
      R"({"version":"1.0","added_tokens":[)" + added +
      R"(],"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":false},
"decoder":{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":false},
"model":{"type":"BPE","vocab":{)" +
      vocab + R"(},"merges":[]}})");
}

using Tokens = std::vector<TokenId>;

TEST(Translation, IsTheSameTokenOrItsLongestPieces) {
  const auto from = tokenizer({"abc", "a", "xyz", "ab", "q"}, {"<|end|>"});
  const auto to = tokenizer({"a", "b", "ab", "c", "z", "y"}, {"<|end|>", "<|more|>"});
  Translation there(from, to), back(to, from);
  EXPECT_EQ(there.of(0), (Tokens{2, 3})) << "ab, c";
  EXPECT_EQ(there.of(1), (Tokens{0}));
  EXPECT_EQ(there.of(2), (Tokens{5, 4})) << "there is no x";
  EXPECT_EQ(there.of(3), (Tokens{2}));
  EXPECT_EQ(there.of(4), Tokens{});
  EXPECT_EQ(there.of(5), (Tokens{6})) << "special tokens by their name";
  EXPECT_EQ(there.of(6), Tokens{}) << "a padded table's";
  EXPECT_EQ(there.of(-1), Tokens{});
  EXPECT_EQ(back.of(0), (Tokens{1}));
  EXPECT_EQ(back.of(1), Tokens{}) << "no b by itself";
  EXPECT_EQ(back.of(2), (Tokens{3}));
  EXPECT_NEAR(there.share(), 3.0 / 6, 1e-9);  // a, ab, the end
  EXPECT_NEAR(back.share(), 3.0 / 8, 1e-9);
}

/// Drafts what it was told to; remembers what it read.
class ToldDrafter final : public Drafter {
 public:
  int draft(std::span<DraftAsk> asks, int) override {
    for (DraftAsk& ask : asks) {
      read.assign(ask.tokens.begin(), ask.tokens.end());
      ask.draft.assign(drafts.begin(), drafts.begin() + std::min<ptrdiff_t>(ask.most, std::ssize(drafts)));
    }
    return 0;
  }
  Tokens read, drafts;
};

TEST(TranslatedDrafter, FollowsTheTextAndForgetsWhatIsNoLongerThere) {
  const auto target = tokenizer({"abc", "a", "xyz", "ab", "q"});
  const auto own = tokenizer({"a", "b", "ab", "c", "z", "y", "abcab"});
  auto told = std::make_unique<ToldDrafter>();
  ToldDrafter& inner = *told;
  TranslatedDrafter drafter(std::move(told), Translation(target, own), Translation(own, target));
  const auto ask = [&](const Tokens& tokens, int most) {
    DraftAsk one{.row = 7, .tokens = tokens, .most = most};
    drafter.draft({&one, 1}, 100);
    return one.draft;
  };
  inner.drafts = {2, 6, 0};
  EXPECT_EQ(ask({0, 4, 2}, 9), (Tokens{3, 0, 3, 1})) << "ab, abc and ab for abcab, a";
  EXPECT_EQ(inner.read, (Tokens{2, 3, 5, 4}));
  EXPECT_EQ(ask({0, 4, 2, 1}, 2), (Tokens{3, 0})) << "no more than were asked for";
  EXPECT_EQ(inner.read, (Tokens{2, 3, 5, 4, 0}));
  EXPECT_EQ(ask({0, 1}, 9), (Tokens{3, 0, 3, 1}));
  EXPECT_EQ(inner.read, (Tokens{2, 3, 0})) << "the text is another one";
  inner.drafts = {0, 1, 0};
  EXPECT_EQ(ask({0}, 9), (Tokens{1})) << "a b is nothing the target could draw";
  drafter.keep_only({});
  EXPECT_EQ(ask({1}, 1), (Tokens{1}));
  EXPECT_EQ(inner.read, (Tokens{0}));
}

/// The fake model with its tokens in another order.
class TurnedModel final : public Model {
 public:
  static int own(int token) { return (token + 11) % FakeModel::kVocab; }
  const ModelInfo& info() const override { return fake_.info(); }
  const StateLayout& layout() const override { return fake_.layout(); }
  array logits(Step& step) override {
    std::vector<float> values;
    for (const int at : step.wanted()) {
      const int token =
          (step.token_ids()[static_cast<size_t>(at)] + FakeModel::kVocab - 11) % FakeModel::kVocab;
      int position = at;
      for (const StepRow& row : step.rows())
        if (at >= row.first && at < row.first + row.count) position = row.position + at - row.first;
      std::vector<float> row(FakeModel::kVocab);
      for (int c = 0; c < FakeModel::kVocab; ++c)
        row[static_cast<size_t>(own(c))] = FakeModel::logit(token, position, c);
      values.insert(values.end(), row.begin(), row.end());
    }
    return array(values.begin(), {static_cast<int>(step.wanted().size()), FakeModel::kVocab}, mx::float32);
  }
  array hidden(Step& step) override { return fake_.hidden(step); }

 private:
  FakeModel fake_{std::make_shared<FakeControl>()};
};

TEST(TranslatedDrafter, TheSameTextInOtherTokensIsDraftedRight) {
  std::vector<std::string> words, turned(FakeModel::kVocab);
  for (int i = 0; i < FakeModel::kVocab; ++i) {
    words.push_back(std::string{static_cast<char>('a' + i % 26), static_cast<char>('A' + i / 26)});
    turned[static_cast<size_t>(TurnedModel::own(i))] = words.back();
  }
  const auto run = [&](std::shared_ptr<const Tokenizer> drafters) {
    EngineOptions options;
    options.draft_tokens = 4;
    options.draft_adaptive = false;
    options.make_drafter = [] { return std::make_unique<TurnedModel>(); };
    options.draft_tokenizer = std::move(drafters);
    const auto engine =
        Engine::with_model([] { return std::make_unique<FakeModel>(std::make_shared<FakeControl>()); },
                           tokenizer(words), nullptr, Checkpoint{}, options);
    Request request;
    request.prompt = {5, 17, 3};
    request.max_tokens = 40;
    request.ignore_eos = true;
    std::promise<Finished> end;
    auto tokens = std::make_shared<Tokens>();
    engine->submit(request, [&end, tokens](Event event) {
      if (const auto* token = std::get_if<Token>(&event)) tokens->push_back(token->draw.token);
      if (const auto* finished = std::get_if<Finished>(&event)) end.set_value(*finished);
      if (const auto* failed = std::get_if<Failed>(&event))
        end.set_exception(std::make_exception_ptr(failed->error));
    });
    const Timings t = end.get_future().get().timings;
    EXPECT_EQ(*tokens, FakeModel::answer(request.prompt, 40));
    return t;
  };
  const Timings right = run(tokenizer(turned));
  EXPECT_GT(right.drafted, 25);
  EXPECT_EQ(right.accepted, right.drafted);
  // Too little in common.
  EXPECT_THROW(run(tokenizer({"no", "such", "words"})), Error);
}

}  // namespace
}  // namespace mlxcel
