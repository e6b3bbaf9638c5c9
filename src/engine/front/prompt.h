// From what a user wrote to prompt tokens. Rendered chats are encoded as they stand, raw text with the
// special tokens the tokenizer adds, and two BOS never stand together at the head. Owner: values. Thread: any
// (the caller's). Failure: invalid_request, with the template's own sentence.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace mlxcel {

struct Prompt {
  std::vector<TokenId> tokens;
  std::string text;         // what was encoded
  bool double_bos = false;  // the text itself began with two BOS; one was dropped: worth a warning
};

/// How much a prompt may hold, and the request's field that is at fault where it holds more.
struct PromptBound {
  int window = 0;  // tokens; 0: no bound
  std::string param;
};

/// invalid_request for a text that is plainly over the bound: its beginning alone has more than twice as many
/// tokens. Encoding is slow on megabytes, and most of such a text is never encoded.
void refuse_overlong(const Tokenizer& tokenizer, std::string_view text, const PromptBound& bound);

/// `chat_template` null: invalid_request "this model has no chat template".
Prompt prepare_chat(const Tokenizer& tokenizer, const ChatTemplate* chat_template, const TemplateInput& input,
                    const PromptBound& bound = {});
Prompt prepare_raw(const Tokenizer& tokenizer, std::string_view text, const PromptBound& bound = {});

std::vector<TokenId> chat_prompt(const Tokenizer& tokenizer, const ChatTemplate* chat_template,
                                 const TemplateInput& input);
std::vector<TokenId> raw_prompt(const Tokenizer& tokenizer, std::string_view text);

/// For models without a template, in the terminal: "System: …", "User: …", "Assistant:" lines.
std::string plain_chat_text(const TemplateInput& input);
/// chat_prompt where there is a template, else plain_chat_text encoded as a raw prompt.
std::vector<TokenId> chat_prompt_or_plain(const Tokenizer& tokenizer, const ChatTemplate* chat_template,
                                          const TemplateInput& input);

}  // namespace mlxcel
