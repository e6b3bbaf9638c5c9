// llama-server's own POST /completion and /infill: the request as a struct, the answer and its frames as
// text; and the bodies of /tokenize and /detokenize. Thread: any. Failure: invalid_request naming the field.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "api/chat_spec.h"
#include "api/openai/answer.h"
#include "sample/sampler.h"
#include "text/tokenizer.h"

namespace mlxcel::llama {

/// Strings are encoded, ids are used as they are; BOS only before a leading string.
using MixedPrompt = std::vector<std::variant<std::string, std::vector<int32_t>>>;

/// What a lazy grammar waits for; it begins with it.
struct GrammarTrigger {
  std::string word;  // or
  int32_t token = -1;
};

struct CompletionRequest {
  std::vector<MixedPrompt> prompts;
  std::vector<std::string> prompt_paths;
  bool many = false;  // a list of prompts: the answer is an array
  int max_tokens = -1;
  bool max_tokens_given = false;
  int n = 1;
  int n_probs = 0;
  int n_indent = 0;  // an answer ends with a line that is indented less
  double t_max_predict_ms = -1;
  bool stream = false, return_tokens = false, timings_per_token = false, echo = false;
  std::vector<std::string> response_fields;
  openai::SamplingFields sampling;
  std::vector<std::pair<std::string, float>> text_bias;  // text whose tokens are biased
  OutputForm form;
  std::vector<GrammarTrigger> triggers;  // empty: the grammar holds from the start
  std::vector<std::string> shown;        // special tokens that appear in the text
  std::optional<int> ping_interval;
  std::vector<std::string> ignored;
  // infill
  std::string prefix, suffix, infill_prompt;
  std::vector<std::pair<std::string, std::string>> extra;  // file name, text
};
CompletionRequest parse_completion(std::string_view body, const openai::Bounds& bounds, bool infill);

struct Probability {
  int32_t id = 0;
  openai::TokenScore score;
  std::vector<int32_t> top_ids;
};

/// What generation_settings says: the values in force.
struct Settings {
  SamplingParams sampling;
  uint32_t seed = 0;
  int n_predict = -1;
  int n_probs = 0;
  int n_keep = 0, n_discard = 0;
  bool ignore_eos = false, stream = false, grammar_lazy = false;
  std::vector<std::string> stop;
  std::string kv_mode, grammar;
  std::vector<std::pair<int, float>> adapters = {};  // id, scale
};
void print_settings(JsonWriter& out, const Settings& settings);

struct Frame {
  int index = 0, id_slot = 0;
  std::string content;
  std::vector<int32_t> tokens;
  int predicted = 0, evaluated = 0;
  bool with_probabilities = false, post_sampling = false;
  std::vector<Probability> probabilities;
  const openai::TimingFigures* timings = nullptr;
  const openai::PromptProgress* progress = nullptr;
};
std::string print_frame(const Frame& frame);

struct Answer : Frame {
  std::string model, prompt, stop_type, stopping_word;
  Settings settings;
  bool has_new_line = false, truncated = false;
  openai::TimingFigures figures;
};
std::string print_answer(const Answer& answer);
/// The wanted members of a body; "a/b" becomes a member of that name.
std::string project(const std::string& json, const std::vector<std::string>& fields);

struct TokenizeRequest {
  MixedPrompt content;
  bool add_special = false, parse_special = true, with_pieces = false;
};
TokenizeRequest parse_tokenize(std::string_view body, int vocab_size);
std::string print_tokens(const Tokenizer& tokenizer, const std::vector<TokenId>& tokens, bool with_pieces);
std::vector<int32_t> parse_detokenize(std::string_view body, int vocab_size);

std::vector<TokenId> encode_mixed(const Tokenizer& tokenizer, const MixedPrompt& prompt, bool add_special,
                                  bool parse_special);
std::string text_of(const Tokenizer& tokenizer, const MixedPrompt& prompt);

}  // namespace mlxcel::llama
