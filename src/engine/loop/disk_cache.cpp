#include "engine/loop/disk_cache.h"

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "engine/loop/prefix_file.h"

namespace mlxcel {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSuffix = ".prefix";

size_t shared(std::span<const TokenId> a, std::span<const TokenId> b) {
  const size_t most = std::min(a.size(), b.size());
  return static_cast<size_t>(
      std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(most), b.begin()).first - a.begin());
}

}  // namespace

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
  if (ttl_s_ <= 0.0 || known.bytes == 0) return false;
  const auto age = std::chrono::duration<double>(fs::file_time_type::clock::now() - known.used).count();
  return age > ttl_s_;
}

void DiskCache::scan() {
  std::error_code error;
  const auto now = fs::file_time_type::clock::now();
  for (const auto& file : fs::directory_iterator(folder_, error)) {
    const auto written = fs::last_write_time(file.path(), error);
    if (error) continue;  // another process has removed it
    // What a writer left that died long ago.
    if (file.path().extension() == ".partial" && file.path().string().find(kSuffix) != std::string::npos &&
        now - written > std::chrono::hours(24))
      fs::remove(file.path(), error);
    if (file.path().extension() != kSuffix || !file.is_regular_file(error)) continue;
    const std::string name = file.path().filename().string();
    try {
      const auto open = File::open(file.path());
      std::optional<PrefixHead> head;
      std::string why;
      try {
        head = read_prefix_head(*open);
      } catch (const Error& fault) {
        if (fault.kind() != ErrorKind::invalid_request) throw;
        why = fault.what();
      }
      const bool ours =
          head && head->fingerprint == fingerprint_ && name == name_of(head->scope, head->tokens);
      bytes_ += open->size();
      // Another model's entry is left alone, and counts against the budget.
      Known known{.bytes = open->size(), .used = written, .seen = true};
      if (ours)
        known.scope = std::move(head->scope), known.tokens = std::move(head->tokens), known.seen = false;
      known.ours = ours;
      if (head && !ours) ++figures_.foreign;
      const bool old = expired(known);
      known_.emplace(name, std::move(known));
      if (!head)
        forget(name, why);
      else if (old)
        forget(name, {});
    } catch (const Error& fault) {
      log::debug("engine", "prompt cache: {}: {}", name, fault.what());
    }
  }
}

std::string DiskCache::name_of(const std::string& scope, std::span<const TokenId> tokens) const {
  return sha256_hex(prefix_head_bytes(fingerprint_, scope, tokens)) + kSuffix;
}

// Under the lock, or before other threads are.
void DiskCache::forget(const std::string& name, const std::string& why) {
  const auto found = known_.find(name);
  if (found == known_.end()) return;
  if (!why.empty()) {
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
  std::string why;
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

// `why`: what is wrong with the file; empty where another process has removed it.
std::optional<DiskCache::Entry> DiskCache::load(const std::string& name, std::string& why) {
  why = "it cannot be read";
  try {
    const auto file = File::open(folder_ / name);
    const PrefixHead head = read_prefix_head(*file);
    if (head.fingerprint != fingerprint_ || name != name_of(head.scope, head.tokens)) {
      why = "it is another model's, or not what its name says";
      return std::nullopt;
    }
    PrefixFile whole = read_prefix(*file);
    return Entry{std::move(whole.head.tokens), std::move(whole.image)};
  } catch (const Error& fault) {
    if (fault.kind() == ErrorKind::not_found) why.clear();
    if (fault.kind() == ErrorKind::invalid_request) why = fault.what();
    log::debug("engine", "prompt cache: {}: {}", name, fault.what());
  } catch (const std::exception& fault) {
    log::debug("engine", "prompt cache: {}: {}", name, fault.what());
  }
  return std::nullopt;
}

void DiskCache::write(const std::string& scope, std::span<const TokenId> tokens,
                      std::unique_ptr<RowImage> image) {
  if (!image) return;
  const std::string name = name_of(scope, tokens);
  const std::lock_guard lock(mutex_);
  if (const auto found = known_.find(name); found != known_.end()) {
    found->second.dropped = false;  // wanted again before it was written
    return;
  }
  if (full_) return;
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

void DiskCache::drop(const std::string& scope, std::span<const TokenId> tokens) {
  const std::string name = name_of(scope, tokens);
  const std::lock_guard lock(mutex_);
  const auto found = known_.find(name);
  if (found == known_.end()) return;
  if (found->second.bytes > 0)
    forget(name, {});
  else
    found->second.dropped = true;
}

bool DiskCache::collect() {
  std::vector<std::unique_ptr<RowImage>> gone;
  const std::lock_guard lock(mutex_);
  gone.swap(written_);
  return !gone.empty();
}

void DiskCache::flush() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return queue_.empty() && !busy_; });
}

void DiskCache::clear() {
  flush();
  const std::lock_guard lock(mutex_);
  std::vector<std::string> names;
  for (const auto& [name, known] : known_)
    if (known.ours && known.bytes > 0) names.push_back(name);
  for (const auto& name : names) forget(name, {});
}

DiskCache::Figures DiskCache::figures() const {
  const std::lock_guard lock(mutex_);
  Figures out = figures_;
  out.entries = known_.size();
  out.bytes = bytes_;
  return out;
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
  const uint64_t size = prefix_file_bytes(fingerprint_, job.scope, job.tokens, *job.image);
  try {
    if (size > budget_) fail(ErrorKind::out_of_memory, "{} bytes are over the {} it may take", size, budget_);
    make_room(size);
    write_prefix(folder_ / name, fingerprint_, job.scope, job.tokens, *job.image);
    const std::lock_guard lock(mutex_);
    ++figures_.writes;
    bytes_ += size;
    if (const auto found = known_.find(name); found != known_.end()) {
      found->second.bytes = size;
      if (found->second.dropped) forget(name, {});
    }
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
    forget(std::string(oldest->first), {});
    ++figures_.evictions;
  }
}

}  // namespace mlxcel
