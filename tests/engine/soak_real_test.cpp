// The soak on SmolLM2: chats with facts planted in them, JSON that is asked for, keys and values in codes.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/front/prompt.h"
#include "real_model.h"
#include "soak.h"

namespace mlxcel {
namespace {

// H6: each prompt has a number of its own to be repeated.
std::vector<Request> chats(Engine& cold, const soak::Alone&, int window) {
  const auto object = cold.compile({.kind = Constraint::Kind::json_object});
  std::vector<Request> kinds;
  for (int k = 0; k < 12; ++k) {
    TemplateInput input;
    input.messages_json =
        nlohmann::json::array(
            {{{"role", "system"},
              {"content", k % 2 == 0 ? "You repeat numbers." : "You answer in one word."}},
             {{"role", "user"},
              {"content", fmt::format("The number of this talk is {}. Say it again.", 4100 + 37 * k)}}})
            .dump();
    Request r;
    r.prompt = chat_prompt(*cold.tokenizer(), cold.chat_template().get(), input);
    r.max_tokens = std::min(6 + k, window - static_cast<int>(r.prompt.size()));
    r.sampling.logprobs = 0;
    if (k % 3 == 1) {
      r.sampling.temperature = 0.8f;
      r.sampling.top_k = 40;
      r.sampling.seed = static_cast<uint32_t>(k);
    }
    if (k % 6 == 5) r.grammar.grammar = object;
    kinds.push_back(std::move(r));
  }
  return kinds;
}

class SmolLm2Soak : public ::testing::TestWithParam<const char*> {};

TEST_P(SmolLm2Soak, EveryAnswerIsThatOfTheRequestAloneAndCold) {
  const auto path = real::find(real::kSmolLm2);
  if (!path)
    GTEST_SKIP() << "SmolLM2-135M-Instruct is not in the model store: scripts/fetch_model.sh puts it there";
  const soak::Subject subject{.name = "smollm2",
                              .make =
                                  [&](EngineOptions options, bool own_draft) {
                                    options.model = *path;
                                    options.warmup = false;
                                    if (own_draft) options.draft_model = *path;
                                    return Engine::load(options);
                                  },
                              .kinds = chats};
  soak::run(subject, GetParam(), soak::asked_for(30) / soak::kSettings);
}

INSTANTIATE_TEST_SUITE_P(Modes, SmolLm2Soak, ::testing::Values("fp16", "turbo4"),
                         [](const auto& mode) { return std::string(mode.param); });

}  // namespace
}  // namespace mlxcel
