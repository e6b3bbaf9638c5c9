// --lang-bias and --lang-bias-config, read and checked before any model is touched.
#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <charconv>
#include <limits>

#include "app/flags/flag.h"

namespace mlxcel::app {
namespace {

constexpr size_t kMostFile = size_t{1} << 20;
constexpr const char* kFlag = "--lang-bias-config";

float bias_of(const YAML::Node& node, const std::string& language) {
  const std::string text = node.IsScalar() ? node.Scalar() : "";
  if (text == "-inf" || text == "-.inf") return -std::numeric_limits<float>::infinity();
  float value = 0;
  const auto end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, value);
  if (text.empty() || parsed.ec != std::errc{} || parsed.ptr != end)
    throw UsageError(
        fmt::format("{}: bias of {}: expected a number or -inf, found \"{}\"", kFlag, language, text));
  return value;
}

LanguageBias from_file(const std::string& path) {
  LanguageBias out;
  try {
    const YAML::Node root = YAML::Load(text_file(path, kFlag, kMostFile));
    if (!root.IsMap() || !root["bias"] || !root["bias"].IsMap())
      throw UsageError(fmt::format(
          "{} {}: expected `policy: conservative|strict` and `bias:` with LANG: VALUE", kFlag, path));
    for (const auto& entry : root) {
      const std::string key = entry.first.as<std::string>();
      if (key != "policy" && key != "bias")
        throw UsageError(
            fmt::format("{} {}: unknown field \"{}\"; expected policy and bias", kFlag, path, key));
    }
    const std::string policy = root["policy"] ? root["policy"].as<std::string>() : "conservative";
    if (policy != "conservative" && policy != "strict")
      throw UsageError(fmt::format("{} {}: policy {}: expected conservative or strict", kFlag, path, policy));
    out.strict = policy == "strict";
    for (const auto& entry : root["bias"]) {
      const std::string language = entry.first.as<std::string>();
      out.languages.emplace_back(language, bias_of(entry.second, language));
    }
  } catch (const YAML::Exception& error) {
    throw UsageError(fmt::format("{} {}: line {}: {}", kFlag, path, error.mark.line + 1, error.msg));
  }
  return out;
}

}  // namespace

void read_language_bias(FlagState& state) {
  if (state.lang_bias.empty() && state.lang_bias_file.empty()) return;
  if (!state.lang_bias.empty() && !state.lang_bias_file.empty())
    throw UsageError("--lang-bias and --lang-bias-config: give one of them");
  try {
    const bool file = state.lang_bias.empty();
    LanguageBias bias =
        file ? from_file(state.lang_bias_file) : parse_language_bias(state.lang_bias, "--lang-bias");
    check(bias, file ? kFlag : "--lang-bias");
    state.serve.language_bias = std::move(bias);
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
}

}  // namespace mlxcel::app
