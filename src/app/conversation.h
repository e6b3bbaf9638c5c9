// A conversation on the command line: the messages so far, one turn's request, streamed to stdout.
// Owner: one per command. Thread: main.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/generation.h"

namespace mlxcel::app {

struct ChatMessage {
  std::string role, content;
};

struct TurnOptions {
  SamplingParams sampling;
  int max_tokens = -1;
  std::vector<std::string> stops;
  bool raw = false;                                   // --no-chat-template: the prompt as it is
  std::shared_ptr<const ChatTemplate> chat_template;  // instead of the model's
  std::string template_kwargs;                        // JSON object, or empty
};

class Conversation {
 public:
  Conversation(Engine& engine, TurnOptions options);

  TurnOptions& options() { return options_; }
  std::vector<ChatMessage>& messages() { return messages_; }
  void set_system(const std::string& text);
  std::optional<std::string> system() const;
  /// The last user message and what followed it go; false when there is none.
  bool undo();

  /// Answers `user`, streaming text to `on_text`, and keeps both turns (what was shown of a stopped one).
  TextEnd answer(const std::string& user, const std::function<void(const std::string&)>& on_text);
  /// The whole text of the last answer.
  const std::string& last_text() const { return last_text_; }
  /// The model's template is missing and turns are built as "User: …" lines.
  bool without_template() const;

 private:
  std::vector<TokenId> prompt() const;
  const ChatTemplate* chat_template() const;

  Engine& engine_;
  TurnOptions options_;
  std::vector<ChatMessage> messages_;
  std::string raw_text_;
  std::string last_text_;
};

/// "[Generated N tokens in S s, R tok/s | prompt P tokens, C cached, Q tok/s | finish: REASON]"
std::string statistics_line(const TextEnd& end);

}  // namespace mlxcel::app
