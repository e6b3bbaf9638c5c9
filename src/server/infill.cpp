#include "server/infill.h"

#include <array>
#include <optional>

#include "api/error.h"

namespace mlxcel {
namespace {

/// The tokens that frame a gap, as the families name them.
std::optional<TokenId> fim_token(const Tokenizer& tokenizer, int which) {
  static constexpr std::array<std::array<const char*, 8>, 3> kNames = {{
      {"<|fim_prefix|>", "<fim_prefix>", "<fim-prefix>", "<｜fim▁begin｜>", "▁<PRE>", "<PRE>", "[PREFIX]",
       "<|code_prefix|>"},
      {"<|fim_suffix|>", "<fim_suffix>", "<fim-suffix>", "<｜fim▁hole｜>", "▁<SUF>", "<SUF>", "[SUFFIX]",
       "<|code_suffix|>"},
      {"<|fim_middle|>", "<fim_middle>", "<fim-middle>", "<｜fim▁end｜>", "▁<MID>", "<MID>", "[MIDDLE]",
       "<|code_middle|>"},
  }};
  for (const char* name : kNames[static_cast<size_t>(which)]) {
    if (const auto id = tokenizer.token_id(name)) return id;
  }
  return std::nullopt;
}

}  // namespace

bool can_infill(const Tokenizer& tokenizer) {
  return fim_token(tokenizer, 0) && fim_token(tokenizer, 1) && fim_token(tokenizer, 2);
}

std::vector<TokenId> infill_tokens(const Tokenizer& tokenizer, const std::string& before,
                                   const std::string& after, bool suffix_first) {
  if (!can_infill(tokenizer))
    refuse(501, "not_supported_error", "infill: this model's vocabulary has no fill-in-the-middle tokens");
  std::array<TokenId, 3> marks{};
  for (int i = 0; i < 3; ++i) {
    marks[static_cast<size_t>(i)] = *fim_token(tokenizer, i);
    const std::string text = tokenizer.token_text(marks[static_cast<size_t>(i)]);
    for (const auto* part : {&before, &after}) {
      if (part->find(text) != std::string::npos)
        fail_param("input_prefix", "infill: the text contains the mark {}", text);
    }
  }
  std::vector<TokenId> out;
  if (tokenizer.adds_bos() && tokenizer.bos()) out.push_back(*tokenizer.bos());
  auto add = [&](TokenId mark, const std::string& text) {
    out.push_back(mark);
    const auto ids = tokenizer.encode(text, false, false);
    out.insert(out.end(), ids.begin(), ids.end());
  };
  if (suffix_first) add(marks[1], after);
  add(marks[0], before);
  if (!suffix_first) add(marks[1], after);
  out.push_back(marks[2]);
  return out;
}

}  // namespace mlxcel
