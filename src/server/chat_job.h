// From a chat request of any API to rows, and from their text back to thoughts, content and tool calls.
// Thread: the exchange's executor. Failure: Error and Refusal, before anything is submitted.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "api/chat_spec.h"
#include "engine/front/prompt.h"
#include "server/generation.h"
#include "text/reply/reply_parser.h"

namespace mlxcel {

/// What one choice came to.
struct ReplyEnd {
  RowFigures figures;
  std::string finish;  // stop, length, tool_calls
  int calls = 0;
  int reasoning_tokens = 0;
};

/// Prints one API's answer. Called on the exchange's executor, in order; end() comes once for each choice.
class ReplyWriter {
 public:
  virtual ~ReplyWriter() = default;
  virtual void begin(int prompt_tokens) = 0;
  /// How far the prompt is, where the options ask for it.
  virtual void progress(size_t, const openai::PromptProgress&) {}
  /// The figures so far, where the options ask for them; they come before the text they belong to.
  virtual void timed(size_t, const openai::TimingFigures&) {}
  /// Log-probabilities of tokens; they come before the text they belong to.
  virtual void scores(size_t, std::vector<openai::TokenScore>) {}
  /// The tokens behind what comes next.
  virtual void tokens(size_t, const std::vector<Draw>&) {}
  virtual void thought(size_t choice, const std::string& text) = 0;
  virtual void content(size_t choice, const std::string& text) = 0;
  /// A call begins; then pieces of its arguments; then all of it.
  virtual void call_open(size_t, int, const ToolCall&) {}
  virtual void call_arguments(size_t, int, const std::string&) {}
  virtual void call(size_t choice, int index, const ToolCall& call) = 0;
  virtual void end(size_t choice, const ReplyEnd& end, const std::vector<Warning>& warnings) = 0;
  virtual void finish(const openai::Usage& usage, const openai::TimingFigures& totals) = 0;
  virtual std::string error_event(const ApiError&) { return ""; }
  /// Somebody asked for the end of this choice.
  virtual bool stopped(size_t) const { return false; }
};

/// The prompt of a chat, with everything that decides how its answer is read.
struct ChatPrompt {
  Prompt prompt;
  std::shared_ptr<const ReplyFormat> format;
  std::shared_ptr<const ToolTypes> tools;  // empty when nothing may be called
  std::vector<Warning> warnings;
  std::string tail;  // of the rendered text
  std::string continued;
};
/// `key`: who asks, for the thoughts that are put back into the conversation. `window`: tokens over which the
/// prompt is of no use, 0 where it is only looked at; far longer ones are refused before they are encoded.
ChatPrompt prepare_chat_prompt(Service& service, const Engine& engine, const ChatSpec& spec,
                               const std::string& key, int window = 0);

struct ChatOptions {
  std::string call_prefix = "call_";
  std::shared_ptr<std::atomic<bool>> end_thought = {};  // set by somebody who has heard enough thinking
  bool timed = false;                                   // figures with every piece
  bool progress = false;                                // how far the prompt is, before the first piece
  int context_cap = 0;  // a window below the slot's, for this request; 0: none
};
void start_chat(const Router& router, const std::shared_ptr<Engine>& engine,
                const std::shared_ptr<Exchange>& exchange, const ChatSpec& spec, ChatPrompt prompt,
                std::unique_ptr<ReplyWriter> writer, const ChatOptions& options = {});

}  // namespace mlxcel
