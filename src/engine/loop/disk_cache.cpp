#include "engine/loop/disk_cache.h"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"

namespace mlxcel {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMagic = "mlxcel prefix 1\n";
constexpr size_t kDigest = 32;
constexpr uint64_t kMaxTokens = uint64_t{1} << 26;
constexpr uint64_t kMaxText = 1 << 16;
constexpr const char* kSuffix = ".prefix";

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

// magic, [fingerprint size, scope size, tokens], fingerprint, scope, tokens; the image and its digest follow.
std::vector<std::byte> header(const std::string& fingerprint, const std::string& scope,
                              std::span<const TokenId> tokens) {
  std::vector<std::byte> out;
  const auto add = [&](std::span<const std::byte> part) { out.insert(out.end(), part.begin(), part.end()); };
  const uint64_t sizes[] = {fingerprint.size(), scope.size(), tokens.size()};
  add(bytes_of(kMagic));
  add(std::as_bytes(std::span(sizes)));
  add(bytes_of(fingerprint));
  add(bytes_of(scope));
  add(std::as_bytes(tokens));
  return out;
}

struct Head {
  std::string fingerprint, scope;
  std::vector<TokenId> tokens;
  uint64_t end = 0;  // where the image begins
};

// Every size is bounded before it is believed.
std::optional<Head> read_head(const File& file) {
  uint64_t sizes[3];
  const uint64_t fixed = kMagic.size() + sizeof sizes;
  if (file.size() < fixed + kDigest) return std::nullopt;
  std::string magic(kMagic.size(), '\0');
  file.read(0, std::as_writable_bytes(std::span(magic)));
  file.read(kMagic.size(), std::as_writable_bytes(std::span(sizes)));
  if (magic != kMagic || sizes[0] > kMaxText || sizes[1] > kMaxText || sizes[2] > kMaxTokens)
    return std::nullopt;
  Head head;
  head.end = fixed + sizes[0] + sizes[1] + sizes[2] * sizeof(TokenId);
  if (file.size() < head.end + kDigest) return std::nullopt;
  head.fingerprint.resize(sizes[0]);
  head.scope.resize(sizes[1]);
  head.tokens.resize(sizes[2]);
  file.read(fixed, std::as_writable_bytes(std::span(head.fingerprint)));
  file.read(fixed + sizes[0], std::as_writable_bytes(std::span(head.scope)));
  file.read(fixed + sizes[0] + sizes[1], std::as_writable_bytes(std::span(head.tokens)));
  return head;
}

size_t shared(std::span<const TokenId> a, std::span<const TokenId> b) {
  const size_t most = std::min(a.size(), b.size());
  return static_cast<size_t>(
      std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(most), b.begin()).first - a.begin());
}

}  // namespace

std::string sha256_hex(std::span<const std::byte> bytes) {
  Sha256 hash;
  hash.add(bytes);
  std::string out;
  for (const std::byte b : hash.digest()) out += fmt::format("{:02x}", static_cast<unsigned>(b));
  return out;
}

DiskCache::DiskCache(fs::path folder, std::string fingerprint, size_t budget_bytes, double ttl_s)
    : folder_(std::move(folder)), fingerprint_(std::move(fingerprint)), budget_(budget_bytes), ttl_s_(ttl_s) {
  std::error_code error;
  const bool made = fs::create_directories(folder_, error);
  if (error || !fs::is_directory(folder_))
    fail_param("prompt-cache-dir", "prompt-cache-dir: {} cannot be made: {}", folder_.string(),
               error ? error.message() : "it is no folder");
  if (made) fs::permissions(folder_, fs::perms::owner_all, error);
  scan();
  writer_ = std::thread([this] { run(); });
}

DiskCache::~DiskCache() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  writer_.join();
}

bool DiskCache::expired(const Known& known) const {
  const auto age = std::chrono::duration<double>(fs::file_time_type::clock::now() - known.used).count();
  return ttl_s_ > 0.0 && known.bytes > 0 && age > ttl_s_;
}

