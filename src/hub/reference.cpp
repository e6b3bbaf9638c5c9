#include "hub/reference.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <string_view>

#include "base/error.h"

namespace mlxcel {
namespace {

bool is_name(std::string_view text) {
  if (text.empty() || text == "." || text.find("..") != std::string_view::npos) return false;
  return std::all_of(text.begin(), text.end(),
                     [](unsigned char c) { return std::isalnum(c) || c == '.' || c == '_' || c == '-'; });
}

std::string default_org() {
  const char* value = std::getenv("MLXCEL_DEFAULT_ORG");
  const std::string org = value ? value : "";
  if (org.empty()) return "mlx-community";
  if (!is_name(org))
    fail(ErrorKind::invalid_request,
         "MLXCEL_DEFAULT_ORG={}: expected one owner name of letters, digits, . _ -", org);
  return org;
}

}  // namespace

Reference parse_reference(const std::string& text) {
  std::error_code error;
  if (!text.empty() && std::filesystem::exists(text, error)) {
    Reference reference;
    reference.text = text;
    reference.path = text;
    return reference;
  }
  return parse_repository(text);
}

Reference parse_repository(const std::string& text) {
  Reference reference;
  reference.text = text;
  std::string rest = text;
  if (const auto colon = rest.find(':'); colon != std::string::npos) {
    reference.quant = rest.substr(colon + 1);
    rest.resize(colon);
    if (!is_name(reference.quant)) rest.clear();
  }
  if (const auto slash = rest.find('/'); slash != std::string::npos) {
    reference.owner = rest.substr(0, slash);
    reference.name = rest.substr(slash + 1);
  } else {
    reference.name = rest;
    reference.owner = rest == kDefaultModel ? kDefaultModelOwner : default_org();
  }
  if (!is_name(reference.owner) || !is_name(reference.name))
    fail(
        ErrorKind::invalid_request,
        "{}: no such path, and not a model reference; expected an existing folder or .gguf file, owner/name, "
        "owner/name:QUANT or a bare name, of letters, digits, '.', '_' and '-' (no URLs, no '..')",
        text.empty() ? "\"\"" : text);
  return reference;
}

Reference download_source(const Reference& reference) {
  Reference source = reference;
  if (reference.is_default_model()) source.owner = default_org();
  return source;
}

}  // namespace mlxcel
