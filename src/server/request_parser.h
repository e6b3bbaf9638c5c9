// Bytes to requests: Beast's incremental HTTP/1 parser behind a narrow door. Strict about framing (one
// length, no length beside chunks, CRLF), bounded in header and body. Owner: one per request on a connection.
// Thread: one.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "server/http.h"
#include "server/options.h"

namespace mlxcel {

class RequestParser {
 public:
  explicit RequestParser(const ServerLimits& limits);
  ~RequestParser();

  enum class Status { need_more, done, refused };
  struct Result {
    Status status = Status::need_more;
    size_t used = 0;    // bytes taken from the front of the input
    int refusal = 400;  // HTTP status, when refused
    std::string message;
  };
  /// Until done: method, target and headers stand in `request`.
  Result header(std::string_view input, HttpRequest& request);
  /// Until done: the body stands in `request`.
  Result body(std::string_view input, HttpRequest& request);

  bool has_body() const;
  bool expects_continue() const;
  bool keep_alive() const;
  bool http_1_0() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
  const ServerLimits* limits_ = nullptr;
};

/// %41 to A; nothing for broken escapes or a NUL.
bool percent_decode(std::string_view text, std::string& out);

}  // namespace mlxcel
