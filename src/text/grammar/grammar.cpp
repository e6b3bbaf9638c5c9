#include "text/grammar/grammar.h"

#include "base/error.h"
#include "text/rust.h"

namespace mlxcel {
namespace {

constexpr size_t kMaxPattern = size_t{16} << 10;
constexpr size_t kMaxGrammar = size_t{256} << 10;

void check_size(const Constraint& c, const char* what, size_t most) {
  if (c.text.size() > most)
    fail_param(c.param, "{}: a {} of {} bytes, at most {} are taken", c.param, what, c.text.size(), most);
  if (c.text.empty()) fail_param(c.param, "{}: the {} is empty", c.param, what);
}

}  // namespace

struct Grammars::Tables {
  rust::Handle<mlxcel_grammar_tables> handle;
};

struct Grammar::Impl {
  rust::Handle<mlxcel_grammar> handle;
  size_t words = 0;
};

struct Matcher::Impl {
  rust::Handle<mlxcel_matcher> handle;
  std::vector<uint32_t> words;
  bool current = false;  // `words` is of this place
};

Matcher::Matcher(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Matcher::~Matcher() = default;
Matcher::Matcher(Matcher&&) noexcept = default;
Matcher& Matcher::operator=(Matcher&&) noexcept = default;

std::span<const uint32_t> Matcher::mask() {
  if (!impl_->current) {
    rust::Text error;
    if (!mlxcel_matcher_mask(impl_->handle.get(), impl_->words.data(), impl_->words.size(), error.out()))
      fail(ErrorKind::internal, "the grammar went wrong: {}", error.str());
    impl_->current = true;
  }
  return impl_->words;
}

void Matcher::accept(TokenId token) {
  rust::Text error;
  impl_->current = false;
  if (!mlxcel_matcher_accept(impl_->handle.get(), static_cast<uint32_t>(token), error.out()))
    fail(ErrorKind::internal, "the grammar went wrong at token {}: {}", token, error.str());
}

bool Matcher::accept_text(std::string_view text) {
  rust::Text error;
  bool fits = false;
  impl_->current = false;
  if (!mlxcel_matcher_accept_text(impl_->handle.get(), rust::borrow(text), &fits, error.out()))
    fail(ErrorKind::internal, "the grammar went wrong: {}", error.str());
  return fits;
}

size_t Matcher::would_take(std::span<const TokenId> tokens) {
  const std::vector<uint32_t> ids(tokens.begin(), tokens.end());
  rust::Text error;
  size_t taken = 0;
  if (!mlxcel_matcher_would_take(impl_->handle.get(), ids.data(), ids.size(), &taken, error.out()))
    fail(ErrorKind::internal, "the grammar went wrong: {}", error.str());
  return taken;
}

bool Matcher::complete() const { return mlxcel_matcher_complete(impl_->handle.get()); }

Grammar::Grammar(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Grammar::~Grammar() = default;

Matcher Grammar::matcher() const {
  rust::Text error;
  auto made = std::make_unique<Matcher::Impl>();
  made->handle.reset(mlxcel_matcher_new(impl_->handle.get(), error.out()));
  if (!made->handle) fail(ErrorKind::internal, "the grammar went wrong: {}", error.str());
  made->words.resize(impl_->words);
  return Matcher(std::move(made));
}

Grammars::Grammars(std::shared_ptr<const Tokenizer> tokenizer, int vocab_size, std::vector<TokenId> eos)
    : tokenizer_(std::move(tokenizer)), vocab_size_(vocab_size), eos_(std::move(eos)) {}
Grammars::~Grammars() = default;

const Grammars::Tables& Grammars::tables() const {
  std::call_once(once_, [&] {
    const auto count = static_cast<size_t>(vocab_size_);
    std::vector<std::string> bytes(count);
    std::vector<mlxcel_str> words(count);
    const std::unique_ptr<bool[]> special(new bool[count]());
    for (size_t i = 0; i < count; ++i) {
      const auto id = static_cast<TokenId>(i);
      special[i] = tokenizer_->is_special(id);
      bytes[i] = special[i] ? tokenizer_->token_text(id) : tokenizer_->token_bytes(id);
      words[i] = rust::borrow(bytes[i]);
    }
    const std::vector<uint32_t> eos(eos_.begin(), eos_.end());
    rust::Text error;
    auto made = std::make_unique<Tables>();
    made->handle.reset(
        mlxcel_grammar_tables_new(words.data(), special.get(), count, eos.data(), eos.size(), error.out()));
    if (!made->handle)
      fail(ErrorKind::unsupported, "this model's answers cannot be constrained: {}", error.str());
    tables_ = std::move(made);
  });
  return *tables_;
}

std::shared_ptr<const Grammar> Grammars::compile(const Constraint& c) const {
  if (!tokenizer_) fail(ErrorKind::unsupported, "{}: this model has no tokenizer", c.param);
  std::string text = c.text;
  auto kind = MLXCEL_GRAMMAR_LARK;
  const char* what = "grammar";
  switch (c.kind) {
    case Constraint::Kind::json_object:
      text = R"({"type":"object"})";
      kind = MLXCEL_GRAMMAR_JSON_SCHEMA;
      break;
    case Constraint::Kind::json_schema:
      text = checked_schema(c.text, c.strict, c.param);
      kind = MLXCEL_GRAMMAR_JSON_SCHEMA;
      what = "schema";
      break;
    case Constraint::Kind::regex:
      check_size(c, "pattern", kMaxPattern);
      kind = MLXCEL_GRAMMAR_REGEX;
      what = "pattern";
      break;
    case Constraint::Kind::gbnf:
      check_size(c, "grammar", kMaxGrammar);
      text = gbnf_to_lark(c.text, tokenizer_.get(), c.param);
      break;
    case Constraint::Kind::lark:
      check_size(c, "grammar", kMaxGrammar);
      break;
  }
  auto impl = std::make_unique<Grammar::Impl>();
  impl->words = (static_cast<size_t>(vocab_size_) + 31) / 32;
  rust::Text error;
  impl->handle.reset(mlxcel_grammar_new(tables().handle.get(), kind, rust::borrow(text), error.out()));
  if (!impl->handle) {
    std::string place;
    if (c.kind == Constraint::Kind::json_schema)
      place = failing_place(text, [&](const std::string& part) {
        rust::Text ignored;
        const rust::Handle<mlxcel_grammar> made(
            mlxcel_grammar_new(tables().handle.get(), kind, rust::borrow(part), ignored.out()));
        return made != nullptr;
      });
    fail_param(c.param, "{}: the {} cannot be enforced{}: {}", c.param, what,
               place.empty() ? "" : " at " + place, error.str());
  }
  return std::make_shared<const Grammar>(std::move(impl));
}

}  // namespace mlxcel
