#include "engine/generation.h"

#include <algorithm>
#include <deque>

#include "base/channel.h"
#include "text/stop_matcher.h"

namespace mlxcel {

struct TextStream::Impl {
  // A draw waits until text of its own has been sent; `start` is where that text begins.
  struct Held {
    Draw draw;
    size_t start;
  };

  Impl(std::shared_ptr<const Tokenizer> t, std::vector<std::string> stops, bool show_special,
       std::vector<TokenId> marks)
      : tokenizer(std::move(t)),
        shown(std::move(marks)),
        detokenizer(tokenizer, !show_special && shown.empty()),
        matcher(std::move(stops)) {
    hides = !show_special && !shown.empty();
  }

  const std::shared_ptr<const Tokenizer> tokenizer;
  const std::vector<TokenId> shown;
  bool hides = false;  // special tokens that are not in `shown`
  Detokenizer detokenizer;
  StopMatcher matcher;
  std::deque<Held> held;
  size_t made = 0;  // bytes the tokens so far stand for
  size_t sent = 0;  // bytes handed out
  bool ended = false;

  std::vector<Draw> release(bool all) {
    std::vector<Draw> draws;
    while (!held.empty() && (all || held.front().start < sent)) {
      draws.push_back(std::move(held.front().draw));
      held.pop_front();
    }
    return draws;
  }

  TextEnd end(std::string text, const char* finish, std::string stop, const Timings& timings, uint32_t seed) {
    ended = true;
    sent += text.size();
    TextEnd result;
    result.text = std::move(text);
    // What a stop string swallowed is not sent, nor are its tokens.
    result.draws = release(stop.empty());
    result.finish = finish;
    result.stop_string = std::move(stop);
    result.timings = timings;
    result.seed = seed;
    return result;
  }

  std::optional<TextEvent> push(Token token) {
    const TokenId id = token.draw.token;
    const bool hidden =
        hides && tokenizer->is_special(id) && std::find(shown.begin(), shown.end(), id) == shown.end();
    const std::string piece = hidden ? std::string() : detokenizer.push(id);
    held.push_back({std::move(token.draw), made});
    made += piece.size();
    StopMatcher::Result match = matcher.push(piece);
    if (match.stopped)
      return end(std::move(match.text), "stop", std::move(match.stop), token.timings, token.seed);
    sent += match.text.size();
    TextDelta delta;
    delta.text = std::move(match.text);
    delta.draws = release(false);
    if (delta.text.empty() && delta.draws.empty()) return std::nullopt;
    return delta;
  }

  TextEvent push(const Finished& finished) {
    StopMatcher::Result match = matcher.push(detokenizer.finish());
    if (match.stopped)
      return end(std::move(match.text), "stop", std::move(match.stop), finished.timings, finished.seed);
    TextEnd last =
        end(match.text + matcher.finish(), to_string(finished.reason), "", finished.timings, finished.seed);
    last.truncated = finished.truncated;
    return last;
  }
};

TextStream::TextStream(std::shared_ptr<const Tokenizer> tokenizer, std::vector<std::string> stops,
                       bool show_special, std::vector<TokenId> shown)
    : impl_(std::make_unique<Impl>(std::move(tokenizer), std::move(stops), show_special, std::move(shown))) {}
TextStream::~TextStream() = default;
TextStream::TextStream(TextStream&&) noexcept = default;

bool TextStream::ended() const { return impl_->ended; }

std::optional<TextEvent> TextStream::push(Event event) {
  if (impl_->ended) return std::nullopt;
  if (auto* token = std::get_if<Token>(&event)) return impl_->push(std::move(*token));
  if (auto* finished = std::get_if<Finished>(&event)) return impl_->push(*finished);
  if (auto* scored = std::get_if<Scored>(&event)) return TextEvent(std::move(*scored));
  if (auto* progress = std::get_if<Progress>(&event)) return TextEvent(*progress);
  impl_->ended = true;
  return TextEvent(std::get<Failed>(std::move(event)));
}

TextEnd generate(Engine& engine, Request request, std::vector<std::string> stops,
                 const std::function<void(const TextDelta&)>& on_text, const std::function<bool()>& cancelled,
                 std::vector<TokenId> shown) {
  constexpr auto kPoll = std::chrono::milliseconds(50);
  TextStream stream(engine.tokenizer(), std::move(stops), false, std::move(shown));
  // Shared with the sink, which may outlive this call by the steps a cancelled request still takes.
  auto channel = std::make_shared<Channel<Event>>();
  const Handle handle =
      engine.submit(std::move(request), [channel](Event event) { channel->push(std::move(event)); });
  bool asked = false;
  while (true) {
    if (!asked && cancelled && cancelled()) {
      handle.cancel();
      asked = true;
    }
    auto event = channel->pop_for(kPoll);
    if (!event) continue;
    auto text = stream.push(std::move(*event));
    if (!text) continue;
    if (auto* failed = std::get_if<Failed>(&*text)) throw failed->error;
    if (auto* delta = std::get_if<TextDelta>(&*text)) {
      try {
        if (on_text) on_text(*delta);
      } catch (...) {
        handle.cancel();
        throw;
      }
    }
    if (auto* end = std::get_if<TextEnd>(&*text)) {
      handle.cancel();  // a stop string ends the text before the engine knows
      return std::move(*end);
    }
  }
}

}  // namespace mlxcel
