#include "models/wrapper.h"

#include <functional>
#include <string>
#include <utility>

#include "base/error.h"

namespace mlxcel {

namespace {

const Arch& family_of(const Config& wrapper, const Config& text, const char* fallback) {
  const auto own = wrapper.get<std::string>("model_type");
  auto type = text.get<std::string>("model_type", fallback);
  if (type == own) type = fallback;
  for (const NamedArch& entry : arch_table())
    for (const auto& name : entry.arch.model_types)
      if (name == type) return entry.arch;
  // The wrapper's own word for its text side ("qwen3_omni_moe_text" of "qwen3_omni_moe_thinker").
  if (type.ends_with("_text") && own.starts_with(std::string_view(type).substr(0, type.size() - 5)))
    for (const NamedArch& entry : arch_table())
      if (entry.family == fallback) return entry.arch;
  fail(ErrorKind::unsupported,
       "{}: model_type {} with text of model_type {}: this combination is not supported", wrapper.where(),
       own, type);
}

using FamilyOf = std::function<const Arch&(const Config& wrapper, const Config& text)>;

Arch served(Arch wrapper, FamilyOf family) {
  wrapper.build = Builder([family](const Config& config, const Weights& weights) {
    const Config text = text_config(config);
    if (config.has("vision_config"))
      weights.warn("the text side alone is served: the vision tower is left out, images are refused");
    return family(config, text).build(text, weights);
  });
  wrapper.weights = [family = std::move(family)](const Config& config, const Source& source) {
    const Config text = text_config(config);
    return text_side_rules() + family(config, text).weights(text, source);
  };
  return wrapper;
}

}  // namespace

Config text_config(const Config& config) {
  for (const char* key : {"text_config", "llm_config", "language_config"}) {
    const Config text = config.child(key, {"tie_word_embeddings"});
    if (!text.empty()) return text;
  }
  // A thinker beside a talker.
  const Config thinker = config.child("thinker_config");
  return thinker.empty() ? config : text_config(thinker);
}

std::vector<Rule> text_side_rules() {
  std::vector<Rule> rules;
  for (const char* tower : {"visual.*", "vision_tower.*", "vision_model.*", "vision_embedder.*",
                            "audio_tower.*", "embed_vision.*", "embed_audio.*", "multi_modal_projector.*",
                            "mm_projector.*", "connector.*", "image_newline"}) {
    rules.push_back(drop(tower));
    rules.push_back(drop(std::string("model.") + tower));
  }
  rules.push_back(rename("model.language_model.*", "model.*"));
  rules.push_back(rename("language_model.*", "*"));
  return rules;
}

Arch text_side(Arch wrapper, const char* family) {
  return served(std::move(wrapper), [family](const Config& config, const Config& text) -> const Arch& {
    return family_of(config, text, family);
  });
}

Arch text_side(Arch wrapper, std::function<std::string(const Config& wrapper)> family) {
  return served(std::move(wrapper),
                [family = std::move(family)](const Config& config, const Config&) -> const Arch& {
                  const std::string name = family(config);
                  for (const NamedArch& entry : arch_table())
                    if (entry.family == name) return entry.arch;
                  fail(ErrorKind::internal, "{}: no family {}", config.where(), name);
                });
}

Arch preceded(Arch wrapper, std::vector<Rule> rules) {
  wrapper.weights = [own = std::move(wrapper.weights), rules = std::move(rules)](
                        const Config& config, const Source& source) { return rules + own(config, source); };
  return wrapper;
}

}  // namespace mlxcel
