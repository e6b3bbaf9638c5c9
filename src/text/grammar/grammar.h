// What an answer must look like, and the tokens that keep it so. A Constraint is what a request says; a
// Grammar is compiled from it over one vocabulary; a Matcher is one sequence's place in a Grammar. Owner:
// Grammars belongs to the engine, a Grammar is shared and immutable, a Matcher belongs to its sequence and
// dies with it. Thread: Grammars and Grammar any; a Matcher one at a time.
// Failure: invalid_request naming the constraint's param and the place in its text; nothing is approximated.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace mlxcel {

struct Constraint {
  enum class Kind { json_object, json_schema, regex, gbnf, lark };
  Kind kind = Kind::json_object;
  std::string text = {};          // schema, pattern or grammar
  bool strict = false;            // json_schema: every object closed and complete, as OpenAI's `strict`
  std::string param = "grammar";  // the request's field, for errors
};

class Grammar;

/// How a request uses its grammar. The answer is free until `after` has been written (a reasoning block's
/// closing tag), then, where there are triggers, until one of them has: from then on the grammar holds.
struct GrammarUse {
  struct Trigger {
    enum class Kind { text, token };
    Kind kind = Kind::text;
    std::string text = {};  // the constrained part begins with it: it is the grammar's own beginning
    TokenId token = -1;
  };
  std::shared_ptr<const Grammar> grammar = nullptr;  // none: the answer is free
  std::string after = {};
  std::vector<Trigger> triggers = {};
};

/// One sequence's place in a grammar.
class Matcher {
 public:
  ~Matcher();
  Matcher(Matcher&&) noexcept;
  Matcher& operator=(Matcher&&) noexcept;
  /// Bit t of word t / 32: token t may come next; end tokens where the text may end. Valid until accept().
  std::span<const uint32_t> mask();
  /// Throws internal for a token that mask() does not have.
  void accept(TokenId token);
  /// Text instead of a token; false: the grammar does not go on like that, and its place stays.
  bool accept_text(std::string_view text);
  /// How many of these the grammar would take one after another (drafts). The place stays.
  size_t would_take(std::span<const TokenId> tokens);
  /// Nothing can follow.
  bool complete() const;

 private:
  friend class Grammar;
  struct Impl;
  explicit Matcher(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

class Grammar {
 public:
  ~Grammar();
  Matcher matcher() const;
  struct Impl;
  explicit Grammar(std::unique_ptr<Impl> impl);

 private:
  std::unique_ptr<Impl> impl_;
};

/// A vocabulary's tables, built when first needed, and the compiler over them.
class Grammars {
 public:
  /// `vocab_size`: the model's, which may be larger than the tokenizer's.
  Grammars(std::shared_ptr<const Tokenizer> tokenizer, int vocab_size, std::vector<TokenId> eos);
  ~Grammars();
  std::shared_ptr<const Grammar> compile(const Constraint& constraint) const;

 private:
  struct Tables;
  const Tables& tables() const;

  const std::shared_ptr<const Tokenizer> tokenizer_;
  const int vocab_size_;
  const std::vector<TokenId> eos_;
  mutable std::once_flag once_;
  mutable std::unique_ptr<const Tables> tables_;
};

/// A GBNF grammar as the Lark text with the same language. invalid_request naming line and column.
/// Token terminals `<name>` are looked up in `tokenizer` (may be null: then they are refused).
std::string gbnf_to_lark(std::string_view gbnf, const Tokenizer* tokenizer, const std::string& param);

/// Checks a schema against what is enforced, naming the place as a JSON pointer; gives it back in the form
/// that the compiler takes.
std::string checked_schema(const std::string& text, bool strict, const std::string& param);

/// The innermost part of a schema that `compiles` refuses, as a JSON pointer in quotes; empty where none does
/// alone.
std::string failing_place(const std::string& schema, const std::function<bool(const std::string&)>& compiles);

/// The text parts of a tool call in one wire format: `before` name `between` arguments `after`.
struct ToolFrame {
  std::string before, between, after;
  std::string separator = "\n";  // between two calls
};
struct ToolForm {
  std::string name;
  std::string parameters_json;  // a JSON schema; empty: any object
};
/// A grammar of one call (or, `many`, of one and more) to one of `tools`, in the frame of the wire format.
Constraint tool_call_constraint(std::span<const ToolForm> tools, const ToolFrame& frame, bool many,
                                const std::string& param);

}  // namespace mlxcel
