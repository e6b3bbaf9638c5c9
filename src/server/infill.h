// Prompts that ask for what stands between two texts, in the marks that the vocabulary has for it.
// Thread: any. Failure: Refusal 501 where it has none, invalid_request where a text contains one of them.
#pragma once

#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace mlxcel {

bool can_infill(const Tokenizer& tokenizer);
/// `suffix_first` (--spm-infill): suffix, prefix, middle instead of prefix, suffix, middle.
std::vector<TokenId> infill_tokens(const Tokenizer& tokenizer, const std::string& before,
                                   const std::string& after, bool suffix_first);

}  // namespace mlxcel
