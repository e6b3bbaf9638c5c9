// What may be changed while the server runs (server.md 5.17): defaults of requests and bounds of time. One
// value is in force at a time and is replaced whole. Owner: the service. Thread: any. Failure:
// invalid_request for a body that is no settings; what is wrong with one value is listed.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/denoising.h"
#include "engine/engine.h"
#include "server/options.h"

namespace mlxcel {

struct LiveSettings {
  SamplingFlags sampling;
  int predict = -1;
  int reasoning_budget = -1;
  std::string chat_template_kwargs;  // JSON object, or empty
  double decode_seconds = 600;
  LoopDetection loops;  // of requests that say nothing about loops
  // What the engine is told.
  int step_token_budget = 0;   // 0: learned
  int max_per_key = 0;         // running requests of one key; 0: any number
  LanguageBias language_bias;  // of every request
  Denoising denoising;         // of a model of text diffusion, where a request says nothing

  // Not settings: what bounds some of them.
  int parallel = 1;
  bool keyed = false;  // there are API keys
};

class Settings {
 public:
  explicit Settings(const ServiceOptions& options);
  std::shared_ptr<const LiveSettings> live() const;
  /// `own` with what was changed here since the start: of one of several models.
  std::shared_ptr<const LiveSettings> over(std::shared_ptr<const LiveSettings> own) const;

  /// What stands still: name and value as JSON, with the reason. The value of one of our own keys is not
  /// looked at.
  struct Fixed {
    std::string key, value_json, reason;
  };
  std::string print(const std::vector<Fixed>& fixed) const;
  struct Outcome {
    int status = 200;  // 400 when nothing could be applied, 409 on another fingerprint
    std::string json;
  };
  Outcome patch(std::string_view body, const std::vector<Fixed>& fixed);

 private:
  const LiveSettings first_;  // as the server was started
  mutable std::mutex mutex_;
  std::shared_ptr<const LiveSettings> live_;
  std::map<std::string, std::string> changed_;  // key, JSON
};

}  // namespace mlxcel
