#include "hub/transfer.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <string_view>
#include <thread>
#include <vector>

namespace mlxcel {
namespace fs = std::filesystem;
namespace {

constexpr int kTries = 6;
constexpr double kLongestWait = 300;
constexpr size_t kReadBytes = size_t{1} << 20;

/// The checksum an etag stands for: SHA-256 of the content, or git's SHA-1 of the blob.
class Checksum {
 public:
  Checksum(const std::string& etag, std::uint64_t size) : expected_(etag) {
    const bool hex = std::all_of(etag.begin(), etag.end(), [](unsigned char c) { return std::isxdigit(c); });
    const EVP_MD* kind = !hex                ? nullptr
                         : etag.size() == 64 ? EVP_sha256()
                         : etag.size() == 40 ? EVP_sha1()
                                             : nullptr;
    if (!kind) return;
    context_.reset(EVP_MD_CTX_new());
    EVP_DigestInit_ex(context_.get(), kind, nullptr);
    if (etag.size() == 40) {
      const std::string head = fmt::format("blob {}", size);
      EVP_DigestUpdate(context_.get(), head.c_str(), head.size() + 1);
    }
  }
  void add(const void* data, size_t size) {
    if (context_) EVP_DigestUpdate(context_.get(), data, size);
  }
  /// Nothing, or the digest found instead.
  std::string mismatch() {
    if (!context_) return "";
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned int size = 0;
    EVP_DigestFinal_ex(context_.get(), digest, &size);
    std::string found;
    for (unsigned int i = 0; i < size; ++i) found += fmt::format("{:02x}", digest[i]);
    std::string wanted = expected_;
    std::transform(wanted.begin(), wanted.end(), wanted.begin(),
                   [](unsigned char c) { return std::tolower(c); });
    return found == wanted ? "" : found;
  }

 private:
  struct Free {
    void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
  };
  std::string expected_;
  std::unique_ptr<EVP_MD_CTX, Free> context_;
};

/// The file under construction.
class Partial {
 public:
  explicit Partial(const fs::path& path) : path_(path) {
    descriptor_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (descriptor_ < 0) refuse("written");
    struct stat info{};
    if (::fstat(descriptor_, &info) != 0) refuse("read");
    size_ = static_cast<std::uint64_t>(info.st_size);
  }
  ~Partial() { ::close(descriptor_); }
  Partial(const Partial&) = delete;
  Partial& operator=(const Partial&) = delete;

  std::uint64_t size() const { return size_; }
  void cut(std::uint64_t size) {
    if (::ftruncate(descriptor_, static_cast<off_t>(size)) != 0) refuse("written");
    size_ = size;
  }
  void append(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t count = ::pwrite(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(size_));
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) refuse("written");
      size_ += static_cast<std::uint64_t>(count);
      bytes = bytes.subspan(static_cast<size_t>(count));
    }
  }
  std::string mismatch(const std::string& etag) {
    Checksum sum(etag, size_);
    std::vector<char> buffer(kReadBytes);
    for (std::uint64_t at = 0; at < size_;) {
      const ssize_t count = ::pread(descriptor_, buffer.data(), buffer.size(), static_cast<off_t>(at));
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) refuse("read");
      sum.add(buffer.data(), static_cast<size_t>(count));
      at += static_cast<std::uint64_t>(count);
    }
    return sum.mismatch();
  }
  void publish(const fs::path& target) {
    if (::fdatasync(descriptor_) != 0) refuse("written");
    std::error_code error;
    fs::rename(path_, target, error);
    if (error) fail(ErrorKind::internal, "{}: cannot be put in place: {}", target.string(), error.message());
  }

 private:
  [[noreturn]] void refuse(const char* what) const {
    const int code = errno;
    const char* hint =
        code == ENOSPC || code == EDQUOT ? "; free some space and start again: what is there is kept" : "";
    fail(ErrorKind::internal, "{}: cannot be {}: {}{}", path_.string(), what, std::strerror(code), hint);
  }
  fs::path path_;
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
};

