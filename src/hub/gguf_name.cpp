#include "hub/gguf_name.h"

#include <algorithm>
#include <cctype>
#include <regex>

namespace mlxcel {
namespace {

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

std::string folder_of(const std::string& path) {
  const auto slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash);
}

bool is_gguf(const std::string& path) { return lower(path).ends_with(".gguf"); }

}  // namespace

std::string gguf_stem(const std::string& path) {
  static const std::regex part("^(.*)-[0-9]{5}-of-[0-9]{5}$");
  std::string stem = path.substr(path.rfind('/') + 1);
  if (is_gguf(stem)) stem.resize(stem.size() - 5);
  std::smatch match;
  if (std::regex_match(stem, match, part)) return match[1].str();
  return stem;
}

std::string gguf_quant(const std::string& path) {
  static const std::regex word("(?:^|[.\\-_])((?:UD-)?(?:IQ|TQ|Q)[0-9][A-Z0-9_]*|F16|F32|BF16|MXFP4)$",
                               std::regex::icase);
  const std::string stem = gguf_stem(path);
  std::smatch match;
  return std::regex_search(stem, match, word) ? match[1].str() : "";
}

bool is_gguf_model(const std::string& path) {
  const std::string name = lower(path.substr(path.rfind('/') + 1));
  return is_gguf(name) && !name.starts_with(".") && name.find("mmproj") == std::string::npos &&
         name.find("imatrix") == std::string::npos;
}

std::string pick_gguf(const std::vector<std::string>& paths, const std::string& quant) {
  std::vector<std::string> models;
  for (const std::string& path : paths)
    if (is_gguf_model(path)) models.push_back(path);
  std::sort(models.begin(), models.end());
  const std::string want = lower(quant.empty() ? "Q4_K_M" : quant);
  for (const std::string& path : models)
    if (lower(gguf_quant(path)) == want) return path;
  if (quant.empty()) return models.empty() ? "" : models.front();
  for (const std::string& path : models)
    if (lower(gguf_stem(path)).find(want) != std::string::npos) return path;
  return "";
}

std::vector<std::string> gguf_parts(const std::vector<std::string>& paths, const std::string& path) {
  std::vector<std::string> parts;
  if (!is_gguf(path)) return parts;
  for (const std::string& other : paths)
    if (is_gguf(other) && folder_of(other) == folder_of(path) && gguf_stem(other) == gguf_stem(path))
      parts.push_back(other);
  std::sort(parts.begin(), parts.end());
  if (parts.empty()) parts.push_back(path);
  return parts;
}

}  // namespace mlxcel
