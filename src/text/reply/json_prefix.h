// JSON as it arrives: what can be said already of its compact text, so that arguments stream before they are
// whole. Keys, numbers and literals come out complete, strings as they grow, and never more than can be
// closed again. Agrees with LooseValue::json while the text is strict JSON. Owner: one per call. Thread: any
// one. Failure: broken(); what has come out stays the beginning of a valid value.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace mlxcel {

/// An object, read piece by piece.
class JsonPrefix {
 public:
  /// Reads on; what the compact text gains by it. Nothing comes before the first member's value begins.
  std::string feed(std::string_view text);
  bool broken() const { return state_ == State::broken; }
  bool complete() const { return state_ == State::done; }
  /// Bytes that were read when the first output came.
  size_t begun_at() const { return begun_at_; }
  /// What makes a valid value of everything that has come out.
  std::string closers() const;

 private:
  enum class State {
    start,      // before the object
    first_key,  // a key, or the end of the object
    key,        // a key, after a comma
    colon,
    value,
    first_value,  // a value, or the end of the array
    text,         // inside a string
    scalar,       // inside a number or a literal
    after_value,
    done,
    broken,
  };
  void step(char c);
  void begin_value(char c);
  void end_container(char c);
  void text_char(char c);
  void decoded(std::string_view bytes);
  void end_scalar();
  void give(std::string_view text);

  State state_ = State::start;
  std::vector<char> open_;                 // brackets, innermost last
  std::string pending_;                    // comma and key before a value that has not begun
  std::string out_;                        // of this feed()
  std::string word_;                       // key or scalar so far
  std::string escape_;                     // from the backslash on
  unsigned high_ = 0;                      // first half of a pair of surrogates
  bool in_key_ = false, in_text_ = false;  // a string that is a key; one that has come out in part
  size_t read_ = 0, begun_at_ = std::string::npos;
};

}  // namespace mlxcel
