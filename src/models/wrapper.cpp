#include "models/wrapper.h"

namespace mlxcel {

Config text_config(const Config& config) {
  return config.is_object("text_config") ? config.child("text_config") : config;
}

std::vector<Rule> text_side_rules() {
  std::vector<Rule> rules;
  for (const char* tower : {"visual.*", "vision_tower.*", "vision_model.*", "vision_embedder.*",
                            "audio_tower.*", "embed_vision.*", "embed_audio.*", "multi_modal_projector.*"}) {
    rules.push_back(drop(tower));
    rules.push_back(drop(std::string("model.") + tower));
  }
  rules.push_back(rename("model.language_model.*", "model.*"));
  rules.push_back(rename("language_model.lm_head.*", "lm_head.*"));
  rules.push_back(rename("language_model.model.*", "model.*"));
  return rules;
}

}  // namespace mlxcel
