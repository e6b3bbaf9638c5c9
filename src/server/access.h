// Who may ask: API keys, origins, CORS headers (server.md 2.2 and 6).
// Owner: the router. Thread: any, immutable.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/http.h"
#include "server/options.h"

namespace mlxcel {

class Access {
 public:
  explicit Access(AccessOptions options);
  bool has_keys() const { return !hashes_.empty(); }

  /// Throws Refusal 401 for a missing or wrong key, sets request.key_label otherwise.
  void authenticate(HttpRequest& request) const;
  /// Throws Refusal 403 for an Origin that is not on the list, where there is one.
  void check_origin(const HttpRequest& request) const;
  /// Throws Refusal 403 for a Host that names another machine: a page of that name, made to resolve to this
  /// address, must not reach a server that asks for no key.
  void check_host(const HttpRequest& request) const;

  void add_cors(const HttpRequest& request, HttpResponse& response) const;
  /// The answer to OPTIONS.
  HttpResponse preflight(const HttpRequest& request, const std::string& allow) const;

 private:
  std::optional<std::string> allowed_origin(const HttpRequest& request) const;

  AccessOptions options_;
  std::vector<std::string> hashes_;  // SHA-256 of each key, 32 bytes
};

/// Splits llama-server's comma list: a field may be quoted to hold a comma, blanks are kept, empty fields
/// dropped.
std::vector<std::string> split_keys(std::string_view list);
/// "scheme://host[:port]" exactly.
bool is_origin(std::string_view text);
std::string sha256(std::string_view text);
std::string hex(std::string_view bytes);

}  // namespace mlxcel
