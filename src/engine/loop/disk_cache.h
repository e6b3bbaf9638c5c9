// Kept prefixes on disk, across restarts: one file an entry, named by what it holds, checked before use. What
// is damaged, cut or of another model is a miss, and goes. features.md 3.2. Owner: the loop. Thread: find()
// any; write() and collect() the model thread; files are written by a thread of its own.
#pragma once

#include <condition_variable>
#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "state/row_image.h"
#include "text/tokenizer.h"

namespace mlxcel {

class DiskCache {
 public:
  /// `fingerprint`: of everything an entry depends on (model, types, layout). Makes the folder, reads its
  /// headers. Entries not used for `ttl_s` go; 0: they stay.
  DiskCache(std::filesystem::path folder, std::string fingerprint, size_t budget_bytes, double ttl_s = 0);
  /// Ends when what was handed over is written.
  ~DiskCache();
  DiskCache(const DiskCache&) = delete;
  DiskCache& operator=(const DiskCache&) = delete;

  struct Entry {
    std::vector<TokenId> tokens;
    std::vector<std::byte> image;
  };
  /// The longest entry of `scope` that `tokens` begin with (`cuttable`: that shares a full page with them)
  /// and that has not been read or written by this process. Read and checked.
  std::optional<Entry> find(const std::string& scope, std::span<const TokenId> tokens, bool cuttable);
  /// Hands an entry to the writer.
  void write(const std::string& scope, std::span<const TokenId> tokens, std::unique_ptr<RowImage> image);
  /// Memory no longer has this entry: it may be read again.
  void unseen(const std::string& scope, std::span<const TokenId> tokens);
  /// Removes the entry of exactly these tokens, unless it is still being written.
  void drop(const std::string& scope, std::span<const TokenId> tokens);
  /// Lets rows go whose files are written; whether there were any. Model thread.
  bool collect();
  /// Waits for the writer.
  void flush();
  /// Removes every file of this fingerprint, once what was handed over is written.
  void clear();

  struct Figures {
    uint64_t hits = 0, misses = 0, corrupt = 0, writes = 0;
    uint64_t evictions = 0;         // files that had to make room
    uint64_t foreign = 0;           // of another fingerprint, left alone
    size_t entries = 0, bytes = 0;  // of the folder, as far as this process knows
  };
  Figures figures() const;
  uint64_t capacity() const { return budget_; }

 private:
  struct Known {
    std::string scope = {};
    std::vector<TokenId> tokens = {};
    uint64_t bytes = 0;
    std::filesystem::file_time_type used = {};
    bool seen = false;     // in this process's memory, or it was
    bool ours = true;      // of this fingerprint
    bool dropped = false;  // while it was being written
  };
  struct Job {
    std::string scope;
    std::vector<TokenId> tokens;
    std::unique_ptr<RowImage> image;
  };

  std::string name_of(const std::string& scope, std::span<const TokenId> tokens) const;
  void scan();
  void run();
  void store(const Job& job);
  void make_room(uint64_t bytes);
  std::optional<Entry> load(const std::string& name, std::string& why);
  bool expired(const Known& known) const;
  void forget(const std::string& name, const std::string& why);

  const std::filesystem::path folder_;
  const std::string fingerprint_;
  const uint64_t budget_;
  const double ttl_s_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, Known> known_;  // by file name
  uint64_t bytes_ = 0;
  std::deque<Job> queue_;
  std::vector<std::unique_ptr<RowImage>> written_;
  Figures figures_;
  bool busy_ = false, ending_ = false, full_ = false, told_ = false;
  std::thread writer_;
};

}  // namespace mlxcel
