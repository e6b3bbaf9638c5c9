#include "server/access.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <algorithm>
#include <cctype>

#include "api/error.h"

namespace mlxcel {
namespace {

/// http://localhost:3000, http://127.0.0.1, http://[::1]:8080
bool is_local_origin(std::string_view origin) {
  const auto scheme = origin.find("://");
  if (scheme == std::string_view::npos) return false;
  std::string_view host = origin.substr(scheme + 3);
  if (host.starts_with("[::1]")) return host.size() == 5 || host[5] == ':';
  host = host.substr(0, host.find(':'));
  return host == "localhost" || host == "127.0.0.1";
}

bool is_header_safe(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) >= 0x20 && c != 0x7F; });
}

}  // namespace

std::string sha256(std::string_view text) {
  std::string digest(SHA256_DIGEST_LENGTH, '\0');
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(),
         reinterpret_cast<unsigned char*>(digest.data()));
  return digest;
}

std::string hex(std::string_view bytes) {
  static constexpr char digits[] = "0123456789abcdef";
  std::string out;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    out += digits[byte >> 4];
    out += digits[byte & 15];
  }
  return out;
}

std::vector<std::string> split_keys(std::string_view list) {
  std::vector<std::string> out;
  std::string field;
  bool quoted = false;
  for (size_t i = 0; i <= list.size(); ++i) {
    if (i == list.size() || (list[i] == ',' && !quoted)) {
      if (!field.empty()) out.push_back(std::move(field));
      field.clear();
    } else if (list[i] == '"' && quoted && i + 1 < list.size() && list[i + 1] == '"') {
      field += '"';
      ++i;
    } else if (list[i] == '"' && (quoted || field.empty())) {
      quoted = !quoted;
    } else {
      field += list[i];
    }
  }
  return out;
}

bool is_origin(std::string_view text) {
  const auto scheme = text.find("://");
  if (scheme == 0 || scheme == std::string_view::npos) return false;
  for (const char c : text.substr(0, scheme)) {
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '+' && c != '-' && c != '.') return false;
  }
  std::string_view host = text.substr(scheme + 3);
  std::string_view port;
  if (host.starts_with('[')) {
    const auto end = host.find(']');
    if (end == std::string_view::npos) return false;
    port = host.substr(end + 1);
    host = host.substr(1, end - 1);
    if (host.find_first_not_of("0123456789abcdefABCDEF:.") != std::string_view::npos) return false;
  } else {
    const auto colon = host.find(':');
    if (colon != std::string_view::npos) port = host.substr(colon);
    host = host.substr(0, colon);
    for (const char c : host) {
      if (!std::isalnum(static_cast<unsigned char>(c)) && c != '-' && c != '.') return false;
    }
  }
  if (host.empty()) return false;
  if (port.empty()) return true;
  return port.size() > 1 && port.size() <= 6 && port[0] == ':' &&
         port.find_first_not_of("0123456789", 1) == std::string_view::npos;
}

Access::Access(AccessOptions options) : options_(std::move(options)) {
  for (const auto& key : options_.keys) hashes_.push_back(sha256(key));
}

void Access::authenticate(HttpRequest& request) const {
  if (hashes_.empty()) return;
  std::string_view presented = request.header("x-api-key");
  if (presented.empty()) {
    const std::string_view authorization = request.header("authorization");
    static constexpr std::string_view kBearer = "bearer ";
    const bool bearer = authorization.size() > kBearer.size() &&
                        std::equal(kBearer.begin(), kBearer.end(), authorization.begin(), [](char a, char b) {
                          return a == std::tolower(static_cast<unsigned char>(b));
                        });
    if (bearer) presented = authorization.substr(kBearer.size());
  }
  // Digests have one length, and every key is compared: time tells nothing about any of them.
  const std::string digest = sha256(presented);
  int match = 0;
  for (const auto& known : hashes_)
    match |= CRYPTO_memcmp(known.data(), digest.data(), digest.size()) == 0 ? 1 : 0;
  if (presented.empty() || match == 0) refuse(401, "authentication_error", "Invalid API Key");
  request.key_label = hex(digest.substr(0, 4));
}

