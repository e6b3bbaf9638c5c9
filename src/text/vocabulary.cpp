#include "text/vocabulary.h"

#include <algorithm>
#include <array>
#include <unordered_map>

#include "base/error.h"

namespace mlxcel {

namespace {

std::vector<mlxcel_str> borrow_all(const std::vector<std::string>& strings) {
  std::vector<mlxcel_str> out;
  out.reserve(strings.size());
  for (const std::string& text : strings) out.push_back(rust::borrow(text));
  return out;
}

/// GPT-2's spelling of bytes: printable Latin-1 stands for itself, the others for U+0100 and up, in order.
std::array<std::string, 256> byte_spellings() {
  std::array<std::string, 256> out;
  int shifted = 0;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    const int point = printable ? byte : 256 + shifted++;
    if (point < 0x80) {
      out[static_cast<size_t>(byte)] = std::string(1, static_cast<char>(point));
    } else {
      out[static_cast<size_t>(byte)] = {static_cast<char>(0xC0 | point >> 6),
                                        static_cast<char>(0x80 | (point & 0x3F))};
    }
  }
  return out;
}

}  // namespace

std::unique_ptr<Tokenizer::Impl> build_tokenizer(const VocabularyFile& vocabulary, const std::string& where) {
  const auto tokens = borrow_all(vocabulary.tokens), merges = borrow_all(vocabulary.merges);
  mlxcel_vocabulary raw{};
  raw.model = rust::borrow(vocabulary.model);
  raw.pre = rust::borrow(vocabulary.pre);
  raw.tokens = tokens.data();
  raw.token_count = tokens.size();
  raw.scores = vocabulary.scores.empty() ? nullptr : vocabulary.scores.data();
  raw.types = vocabulary.kinds.empty() ? nullptr : vocabulary.kinds.data();
  raw.merges = merges.data();
  raw.merge_count = merges.size();
  raw.charsmap = rust::borrow(vocabulary.charsmap);
  raw.bos = vocabulary.bos;
  raw.eos = vocabulary.eos;
  raw.unk = vocabulary.unk;
  raw.sep = vocabulary.sep;
  raw.cls = vocabulary.cls;
  raw.special = vocabulary.special.data();
  raw.special_count = vocabulary.special.size();
  raw.add_bos = vocabulary.add_bos;
  raw.add_eos = vocabulary.add_eos;
  raw.add_space_prefix = vocabulary.add_space_prefix;
  raw.remove_extra_whitespaces = vocabulary.remove_extra_whitespaces;
  raw.space_as_suffix = vocabulary.space_as_suffix;
  raw.lowercase = vocabulary.lowercase;
  raw.strip_accents = vocabulary.strip_accents;

  auto impl = std::make_unique<Tokenizer::Impl>();
  rust::Text error;
  impl->handle.reset(mlxcel_tokenizer_from_vocabulary(&raw, error.out()));
  if (!impl->handle) fail(ErrorKind::bad_checkpoint, "{}{}{}", where, where.empty() ? "" : ": ", error.str());
  const auto known = [](int32_t id) { return id < 0 ? std::nullopt : std::optional<TokenId>(id); };
  impl->bos = known(mlxcel_tokenizer_bos(impl->handle.get()));
  impl->eos = known(mlxcel_tokenizer_eos(impl->handle.get()));
  return impl;
}

void add_byte_level_tokens(VocabularyFile& vocabulary, const std::vector<std::string>& ranked) {
  static const std::array<std::string, 256> kSpelling = byte_spellings();
  const auto spell = [](std::string_view bytes) {
    std::string out;
    for (const char byte : bytes) out += kSpelling[static_cast<unsigned char>(byte)];
    return out;
  };
  std::unordered_map<std::string_view, size_t> rank;
  rank.reserve(ranked.size());
  for (size_t i = 0; i < ranked.size(); ++i) rank.emplace(ranked[i], i);

  struct Split {
    size_t left, right, at;
  };
  std::vector<Split> splits;
  for (const std::string& token : ranked) {
    vocabulary.tokens.push_back(spell(token));
    splits.clear();
    const std::string_view whole = token;
    for (size_t at = 1; at < whole.size(); ++at) {
      const auto left = rank.find(whole.substr(0, at)), right = rank.find(whole.substr(at));
      if (left != rank.end() && right != rank.end()) splits.push_back({left->second, right->second, at});
    }
    std::sort(splits.begin(), splits.end(), [](const Split& a, const Split& b) {
      return a.left != b.left ? a.left < b.left : a.right < b.right;
    });
    for (const Split& split : splits)
      vocabulary.merges.push_back(spell(whole.substr(0, split.at)) + ' ' + spell(whole.substr(split.at)));
  }
}

}  // namespace mlxcel
