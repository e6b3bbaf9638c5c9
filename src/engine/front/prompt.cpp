#include "engine/front/prompt.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace mlxcel {
namespace {

constexpr size_t kLeastHead = size_t{64} << 10;  // bytes of a text that are encoded before it is refused

// Drops repeated BOS at the head; true when the text spelled two by itself.
bool collapse_bos(const Tokenizer& tokenizer, Prompt& prompt, bool added_one) {
  const auto bos = tokenizer.bos();
  if (!bos) return false;
  size_t count = 0;
  while (count < prompt.tokens.size() && prompt.tokens[count] == *bos) ++count;
  if (count > 1)
    prompt.tokens.erase(prompt.tokens.begin(),
                        prompt.tokens.begin() + static_cast<std::ptrdiff_t>(count - 1));
  return count > (added_one ? 2u : 1u);
}

std::string content_text(const nlohmann::json& content) {
  if (content.is_string()) return content.get<std::string>();
  std::string text;
  if (content.is_array())
    for (const auto& part : content)
      if (part.is_object() && part.contains("type") && part["type"] == "text" && part.contains("text") &&
          part["text"].is_string())
        text += part["text"].get<std::string>();
  return text;
}

}  // namespace

void refuse_overlong(const Tokenizer& tokenizer, std::string_view text, const PromptBound& bound) {
  if (bound.window <= 0) return;
  const size_t most = 2 * static_cast<size_t>(bound.window);
  // A cut changes tokens beside it only, so what is twice too long at its head is too long whole.
  for (size_t head = std::max(kLeastHead, 4 * most); head < text.size() / 2; head *= 2) {
    size_t cut = head;
    while (cut > 0 && (static_cast<unsigned char>(text[cut]) & 0xC0) == 0x80) --cut;
    if (tokenizer.encode(text.substr(0, cut), false, true).size() <= most) continue;
    fail_param(
        bound.param,
        "request (more than {} tokens) exceeds the available context size ({} tokens), try increasing it",
        most, bound.window);
  }
}

Prompt prepare_chat(const Tokenizer& tokenizer, const ChatTemplate* chat_template, const TemplateInput& input,
                    const PromptBound& bound) {
  if (chat_template == nullptr)
    fail_param("messages", "this model has no chat template: send a plain prompt instead of messages");
  Prompt prompt;
  prompt.text = chat_template->render(input);
  refuse_overlong(tokenizer, prompt.text, bound);
  prompt.tokens = tokenizer.encode(prompt.text, false, true);
  prompt.double_bos = collapse_bos(tokenizer, prompt, false);
  return prompt;
}

Prompt prepare_raw(const Tokenizer& tokenizer, std::string_view text, const PromptBound& bound) {
  refuse_overlong(tokenizer, text, bound);
  Prompt prompt;
  prompt.text = text;
  prompt.tokens = tokenizer.encode(text, true, true);
  prompt.double_bos = collapse_bos(tokenizer, prompt, tokenizer.adds_bos());
  return prompt;
}

std::vector<TokenId> chat_prompt(const Tokenizer& tokenizer, const ChatTemplate* chat_template,
                                 const TemplateInput& input) {
  return prepare_chat(tokenizer, chat_template, input).tokens;
}

std::vector<TokenId> raw_prompt(const Tokenizer& tokenizer, std::string_view text) {
  return prepare_raw(tokenizer, text).tokens;
}

std::string plain_chat_text(const TemplateInput& input) {
  const auto messages = nlohmann::json::parse(input.messages_json, nullptr, false);
  if (!messages.is_array()) fail_param("messages", "messages: expected an array of messages");
  std::string text;
  for (size_t i = 0; i < messages.size(); ++i) {
    const auto& message = messages[i];
    if (!message.is_object() || !message.contains("role") || !message["role"].is_string())
      fail_param("messages", "messages[{}]: expected an object with a role", i);
    const auto role = message["role"].get<std::string>();
    const std::string content = message.contains("content") ? content_text(message["content"]) : "";
    const bool open = input.continue_final_message && i + 1 == messages.size() && role == "assistant";
    if (role == "system" || role == "developer")
      text += "System: ";
    else if (role == "assistant")
      text += "Assistant: ";
    else
      text += "User: ";
    text += content;
    if (open) return text;
    text += '\n';
  }
  if (input.add_generation_prompt) text += "Assistant:";
  return text;
}

std::vector<TokenId> chat_prompt_or_plain(const Tokenizer& tokenizer, const ChatTemplate* chat_template,
                                          const TemplateInput& input) {
  if (chat_template != nullptr) return chat_prompt(tokenizer, chat_template, input);
  return raw_prompt(tokenizer, plain_chat_text(input));
}

}  // namespace mlxcel
