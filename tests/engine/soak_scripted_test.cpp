// The soak on the scripted model: answers that are held to a form, end by themselves or are drawn among
// equals. Its attention is off: what goes wrong here lies behind the logits.
#include <gtest/gtest.h>

#include <unistd.h>

#include "engine/front/prompt.h"
#include "fixtures/scripted_model.h"
#include "soak.h"

namespace mlxcel {
namespace {

std::vector<Request> scripted_kinds(Engine& cold, const soak::Alone&, int window) {
  const auto digits = cold.compile({.kind = Constraint::Kind::regex, .text = "(<[0-7][0-7]>){3,9}"});
  const auto object = cold.compile({.kind = Constraint::Kind::json_schema,
                                    .text = R"({"type": "object", "properties": {"a": {"enum": ["x", "yy"]}},
                                               "required": ["a"], "additionalProperties": false})"});
  std::vector<Request> kinds;
  for (const char* trigger : {"[[flat]]", "[[count]]", "[[loop]]", "[[dist]]", "[[eos2]]", "[[long]]"})
    for (int form = 0; form < 3; ++form) {
      const auto k = static_cast<uint32_t>(kinds.size());
      Request r;
      std::string text;
      for (uint32_t i = 0; i < 30 + 9 * (k % 5); ++i) text += static_cast<char>('a' + (i * (1 + k % 2)) % 26);
      r.prompt = raw_prompt(*cold.tokenizer(), text + trigger);
      r.max_tokens = std::min(5 + static_cast<int>(k), window - static_cast<int>(r.prompt.size()));
      r.sampling.logprobs = 2;
      if (form > 0) {
        r.sampling.temperature = 1.0f;
        r.sampling.seed = k;
      }
      if (form == 2) r.grammar.grammar = k % 2 == 0 ? digits : object;
      if (k % 4 == 1) r.sampling.repeat_penalty = 1.3f;
      kinds.push_back(std::move(r));
    }
  return kinds;
}

TEST(ScriptedSoak, FormsAndDrawsAreThoseOfTheRequestAlone) {
  const auto folder =
      std::filesystem::temp_directory_path() / fmt::format("mlxcel-scripted-soak-{}", ::getpid());
  testing::ScriptedModel::standard().write(folder);
  const soak::Subject subject{.name = "scripted",
                              .make =
                                  [&](EngineOptions options, bool own_draft) {
                                    options.model = folder;
                                    options.warmup = false;
                                    if (own_draft) options.draft_model = folder;
                                    return Engine::load(options);
                                  },
                              .kinds = scripted_kinds,
                              .repeats_itself = true};
  soak::run(subject, "fp16", soak::asked_for(100) / soak::kSettings);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace mlxcel
