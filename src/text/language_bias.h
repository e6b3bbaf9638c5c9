// --lang-bias: which tokens belong to which language, by the scripts of their characters, and what is added
// to their logits. Owner: values. Thread: any. Failure: invalid_request naming the language or the value.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace mlxcel {

struct LanguageBias {
  /// In order of priority: the first language listed wins a token that several share. Values finite or -inf.
  std::vector<std::pair<std::string, float>> languages;
  /// Also pieces of characters that can only begin characters of such a script; else those are left alone.
  bool strict = false;
  bool operator==(const LanguageBias&) const = default;
};

/// "ko=-inf,ja=-2.5"; languages as ISO 639-1 codes or script names ("han", "latin").
LanguageBias parse_language_bias(std::string_view text, const std::string& param = "lang-bias");
/// invalid_request for an unknown language, one given twice, NaN and +inf.
void check(const LanguageBias& bias, const std::string& param = "lang-bias");

/// Biases by token id; `tokens` are the bytes each id stands for.
std::vector<std::pair<int32_t, float>> token_biases(const LanguageBias& bias,
                                                    const std::vector<std::string>& tokens);

}  // namespace mlxcel