void DiskCache::scan() {
  std::error_code error;
  const auto now = fs::file_time_type::clock::now();
  for (const auto& file : fs::directory_iterator(folder_, error)) {
    // What a writer left that died long ago.
    if (file.path().extension() == ".partial" && file.path().string().find(kSuffix) != std::string::npos &&
        now - fs::last_write_time(file.path(), error) > std::chrono::hours(24))
      fs::remove(file.path(), error);
    if (file.path().extension() != kSuffix || !file.is_regular_file(error)) continue;
    const std::string name = file.path().filename().string();
    try {
      const auto open = File::open(file.path());
      auto head = read_head(*open);
      const bool ours =
          head && head->fingerprint == fingerprint_ && name == name_of(head->scope, head->tokens);
      bytes_ += open->size();
      // Another model's entry is left alone, and counts against the budget.
      Known known{.bytes = open->size(), .used = fs::last_write_time(file.path(), error), .seen = true};
      if (ours)
        known.scope = std::move(head->scope), known.tokens = std::move(head->tokens), known.seen = false;
      const bool old = expired(known);
      known_.emplace(name, std::move(known));
      if (!head)
        forget(name, "it is no entry of this form");
      else if (old)
        forget(name, nullptr);
    } catch (const Error& fault) {
      log::debug("engine", "prompt cache: {}: {}", name, fault.what());
    }
  }
}

std::string DiskCache::name_of(const std::string& scope, std::span<const TokenId> tokens) const {
  return sha256_hex(header(fingerprint_, scope, tokens)) + kSuffix;
}

// Under the lock, or before other threads are.
void DiskCache::forget(const std::string& name, const char* why) {
  const auto found = known_.find(name);
  if (found == known_.end()) return;
  if (why != nullptr) {
    ++figures_.corrupt;
    log::warn("engine", "prompt cache: {} is dropped: {}", name, why);
  }
  bytes_ -= std::min(bytes_, found->second.bytes);
  known_.erase(found);
  std::error_code ignored;
  fs::remove(folder_ / name, ignored);
}

std::optional<DiskCache::Entry> DiskCache::find(const std::string& scope, std::span<const TokenId> tokens,
                                                bool cuttable) {
  std::string name;
  {
    const std::lock_guard lock(mutex_);
    size_t best = kPageTokens - 1;
    for (const auto& [file, known] : known_) {
      if (known.seen || known.scope != scope || expired(known)) continue;
      const size_t common = shared(known.tokens, tokens);
      if (common <= best || (!cuttable && (common < known.tokens.size() || common == tokens.size())))
        continue;
      best = common;
      name = file;
    }
    if (name.empty()) {
      ++figures_.misses;
      return std::nullopt;
    }
    known_[name].seen = true;  // whoever reads it first has it in memory
  }
  const char* why = nullptr;
  auto entry = load(name, why);
  const std::lock_guard lock(mutex_);
  if (!entry) {
    forget(name, why);
    ++figures_.misses;
    return std::nullopt;
  }
  ++figures_.hits;
  std::error_code ignored;
  fs::last_write_time(folder_ / name, fs::file_time_type::clock::now(), ignored);
  return entry;
}

// `why`: what is wrong with the file; null where another process has removed it.
std::optional<DiskCache::Entry> DiskCache::load(const std::string& name, const char*& why) {
  try {
    const auto file = File::open(folder_ / name);
    auto head = read_head(*file);
    why = "it is no entry of this form";
    if (!head) return std::nullopt;
    why = "it is another model's, or not what its name says";
    if (head->fingerprint != fingerprint_ || name != name_of(head->scope, head->tokens)) return std::nullopt;
    std::vector<std::byte> whole(file->size());
    file->read(0, whole);
    Sha256 hash;
    hash.add(std::span(whole).first(whole.size() - kDigest));
    const auto digest = hash.digest();
    why = "it is damaged or cut";
    if (std::memcmp(digest.data(), whole.data() + whole.size() - kDigest, kDigest) != 0) return std::nullopt;
    const auto from = whole.begin() + static_cast<std::ptrdiff_t>(head->end);
    return Entry{std::move(head->tokens), {from, whole.end() - static_cast<std::ptrdiff_t>(kDigest)}};
  } catch (const Error& fault) {
    why = fault.kind() == ErrorKind::not_found ? nullptr : "it cannot be read";
    log::debug("engine", "prompt cache: {}: {}", name, fault.what());
  } catch (const std::exception& fault) {
    why = "it cannot be read";
    log::debug("engine", "prompt cache: {}: {}", name, fault.what());
  }
  return std::nullopt;
}

