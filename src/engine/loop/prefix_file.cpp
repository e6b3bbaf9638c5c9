#include "engine/loop/prefix_file.h"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include "base/error.h"

namespace mlxcel {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMagic = "mlxcel prefix 1\n";
constexpr size_t kDigest = 32;
constexpr uint64_t kMaxTokens = uint64_t{1} << 26;
constexpr uint64_t kMaxText = 1 << 16;

class Sha256 {
 public:
  Sha256() : context_(EVP_MD_CTX_new()) { EVP_DigestInit_ex(context_, EVP_sha256(), nullptr); }
  ~Sha256() { EVP_MD_CTX_free(context_); }
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;
  void add(std::span<const std::byte> bytes) { EVP_DigestUpdate(context_, bytes.data(), bytes.size()); }
  std::array<std::byte, kDigest> digest() {
    std::array<std::byte, kDigest> out{};
    EVP_DigestFinal_ex(context_, reinterpret_cast<unsigned char*>(out.data()), nullptr);
    return out;
  }

 private:
  EVP_MD_CTX* context_;
};

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

struct Found {
  PrefixHead head;
  uint64_t end = 0;  // where the image begins
};

Found find_head(const File& file) {
  uint64_t sizes[3];
  const uint64_t fixed = kMagic.size() + sizeof sizes;
  const auto refuse = [] { fail(ErrorKind::invalid_request, "it is no entry of this form"); };
  if (file.size() < fixed + kDigest) refuse();
  std::string magic(kMagic.size(), '\0');
  file.read(0, std::as_writable_bytes(std::span(magic)));
  file.read(kMagic.size(), std::as_writable_bytes(std::span(sizes)));
  if (magic != kMagic || sizes[0] > kMaxText || sizes[1] > kMaxText || sizes[2] > kMaxTokens) refuse();
  Found found;
  found.end = fixed + sizes[0] + sizes[1] + sizes[2] * sizeof(TokenId);
  if (file.size() < found.end + kDigest) refuse();
  PrefixHead& head = found.head;
  head.fingerprint.resize(sizes[0]);
  head.scope.resize(sizes[1]);
  head.tokens.resize(sizes[2]);
  file.read(fixed, std::as_writable_bytes(std::span(head.fingerprint)));
  file.read(fixed + sizes[0], std::as_writable_bytes(std::span(head.scope)));
  file.read(fixed + sizes[0] + sizes[1], std::as_writable_bytes(std::span(head.tokens)));
  return found;
}

}  // namespace

// magic, [fingerprint size, scope size, tokens], fingerprint, scope, tokens; the image and its digest follow.
std::vector<std::byte> prefix_head_bytes(const std::string& fingerprint, const std::string& scope,
                                         std::span<const TokenId> tokens) {
  const uint64_t sizes[] = {fingerprint.size(), scope.size(), tokens.size()};
  const std::span<const std::byte> parts[] = {bytes_of(kMagic), std::as_bytes(std::span(sizes)),
                                              bytes_of(fingerprint), bytes_of(scope), std::as_bytes(tokens)};
  size_t size = 0;
  for (const auto& part : parts) size += part.size();
  std::vector<std::byte> out(size);
  std::byte* to = out.data();
  for (const auto& part : parts) {
    if (!part.empty()) std::memcpy(to, part.data(), part.size());
    to += part.size();
  }
  return out;
}

size_t prefix_file_bytes(const std::string& fingerprint, const std::string& scope,
                         std::span<const TokenId> tokens, const RowImage& image) {
  return kMagic.size() + 3 * sizeof(uint64_t) + fingerprint.size() + scope.size() + tokens.size_bytes() +
         image.bytes() + kDigest;
}

size_t write_prefix(const fs::path& path, const std::string& fingerprint, const std::string& scope,
                    std::span<const TokenId> tokens, const RowImage& image) {
  AtomicFile file(path);
  Sha256 hash;
  size_t written = kDigest;
  const auto put = [&](std::span<const std::byte> part) {
    hash.add(part);
    file.write(part);
    written += part.size();
  };
  put(prefix_head_bytes(fingerprint, scope, tokens));
  image.write(put);
  file.write(hash.digest());
  file.commit();
  std::error_code ignored;
  fs::permissions(path, fs::perms::owner_read | fs::perms::owner_write, ignored);
  return written;
}

PrefixHead read_prefix_head(const File& file) { return find_head(file).head; }

PrefixFile read_prefix(const File& file) {
  Found found = find_head(file);
  std::vector<std::byte> whole(file.size());
  file.read(0, whole);
  Sha256 hash;
  hash.add(std::span(whole).first(whole.size() - kDigest));
  const auto digest = hash.digest();
  if (std::memcmp(digest.data(), whole.data() + whole.size() - kDigest, kDigest) != 0)
    fail(ErrorKind::invalid_request, "it is damaged or cut");
  const auto from = whole.begin() + static_cast<std::ptrdiff_t>(found.end);
  return {std::move(found.head), {from, whole.end() - static_cast<std::ptrdiff_t>(kDigest)}};
}

std::string sha256_hex(std::span<const std::byte> bytes) {
  Sha256 hash;
  hash.add(bytes);
  std::string out;
  for (const std::byte b : hash.digest()) out += fmt::format("{:02x}", static_cast<unsigned>(b));
  return out;
}

}  // namespace mlxcel