/// "bytes 100-199/200": where the answer begins.
std::optional<std::uint64_t> range_start(const HttpReply& reply) {
  const auto found = reply.headers.find("content-range");
  if (found == reply.headers.end() || !found->second.starts_with("bytes ")) return std::nullopt;
  char* end = nullptr;
  const auto start = std::strtoull(found->second.c_str() + 6, &end, 10);
  return *end == '-' ? std::optional<std::uint64_t>(start) : std::nullopt;
}

}  // namespace

fs::path partial_path(const fs::path& target, const RemoteFile& file) {
  const std::string mark = file.etag.empty() ? "unmarked" : file.etag.substr(0, 16);
  return target.parent_path() / fmt::format(".{}.{}.partial", target.filename().string(), mark);
}

void with_retries(const std::function<void()>& body, const std::function<bool()>& progressed,
                  const TransferEvents& events) {
  double pause = 0.5;
  for (int tries = 1;; ++tries) {
    try {
      return body();
    } catch (const NetworkError& error) {
      if (progressed && progressed()) {
        tries = 1;
        pause = 0.5;
      }
      if (!error.again || tries >= kTries || (events.stopped && events.stopped())) throw;
      if (error.wait_s > kLongestWait)
        throw NetworkError(
            fmt::format("{}; it asks to wait {:.0f} s: try again then", error.what(), error.wait_s), false,
            error.status);
      const double wait = std::max(pause, error.wait_s);
      if (events.note) events.note(fmt::format("{}; trying again in {:.1f} s", error.what(), wait));
      const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(wait);
      while (std::chrono::steady_clock::now() < until && !(events.stopped && events.stopped()))
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
      pause = std::min(pause * 2, 8.0);
    }
  }
}

std::uint64_t transfer_file(Http& http, const RemoteFile& file, const fs::path& target,
                            const TransferEvents& events) {
  const fs::path path = partial_path(target, file);
  std::uint64_t wire = 0;
  for (int round = 0;; ++round) {
    Partial partial(path);
    if (file.size && partial.size() > *file.size) partial.cut(0);
    if (file.etag.empty() && round == 0) partial.cut(0);  // nothing says that it is the same file
    std::uint64_t before = 0;
    const auto one_try = [&] {
      before = partial.size();
      if (file.size && partial.size() == *file.size && *file.size > 0) return;
      try {
        http.stream(
            file.url, partial.size(),
            [&](const HttpReply& reply) {
              if (reply.status == 206 && range_start(reply) == partial.size()) return;
              if (reply.status == 206)
                throw NetworkError(
                    fmt::format("{}: the hub sends another range than was asked for", file.path), false);
              partial.cut(0);  // the whole file comes
              before = 0;
            },
            [&](std::span<const std::byte> bytes) {
              if (events.stopped && events.stopped()) throw Error(ErrorKind::cancelled, "stopped");
              if (file.size && partial.size() + bytes.size() > *file.size)
                throw NetworkError(
                    fmt::format("{}: longer than the {} bytes the hub announced", file.path, *file.size),
                    false);
              partial.append(bytes);
              wire += bytes.size();
              if (events.progress) events.progress(partial.size());
            });
      } catch (const NetworkError& error) {
        if (error.status == 416) partial.cut(0);
        throw;
      }
      if (file.size && partial.size() < *file.size)
        throw NetworkError(
            fmt::format("{}: the transfer ended after {} of {} bytes", file.path, partial.size(), *file.size),
            true);
    };
    with_retries(one_try, [&] { return partial.size() > before; }, events);
    const std::string found = partial.mismatch(file.etag);
    if (found.empty()) {
      partial.publish(target);
      return wire;
    }
    partial.cut(0);
    if (round == 1) {
      std::error_code ignored;
      fs::remove(path, ignored);
      fail(ErrorKind::bad_checkpoint, "{}: checksum {} expected, {} found, twice; the file was not kept",
           file.path, file.etag, found);
    }
    if (events.note) events.note(fmt::format("{}: wrong checksum; fetching it afresh", file.path));
  }
}

}  // namespace mlxcel
