// A conversation on the command line: the messages so far, one turn's request, streamed to stdout.
// Owner: one per command. Thread: main.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/front/prompt.h"
#include "engine/generation.h"

namespace mlxcel::app {

struct ChatMessage {
  std::string role, content;
};

struct TurnOptions {
  SamplingParams sampling;
  int max_tokens = -1;
  bool ignore_eos = false;
  std::vector<std::string> stops;
  bool raw = false;                                   // --no-chat-template: the prompt as it is
  std::shared_ptr<const ChatTemplate> chat_template;  // instead of the model's
  std::string template_kwargs;                        // JSON object, or empty
  std::shared_ptr<const Grammar> grammar;             // what the answer must look like
  int thought_budget = -1;                            // tokens of a thought, then it is ended; -1: any number
  std::string budget_message;                         // said before that end
};

/// What streams to the terminal: the answer, or (where the model marks it) what it thinks before.
using OnPiece = std::function<void(const std::string& text, bool thought)>;

class Conversation {
 public:
  Conversation(Engine& engine, TurnOptions options);

  TurnOptions& options() { return options_; }
  std::vector<ChatMessage>& messages() { return messages_; }
  void set_system(const std::string& text);
  std::optional<std::string> system() const;
  /// The last user message and what followed it go; false when there is none.
  bool undo();

  /// Answers `user`, streaming pieces to `on_piece`, and keeps both turns (what was shown of a stopped one).
  TextEnd answer(const std::string& user, const OnPiece& on_piece);
  /// The whole text of the last answer, and what was thought before it.
  const std::string& last_text() const { return last_text_; }
  const std::string& last_thought() const { return last_thought_; }
  /// The model's template is missing and turns are built as "User: …" lines.
  bool without_template() const;

 private:
  Prompt prompt() const;
  TextEnd write(const Prompt& prompt, const OnPiece& on_piece);
  const ChatTemplate* chat_template() const;

  Engine& engine_;
  TurnOptions options_;
  std::vector<ChatMessage> messages_;
  std::string last_text_, last_thought_;
};

/// "[Generated N tokens in S s, R tok/s | prompt P tokens, C cached, Q tok/s | finish: REASON]"
std::string statistics_line(const TextEnd& end);
/// "[Speculative acceptance] rule=… rounds=… proposed=… positions_tested=… accepted=…
/// per_position_acceptance=[…] acceptance_rate=… mean_accepted_len=…", or what prompt lookup prints. A place
/// of a draft is tested when all before it were accepted; its acceptance is a share of those tests.
std::string speculation_line(const TextEnd& end, bool lookup);

}  // namespace mlxcel::app