void Access::check_origin(const HttpRequest& request) const {
  if (options_.allowed_origins.empty()) return;
  const auto origin = request.header("origin");
  if (origin.empty()) return;
  const auto& list = options_.allowed_origins;
  if (std::find(list.begin(), list.end(), origin) == list.end()) {
    refuse(403, "permission_error", "requests from the origin {} are not allowed", origin.substr(0, 200));
  }
}

void Access::check_host(const HttpRequest& request) const {
  if (!options_.check_host) return;
  std::string host(request.header("host"));
  if (host.empty() || host.starts_with('[')) return;  // HTTP/1.0, or an address
  if (const auto colon = host.rfind(':'); colon != std::string::npos) host.resize(colon);
  while (host.ends_with('.')) host.pop_back();
  std::transform(host.begin(), host.end(), host.begin(), [](unsigned char c) { return std::tolower(c); });
  // Nobody outside can make a name without a dot resolve; containers call each other so.
  if (host.find('.') == std::string::npos) return;
  if (host.find_first_not_of("0123456789.") == std::string::npos) return;
  for (const char* suffix : {".localhost", ".local", ".internal"}) {
    if (host.ends_with(suffix)) return;
  }
  const auto& list = options_.allowed_hosts;
  if (std::find(list.begin(), list.end(), host) != list.end()) return;
  refuse(403, "permission_error", "requests for the host {} are not allowed; see --allowed-hosts",
         host.substr(0, 200));
}

std::optional<std::string> Access::allowed_origin(const HttpRequest& request) const {
  const std::string origin(request.header("origin"));
  if (!options_.allowed_origins.empty()) {
    const auto& list = options_.allowed_origins;
    if (std::find(list.begin(), list.end(), origin) == list.end()) return std::nullopt;
    return origin;
  }
  if (options_.cors_origins == "*") {
    if (!options_.cors_credentials) return "*";
    if (origin.empty() || !is_header_safe(origin)) return std::nullopt;
    return origin;
  }
  if (options_.cors_origins == "localhost") {
    if (!is_local_origin(origin) || !is_header_safe(origin)) return std::nullopt;
    return origin;
  }
  if (options_.cors_origins.empty()) return std::nullopt;
  return options_.cors_origins;
}

void Access::add_cors(const HttpRequest& request, HttpResponse& response) const {
  response.headers.emplace_back("Vary", "Origin");
  if (request.header("origin").empty()) return;
  const auto origin = allowed_origin(request);
  if (!origin) return;
  response.headers.emplace_back("Access-Control-Allow-Origin", *origin);
  if (options_.cors_credentials && *origin != "*") {
    response.headers.emplace_back("Access-Control-Allow-Credentials", "true");
  }
  response.headers.emplace_back("Access-Control-Expose-Headers", "X-Request-Id, X-Mlxcel-Ignored-Fields");
}

HttpResponse Access::preflight(const HttpRequest& request, const std::string& allow) const {
  HttpResponse out;
  out.status = 204;
  out.content_type.clear();
  if (!allow.empty()) out.headers.emplace_back("Allow", allow);
  if (request.header("access-control-request-method").empty()) return out;
  out.headers.emplace_back("Access-Control-Allow-Methods", options_.cors_methods);
  // With credentials a browser reads '*' as a header of that name, so the wish itself is echoed.
  const std::string wanted(request.header("access-control-request-headers"));
  const bool echo =
      options_.cors_headers == "*" && options_.cors_credentials && !wanted.empty() && is_header_safe(wanted);
  out.headers.emplace_back("Access-Control-Allow-Headers", echo ? wanted : options_.cors_headers);
  out.headers.emplace_back("Access-Control-Max-Age", "600");
  return out;
}

}  // namespace mlxcel
