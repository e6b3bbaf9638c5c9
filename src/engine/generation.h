// From a prompt to text: the caller's side of a request. Encodes, submits, turns tokens into text with stop
// strings and held-back characters. Used by the CLI (blocking) and the server (callback).
// Owner: the caller. Thread: the caller's; only the sink handed to Engine::submit runs on the model thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "engine/engine.h"

namespace mlxcel {

struct TextDelta {
  std::string text;         // may be empty (held back)
  std::vector<Draw> draws;  // the tokens behind this delta, in order (logprobs)
};
struct TextEnd {
  std::string text;  // last piece
  std::vector<Draw> draws;
  std::string finish;       // "stop", "length", "cancelled"
  std::string stop_string;  // which stop string, if one
  Timings timings;
  uint32_t seed = 0;
  bool truncated = false;  // as Finished has it
};
using TextEvent = std::variant<TextDelta, TextEnd, Scored, Progress, Failed>;

/// Converts engine events to text events. Not thread-safe: feed it from one thread at a time.
/// A token's draw comes with the first byte of its text that is sent; what a stop string swallows is not
/// sent.
class TextStream {
 public:
  /// `shown`: special tokens that appear in the text though the others do not (a wire format's marks).
  TextStream(std::shared_ptr<const Tokenizer> tokenizer, std::vector<std::string> stops,
             bool show_special = false, std::vector<TokenId> shown = {});
  ~TextStream();
  TextStream(TextStream&&) noexcept;
  /// Nothing, or one event. When a stop string matched, the result is a TextEnd, and the caller cancels
  /// the request; later events are ignored.
  std::optional<TextEvent> push(Event event);
  bool ended() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Blocking: calls `on_event` on the calling thread until the end, which it returns. Throws the error of
/// a Failed event. `cancelled` is polled between events (Ctrl-C); `shown` as TextStream has it.
TextEnd generate(Engine& engine, Request request, std::vector<std::string> stops,
                 const std::function<void(const TextDelta&)>& on_text,
                 const std::function<bool()>& cancelled = nullptr, std::vector<TokenId> shown = {});

}  // namespace mlxcel
