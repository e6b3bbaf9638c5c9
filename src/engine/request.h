// What is asked of an engine and what it answers: requests, events, embeddings, scores. Owner: values.
// Thread: any.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "engine/denoising.h"
#include "engine/options.h"
#include "engine/stats.h"
#include "sample/sampler.h"
#include "text/grammar/grammar.h"
#include "text/tokenizer.h"

namespace mlxcel {

/// No place for a new request now (queue full, shutting down): the same request may pass later.
class Busy : public Error {
 public:
  explicit Busy(const std::string& message) : Error(ErrorKind::out_of_memory, message) {}
};

/// The same for one key, whose waiting requests have used up its share of the queue.
class KeyBusy : public Busy {
 public:
  using Busy::Busy;
};

/// Ends an answer whose last tokens are one pattern over and over (finish "stop").
struct LoopDetection {
  int max_pattern = 0;  // tokens of a pattern; 0: off
  int min_pattern = 1;
  int min_count = 2;   // how often it must stand at the end; at least 2
  bool given = false;  // the request said so, also where it is off: the environment and the family's habit do
                       // not count
};

enum class Priority { high, normal, low };

struct Request {
  std::vector<TokenId> prompt = {};
  SamplingParams sampling = {};
  LoopDetection loops = {};
  GrammarUse grammar = {};  // what the answer must look like
  int max_tokens = -1;      // -1: to the window's end; 0: evaluate the prompt only
  std::optional<std::vector<AdapterScale>> adapters = {};  // others 0; nothing: the scales in force
  std::vector<TokenId> eos = {};                           // end tokens; filled from the model when empty
  bool ignore_eos = false;
  bool prompt_logprobs = false;  // Scored events for the prompt's tokens (echo with logprobs)
  bool progress = false;         // Progress events
  int choice = 0;                // index among n choices, for the seed
  bool cache_prompt = true;      // reuse kept prefixes and keep this one
  std::string cache_scope = {};  // prefixes are shared inside one scope only (key, template signature, ...)
  int history_tokens = 0;        // tokens of the prompt that the next turn begins with whatever the answer is
  uint64_t group = 0;            // not 0: choices of one prompt, which is evaluated once for all of them
  int slot = -1;                 // waits for this one; -1: any
  Denoising denoising = {};      // refused by models that write one token after another
  // Where EngineOptions.context_shift is on and the window is full: so many first tokens stay (-1: the whole
  // prompt), so many of the others go (0: half of them).
  int keep_tokens = 0, discard_tokens = 0;
  Priority priority = Priority::normal;
  std::string key = {};                    // keys of a lane take turns
  std::optional<TimePoint> deadline = {};  // Failed{cancelled} when it passes
  std::string route = {};                  // who asks ("/v1/completions", "cli"): logs, MLXCEL_FAIL_STEP
};

enum class FinishReason { stop, length, cancelled };
const char* to_string(FinishReason reason);

struct Timings {
  double queue_ms = 0, prompt_ms = 0, decode_ms = 0;
  int prompt_tokens = 0, cached_tokens = 0, generated_tokens = 0;
  int drafted = 0, accepted = 0, draft_rounds = 0;  // speculation
  DraftPlaces draft_places = {};
  int slot = -1;  // the row's, from its admission on
};

struct Scored {
  std::vector<Draw> tokens;
};  // prompt tokens 1..n-1, in order, may come in parts
struct Progress {
  int evaluated = 0;  // prompt tokens so far, those from a kept prefix among them
  Timings timings;
};  // where Request.progress asks for it: at admission, then after each part of the prompt
struct Token {
  Draw draw;
  Timings timings;
  uint32_t seed = 0;
};  // one generated token; EOS is not sent
struct Finished {
  FinishReason reason;
  Timings timings;
  uint32_t seed;
  std::optional<TokenId> eos;
  bool truncated = false;  // the window was full: the answer ended there, or its beginning was forgotten
};
struct Failed {
  Error error;
};
using Event = std::variant<Scored, Progress, Token, Finished, Failed>;  // Finished or Failed is the last
using Sink = std::function<void(Event)>;

struct EmbedRequest {
  std::vector<std::vector<TokenId>> inputs = {};  // with CLS, SEP and the like
  std::string pooling = {};                       // mean, cls, last, max; empty: the model's own
  bool normalize = true;
  int dimensions = 0;     // 0: all; else the first ones, normalised again
  bool truncate = false;  // cut inputs over max_input() instead of refusing them; a final special token stays
};
/// Rerankers: one score for each input, a pair of texts as the model wants them.
struct ScoreRequest {
  std::vector<std::vector<TokenId>> inputs = {};  // whole prompts, special tokens included
  std::vector<int> seconds = {};  // where each input's second text begins; empty: unknown to the model
  /// Models without a classifier (info().labels is 0): the score is the logit of the first answer minus that
  /// of the second, behind the last token. Needs EngineOptions.reranker.
  std::optional<std::pair<TokenId, TokenId>> answers = {};
};
struct Scores {
  std::vector<std::vector<float>> scores;  // a logit for each label; with answers, their difference alone
  int prompt_tokens = 0;
};
struct Embeddings {
  std::vector<std::vector<float>> vectors;
  int prompt_tokens = 0;  // evaluated, over all inputs
  int truncated = 0;      // inputs that were cut
};

}  // namespace mlxcel
