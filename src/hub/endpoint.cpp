#include "hub/endpoint.h"

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cstdlib>
#include <string_view>

#include "base/error.h"

namespace mlxcel {
namespace {

constexpr const char* kHub = "https://huggingface.co";

std::atomic<bool> offline_flag{false};

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

bool truthy(const std::string& value) {
  const std::string word = lower(value);
  return word == "1" || word == "true" || word == "yes" || word == "on";
}

}  // namespace

std::string url_origin(const std::string& url) {
  const auto scheme = url.find("://");
  if (scheme == std::string::npos) return "";
  const std::string name = lower(url.substr(0, scheme));
  if (name != "http" && name != "https") return "";
  const auto end = url.find_first_of("/?#", scheme + 3);
  std::string host = lower(url.substr(scheme + 3, end == std::string::npos ? end : end - scheme - 3));
  if (host.empty() || host.find('@') != std::string::npos) return "";
  const auto bracket = host.rfind(']');
  if (host.find(':', bracket == std::string::npos ? 0 : bracket) == std::string::npos)
    host += name == "https" ? ":443" : ":80";
  return name + "://" + host;
}

Endpoint hub_endpoint(const std::string& token) {
  Endpoint endpoint;
  endpoint.base = variable("HF_ENDPOINT");
  if (endpoint.base.empty()) endpoint.base = kHub;
  while (endpoint.base.ends_with('/')) endpoint.base.pop_back();
  if (url_origin(endpoint.base).empty() || endpoint.base.find_first_of("?# \t\r\n") != std::string::npos)
    fail(ErrorKind::invalid_request, "HF_ENDPOINT={}: expected an address such as https://mirror.example",
         endpoint.base);
  endpoint.token = token;
  for (const char* name : {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"})
    if (endpoint.token.empty()) endpoint.token = variable(name);
  if (endpoint.token.find_first_of("\r\n") != std::string::npos)
    fail(ErrorKind::invalid_request, "the access token has a line break in it");
  const bool secure = url_origin(endpoint.base).starts_with("https://");
  if (!endpoint.token.empty() && !secure && std::getenv("MLXCEL_ALLOW_INSECURE_ENDPOINT") == nullptr) {
    endpoint.token.clear();
    endpoint.token_withheld = true;
  }
  return endpoint;
}

bool offline() {
  static const bool from_environment = [] {
    const std::string word = variable("LLAMA_ARG_OFFLINE");
    return word == "on" || word == "enabled" || word == "true" || word == "1" ||
           truthy(variable("HF_HUB_OFFLINE"));
  }();
  return offline_flag.load() || from_environment;
}

void go_offline() { offline_flag = true; }

}  // namespace mlxcel