void DiskCache::write(const std::string& scope, std::span<const TokenId> tokens,
                      std::unique_ptr<RowImage> image) {
  if (!image) return;
  const std::string name = name_of(scope, tokens);
  const std::lock_guard lock(mutex_);
  if (full_ || known_.contains(name)) return;
  known_[name] = {.scope = scope,
                  .tokens = {tokens.begin(), tokens.end()},
                  .bytes = 0,
                  .used = fs::file_time_type::clock::now(),
                  .seen = true};
  queue_.push_back({scope, {tokens.begin(), tokens.end()}, std::move(image)});
  changed_.notify_all();
}

void DiskCache::unseen(const std::string& scope, std::span<const TokenId> tokens) {
  const std::string name = name_of(scope, tokens);
  const std::lock_guard lock(mutex_);
  if (const auto found = known_.find(name); found != known_.end() && found->second.bytes > 0)
    found->second.seen = false;
}

void DiskCache::collect() {
  std::vector<std::unique_ptr<RowImage>> gone;
  const std::lock_guard lock(mutex_);
  gone.swap(written_);
}

void DiskCache::flush() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return queue_.empty() && !busy_; });
}

DiskCache::Figures DiskCache::figures() const {
  const std::lock_guard lock(mutex_);
  return figures_;
}

void DiskCache::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return ending_ || !queue_.empty(); });
    if (queue_.empty()) return;
    Job job = std::move(queue_.front());
    queue_.pop_front();
    busy_ = true;
    lock.unlock();
    store(job);
    lock.lock();
    busy_ = false;
    written_.push_back(std::move(job.image));
    changed_.notify_all();
  }
}

void DiskCache::store(const Job& job) {
  const std::string name = name_of(job.scope, job.tokens);
  const auto head = header(fingerprint_, job.scope, job.tokens);
  const uint64_t size = head.size() + job.image->bytes() + kDigest;
  try {
    if (size > budget_) fail(ErrorKind::out_of_memory, "{} bytes are over the {} it may take", size, budget_);
    make_room(size);
    AtomicFile file(folder_ / name);
    Sha256 hash;
    const auto put = [&](std::span<const std::byte> part) {
      hash.add(part);
      file.write(part);
    };
    put(head);
    job.image->write(put);
    file.write(hash.digest());
    file.commit();
    std::error_code ignored;
    fs::permissions(folder_ / name, fs::perms::owner_read | fs::perms::owner_write, ignored);
    const std::lock_guard lock(mutex_);
    ++figures_.writes;
    bytes_ += size;
    if (const auto found = known_.find(name); found != known_.end()) found->second.bytes = size;
  } catch (const std::exception& fault) {
    const std::lock_guard lock(mutex_);
    known_.erase(name);
    std::error_code error;
    full_ = fs::space(folder_, error).available < size && size <= budget_;
    if (!told_)
      log::warn("engine", "prompt cache: {} was not written: {}{}", name, fault.what(),
                full_ ? "; no more will be" : "");
    told_ = true;
  }
}

// The entries used longest ago go until `bytes` more are within the budget.
void DiskCache::make_room(uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  while (bytes_ + bytes > budget_) {
    auto oldest = known_.end();
    for (auto at = known_.begin(); at != known_.end(); ++at)
      if (at->second.bytes > 0 && (oldest == known_.end() || at->second.used < oldest->second.used))
        oldest = at;
    if (oldest == known_.end()) return;
    forget(std::string(oldest->first), nullptr);
  }
}

}  // namespace mlxcel
