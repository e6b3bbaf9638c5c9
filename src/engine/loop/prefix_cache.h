// What was evaluated for earlier prompts, for prompts that begin alike. Entries are kept rows, found by a
// hash chain over their full pages (each hash covers everything before it) and compared token by token before
// use. Owner: the loop. Thread: model thread. Least recently used entries go first, those that a longer entry
// of the same conversation has replaced before them; entries past their time when the next prompt comes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "state/kept.h"
#include "text/tokenizer.h"

namespace mlxcel {

class PrefixCache {
 public:
  struct Bounds {
    size_t bytes = SIZE_MAX;            // of pages and recurrent states
    size_t recurrent_bytes = SIZE_MAX;  // of the second alone
    size_t entries = SIZE_MAX;
    double ttl_s = 0;         // entries not used for so long go; 0: they stay
    int least = kPageTokens;  // tokens of an entry, and of a hit
    bool whole_only = false;  // an entry is found by prompts that begin with all of it
  };
  PrefixCache(StateStore& store, const Bounds& bounds);

  struct Hit {
    RowState row;
    int tokens = 0;
  };
  /// The longest kept prefix of `tokens` with at most `most` of them, one full page at least.
  std::optional<Hit> find(const std::string& scope, std::span<const TokenId> tokens, int most);
  /// Takes a row that holds `tokens` (row.length() of them) over.
  void keep(const std::string& scope, std::span<const TokenId> tokens, RowState row);
  /// Lets the coldest entry go, for its pages; false when there is none.
  bool evict();
  /// Lets the entry of exactly these tokens go.
  void forget(const std::string& scope, std::span<const TokenId> tokens);
  void clear();
  /// Told of entries that evict() lets go.
  using Evicted = std::function<void(const std::string& scope, std::span<const TokenId> tokens)>;
  void on_evict(Evicted told) { evicted_ = std::move(told); }

  size_t bytes() const;
  int entries() const { return static_cast<int>(entries_.size()); }
  size_t capacity() const { return bounds_.bytes; }
  size_t recurrent_capacity() const { return std::min(bounds_.bytes, bounds_.recurrent_bytes); }
  struct Figures {
    uint64_t over_budget = 0, for_pages = 0, expired = 0;  // entries that were let go
    uint64_t superseded = 0;                               // by a longer entry that can be cut to them
    uint64_t too_short = 0, too_large = 0;                 // rows that were not kept
  };
  const Figures& figures() const { return figures_; }
  size_t recurrent_bytes() const { return recurrent_bytes_; }

 private:
  struct Entry {
    std::string scope;
    std::vector<TokenId> tokens;
    std::vector<uint64_t> chain;  // a hash for every full page
    std::unique_ptr<KeptRow> row;
    TimePoint used = {};
    bool replaced = false;  // a longer entry goes on from here
  };
  using Entries = std::list<Entry>;  // the latest used first

  std::optional<Hit> look_up(const std::string& scope, std::span<const TokenId> tokens, int most);
  static std::vector<uint64_t> chain_of(const std::string& scope, std::span<const TokenId> tokens);
  static int shared(const Entry& entry, const std::string& scope, std::span<const TokenId> tokens);
  void remove(Entries::iterator entry);
  bool let_go();
  void let_go(Entries::iterator victim);
  void expire();
  bool over_bounds() const;
  void touch(Entries::iterator entry) {
    entry->used = Clock::now();
    entries_.splice(entries_.begin(), entries_, entry);
  }
  bool settle_with_others(const std::string& scope, std::span<const TokenId> tokens,
                          const std::vector<uint64_t>& chain, const KeptRow& row);

  StateStore& store_;
  const Bounds bounds_;
  Entries entries_;
  std::unordered_multimap<uint64_t, Entries::iterator> by_page_;
  size_t recurrent_bytes_ = 0;
  Figures figures_;
  Evicted evicted_;
  bool too_large_told_ = false;
};

}  // namespace mlxcel
