#include "app/conversation.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "app/say.h"
#include "app/terminal.h"
#include "text/reply/reply_parser.h"

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

Prompt Conversation::prompt() const {
  const Tokenizer& tokenizer = *engine_.tokenizer();
  if (options_.raw) {
    std::string text;
    for (const ChatMessage& message : messages_) text += message.content;
    return prepare_raw(tokenizer, text);
  }
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const ChatMessage& message : messages_)
    json.push_back({{"role", message.role}, {"content", message.content}});
  TemplateInput input;
  input.messages_json = json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  input.kwargs_json = options_.template_kwargs;
  if (const ChatTemplate* own = chat_template()) return prepare_chat(tokenizer, own, input);
  return prepare_raw(tokenizer, plain_chat_text(input));
}

TextEnd Conversation::answer(const std::string& user, const OnPiece& on_piece) {
  messages_.push_back({"user", user});
  last_text_.clear();
  last_thought_.clear();
  try {
    TextEnd end = write(prompt(), on_piece);
    messages_.push_back({"assistant", last_text_});
    return end;
  } catch (...) {
    messages_.pop_back();
    throw;
  }
}

TextEnd Conversation::write(const Prompt& prepared, const OnPiece& on_piece) {
  constexpr size_t kTail = 256;
  constexpr int kSpare = 64;  // tokens of a forced end, and of an answer after it
  const Tokenizer& tokenizer = *engine_.tokenizer();
  const auto format = reply_format(chat_template() ? chat_template()->source() : std::string());
  ReplyOptions reply{.format = format, .tools = nullptr};
  reply.thought = options_.raw ? ThoughtMode::keep : ThoughtMode::split;
  reply.prompt_tail = prepared.text.substr(prepared.text.size() - std::min(prepared.text.size(), kTail));
  ReplyParser parser(std::move(reply));
  std::vector<TokenId> shown;
  for (const std::string& mark : format->marks)
    if (const auto id = tokenizer.token_id(mark); id && !options_.raw) shown.push_back(*id);

  int thinking = 0;  // tokens
  const auto take = [&](const std::vector<ReplyPiece>& pieces) {
    for (const ReplyPiece& piece : pieces) {
      if (piece.kind == ReplyPiece::Kind::call || piece.text.empty()) continue;
      const bool thought = piece.kind == ReplyPiece::Kind::thought;
      (thought ? last_thought_ : last_text_) += piece.text;
      on_piece(piece.text, thought);
    }
  };
  const auto spent = [&] {
    return options_.thought_budget >= 0 && parser.in_thought() && thinking >= options_.thought_budget;
  };

  Request request;
  request.prompt = prepared.tokens;
  request.sampling = options_.sampling;
  request.max_tokens = options_.max_tokens;
  request.ignore_eos = options_.ignore_eos;
  request.route = "cli";
  request.grammar.grammar = options_.grammar;
  const bool ids = std::getenv("MLXCEL_PRINT_TOKEN_IDS") != nullptr;
  if (ids) say("prompt ids: {}\n", fmt::join(request.prompt, " "));
  std::vector<TokenId> generated;
  std::optional<Timings> before;
  while (true) {
    // A thought that has had its tokens is ended for the model, which goes on from there.
    if (spent()) {
      const std::string text = options_.budget_message + parser.thought_end();
      const auto forced = tokenizer.encode(text, false);
      request.prompt.insert(request.prompt.end(), forced.begin(), forced.end());
      take(parser.push(text));
    }
    request.grammar.after =
        options_.grammar && parser.in_thought() && !format->harmony ? parser.close_mark() : std::string();
    const size_t begun = generated.size();
    bool cut = false;
    TextEnd end = generate(
        engine_, request, options_.stops,
        [&](const TextDelta& delta) {
          if (cut) return;  // what was still under way when the thought was ended
          const bool thinks = parser.in_thought();
          for (const Draw& draw : delta.draws) generated.push_back(draw.token);
          take(parser.push(delta.text));
          if (thinks || parser.in_thought()) thinking += static_cast<int>(delta.draws.size());
          cut = spent();
        },
        // Nobody reads what a stdout does not take.
        [&] { return cut || Interrupt::take() || std::ferror(stdout) != 0; }, shown);
    if (!cut) {
      for (const Draw& draw : end.draws) generated.push_back(draw.token);
      take(parser.push(end.text));
    }
    if (before) {
      before->decode_ms += end.timings.decode_ms + end.timings.prompt_ms;
      end.timings = *before;
    }
    end.timings.generated_tokens = std::max(end.timings.generated_tokens, static_cast<int>(generated.size()));
    const int used = static_cast<int>(generated.size() - begun);
    const bool room = static_cast<int>(request.prompt.size()) + used + kSpare < engine_.context();
    const bool more =
        room && (options_.max_tokens < 0 || static_cast<int>(generated.size()) < options_.max_tokens);
    if (cut && more) {
      before = end.timings;
      request.sampling.seed = end.seed;
      if (request.max_tokens > 0) request.max_tokens -= used;
      request.prompt.insert(request.prompt.end(), generated.begin() + static_cast<std::ptrdiff_t>(begun),
                            generated.end());
      continue;
    }
    if (cut) end.finish = "length";
    take(parser.finish(end.finish == "stop"));
    if (ids) say("generated ids: {}\n", fmt::join(generated, " "));
    return end;
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

std::string speculation_line(const TextEnd& end, bool lookup) {
  const Timings& t = end.timings;
  const auto over = [](int part, int whole) { return whole > 0 ? static_cast<double>(part) / whole : 0.0; };
  std::vector<std::string> places;
  for (size_t i = 0; i < DraftPlaces::kMost && t.draft_places.tested[i] > 0; ++i)
    places.push_back(fmt::format("{:.3f}", over(static_cast<int>(t.draft_places.accepted[i]),
                                                static_cast<int>(t.draft_places.tested[i]))));
  return fmt::format(
      "{} rounds={} proposed={} positions_tested={} accepted={} per_position_acceptance=[{}] "
      "acceptance_rate={:.3f} mean_accepted_len={:.2f}",
      lookup ? "[Prompt lookup]" : "[Speculative acceptance] rule=match", t.draft_rounds, t.drafted,
      t.draft_places.all_tested(), t.accepted, fmt::join(places, ","), over(t.accepted, t.drafted),
      over(t.accepted, t.draft_rounds));
}

}  // namespace mlxcel::app
