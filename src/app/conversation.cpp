#include "app/conversation.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "app/terminal.h"
#include "engine/front/prompt.h"

namespace mlxcel::app {

Conversation::Conversation(Engine& engine, TurnOptions options)
    : engine_(engine), options_(std::move(options)) {}

const ChatTemplate* Conversation::chat_template() const {
  return options_.chat_template ? options_.chat_template.get() : engine_.chat_template().get();
}

bool Conversation::without_template() const { return !options_.raw && !chat_template(); }

void Conversation::set_system(const std::string& text) {
  if (!messages_.empty() && messages_.front().role == "system") messages_.erase(messages_.begin());
  if (!text.empty()) messages_.insert(messages_.begin(), {"system", text});
}

std::optional<std::string> Conversation::system() const {
  if (messages_.empty() || messages_.front().role != "system") return std::nullopt;
  return messages_.front().content;
}

bool Conversation::undo() {
  for (size_t i = messages_.size(); i-- > 0;) {
    if (messages_[i].role != "user") continue;
    messages_.resize(i);
    return true;
  }
  return false;
}

std::vector<TokenId> Conversation::prompt() const {
  const Tokenizer& tokenizer = *engine_.tokenizer();
  if (options_.raw) {
    std::string text;
    for (const ChatMessage& message : messages_) text += message.content;
    return raw_prompt(tokenizer, text);
  }
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const ChatMessage& message : messages_)
    json.push_back({{"role", message.role}, {"content", message.content}});
  TemplateInput input;
  input.messages_json = json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  input.kwargs_json = options_.template_kwargs;
  return chat_prompt_or_plain(tokenizer, chat_template(), input);
}

TextEnd Conversation::answer(const std::string& user,
                             const std::function<void(const std::string&)>& on_text) {
  messages_.push_back({"user", user});
  last_text_.clear();
  Request request;
  try {
    request.prompt = prompt();
    request.sampling = options_.sampling;
    request.max_tokens = options_.max_tokens;
    request.ignore_eos = !options_.sampling.banned.empty();
    request.route = "cli";
    const bool ids = std::getenv("MLXCEL_PRINT_TOKEN_IDS") != nullptr;
    if (ids) fmt::print(stderr, "prompt ids: {}\n", fmt::join(request.prompt, " "));
    std::vector<TokenId> generated;
    TextEnd end = generate(
        engine_, std::move(request), options_.stops,
        [&](const TextDelta& delta) {
          last_text_ += delta.text;
          if (ids)
            for (const Draw& draw : delta.draws) generated.push_back(draw.token);
          if (!delta.text.empty()) on_text(delta.text);
        },
        [] { return Interrupt::take(); });
    last_text_ += end.text;
    if (ids) {
      for (const Draw& draw : end.draws) generated.push_back(draw.token);
      fmt::print(stderr, "generated ids: {}\n", fmt::join(generated, " "));
    }
    if (!end.text.empty()) on_text(end.text);
    messages_.push_back({"assistant", last_text_});
    return end;
  } catch (...) {
    messages_.pop_back();
    throw;
  }
}

std::string statistics_line(const TextEnd& end) {
  const Timings& t = end.timings;
  const auto rate = [](int tokens, double ms) { return ms > 0 ? tokens * 1000.0 / ms : 0.0; };
  return fmt::format(
      "[Generated {} tokens in {:.2f} s, {:.1f} tok/s | prompt {} tokens, {} cached, {:.1f} tok/s | finish: "
      "{}]",
      t.generated_tokens, t.decode_ms / 1000, rate(t.generated_tokens, t.decode_ms), t.prompt_tokens,
      t.cached_tokens, rate(t.prompt_tokens - t.cached_tokens, t.prompt_ms), end.finish);
}

}  // namespace mlxcel::app
