// A chat template (Jinja as Hugging Face uses it), rendered by minijinja behind bridge/ with Python's string
// and dict methods, raise_exception, strftime_now, tojson as Python prints it, and a fuel limit.
// Owner: shared, immutable. Thread: any, concurrently.
// Failure: invalid_request carrying the template's own sentence (raise_exception), or its line.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "checkpoint/checkpoint.h"
#include "text/tokenizer.h"

namespace mlxcel {

struct TemplateInput {
  std::string messages_json{};  // array of {"role", "content", …} exactly as the template sees it
  std::string tools_json{};     // array, or empty for none
  std::string kwargs_json{};    // object of extra variables, or empty
  bool add_generation_prompt = true;
  bool continue_final_message = false;  // the last assistant message is a prefix to go on from
};

class ChatTemplate {
 public:
  /// chat_template.jinja, tokenizer_config.json's chat_template (named sets too) or the GGUF key; null
  /// where the model has none.
  static std::shared_ptr<const ChatTemplate> load(const Checkpoint& checkpoint, const Tokenizer& tokenizer);
  static std::shared_ptr<const ChatTemplate> from_text(std::string_view text, std::string bos_token,
                                                       std::string eos_token);
  ~ChatTemplate();
  std::string render(const TemplateInput& input) const;
  const std::string& source() const;

  struct Impl;
  explicit ChatTemplate(std::unique_ptr<Impl> impl);

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace mlxcel
