// RAII over the strings and handles of bridge/include/mlxcel_bridge.h. For .cpp files of this room.
#pragma once

#include <mlxcel_bridge.h>

#include <memory>
#include <string>
#include <string_view>

namespace mlxcel::rust {

inline mlxcel_str borrow(std::string_view text) { return {text.data(), text.size()}; }

/// A string that Rust gave us.
class Text {
 public:
  Text() = default;
  explicit Text(mlxcel_text text) : text_(text) {}
  ~Text() { mlxcel_text_free(text_); }
  Text(const Text&) = delete;
  Text& operator=(const Text&) = delete;
  mlxcel_text* out() { return &text_; }
  std::string str() const { return text_.size ? std::string(text_.data, text_.size) : std::string(); }

 private:
  mlxcel_text text_{nullptr, 0};
};

struct Free {
  void operator()(mlxcel_tokenizer* p) const { mlxcel_tokenizer_free(p); }
  void operator()(mlxcel_stream* p) const { mlxcel_stream_free(p); }
  void operator()(mlxcel_grammar_tables* p) const { mlxcel_grammar_tables_free(p); }
  void operator()(mlxcel_grammar* p) const { mlxcel_grammar_free(p); }
  void operator()(mlxcel_matcher* p) const { mlxcel_matcher_free(p); }
  void operator()(mlxcel_template* p) const { mlxcel_template_free(p); }
};
template <class T>
using Handle = std::unique_ptr<T, Free>;

}  // namespace mlxcel::rust
