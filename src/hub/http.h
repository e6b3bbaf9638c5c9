// HTTP as the hub needs it, over libcurl: bounded texts, headers with redirects under control, streamed
// bodies from an offset. Owner: one per thread. Thread: one at a time. Failure: NetworkError; `again` where a
// later try may pass.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>

#include "base/error.h"
#include "hub/endpoint.h"

namespace mlxcel {

class NetworkError : public Error {
 public:
  NetworkError(const std::string& message, bool may_pass, long code = 0, double wait = 0)
      : Error(code == 404 ? ErrorKind::not_found : ErrorKind::internal, message),
        again(may_pass),
        status(code),
        wait_s(wait) {}
  bool again;
  long status;    // 0: no answer at all
  double wait_s;  // Retry-After; 0: none
};

struct HttpReply {
  long status = 0;
  std::map<std::string, std::string> headers;  // names in lower case; of the last response
  std::string body;
  std::string url;  // after redirects
};

class Http {
 public:
  explicit Http(Endpoint endpoint);
  ~Http();
  Http(const Http&) = delete;
  Http& operator=(const Http&) = delete;

  /// The whole body, at most `limit` bytes. Statuses other than 200 are errors.
  std::string text(const std::string& url, size_t limit);
  /// Redirects are followed while the hub itself answers; the reply before one to another host is returned if
  /// it names the file's size. `headers` of all replies on the way are joined, the first one wins.
  HttpReply head(const std::string& url);
  /// `begin` sees status and headers (200 or 206) before the first byte; then `write` gets the body.
  void stream(const std::string& url, uint64_t offset, const std::function<void(const HttpReply&)>& begin,
              const std::function<void(std::span<const std::byte>)>& write);

 private:
  struct Call;
  HttpReply perform(const std::string& url, Call& call);

  Endpoint endpoint_;
  void* curl_;
};

/// The process is ending: transfers fail within a second or so, those that run and those to come. Any thread.
void give_up_transfers();
/// Percent-encodes each part of a path.
std::string url_path(const std::string& path);
/// What a status other than success means to the user. `what` is the file or repository.
[[noreturn]] void fail_status(const HttpReply& reply, const std::string& what, bool had_token);

}  // namespace mlxcel
