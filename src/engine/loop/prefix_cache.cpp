#include "engine/loop/prefix_cache.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "base/log.h"
#include "base/memory.h"

namespace mlxcel {
namespace {

constexpr size_t kMostLooks = 64;  // entries compared for one page of a prompt

bool is_one(const char* variable) {
  const char* text = std::getenv(variable);
  return text != nullptr && std::string_view(text) == "1";
}

uint64_t mix(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
  return hash ^ (hash >> 29);
}

}  // namespace

PrefixCache::PrefixCache(StateStore& store, const Bounds& bounds) : store_(store), bounds_(bounds) {}

std::vector<uint64_t> PrefixCache::chain_of(const std::string& scope, std::span<const TokenId> tokens) {
  uint64_t hash = mix(0x243F6A8885A308D3u, scope.size());
  for (const char c : scope) hash = mix(hash, static_cast<unsigned char>(c));
  std::vector<uint64_t> chain(tokens.size() / kPageTokens);
  for (size_t page = 0; page < chain.size(); ++page) {
    for (const TokenId id : tokens.subspan(page * kPageTokens, kPageTokens))
      hash = mix(hash, static_cast<uint32_t>(id));
    chain[page] = hash;
  }
  return chain;
}

// Tokens that both begin with; hashes may lie.
int PrefixCache::shared(const Entry& entry, const std::string& scope, std::span<const TokenId> tokens) {
  if (entry.scope != scope) return 0;
  const auto most = std::min(entry.tokens.size(), tokens.size());
  const auto end = entry.tokens.begin() + static_cast<std::ptrdiff_t>(most);
  return static_cast<int>(std::mismatch(entry.tokens.begin(), end, tokens.begin()).first -
                          entry.tokens.begin());
}

std::optional<PrefixCache::Hit> PrefixCache::find(const std::string& scope, std::span<const TokenId> tokens,
                                                  int most) {
  expire();
  auto hit = look_up(scope, tokens, most);
  static const bool told = is_one("MLXCEL_APC_TRACE");
  if (told)
    log::info("engine", "prompt cache: {} tokens looked up among {} entries: {}", tokens.size(),
              entries_.size(), hit ? fmt::format("{} are kept", hit->tokens) : "a miss");
  return hit;
}

std::optional<PrefixCache::Hit> PrefixCache::look_up(const std::string& scope,
                                                     std::span<const TokenId> tokens, int most) {
  const auto chain = chain_of(scope, tokens);
  int longest = 0;  // of any entry, for the log
  for (size_t page = chain.size(); page-- > 0;) {
    auto [at, end] = by_page_.equal_range(chain[page]);
    int best = 0;
    auto found = entries_.end();
    for (size_t looks = 0; at != end && looks < kMostLooks; ++at, ++looks) {
      const int common = shared(*at->second, scope, tokens);
      longest = std::max(longest, common);
      if (bounds_.whole_only && std::min(common, most) < at->second->row->length()) continue;
      const int usable = at->second->row->usable(std::min(common, most));
      if (usable > best) best = usable, found = at->second;
    }
    if (best < bounds_.least) continue;
    touch(found);
    return Hit{found->row->fork(best), best};
  }
  if (longest > 0 && longest < static_cast<int>(tokens.size()))
    log::debug("engine", "prompt cache: the best candidate differs from token {} of {}", longest,
               tokens.size());
  return std::nullopt;
}

// What the new row makes superfluous; true when that is the row itself.
bool PrefixCache::settle_with_others(const std::string& scope, std::span<const TokenId> tokens,
                                     const std::vector<uint64_t>& chain, const KeptRow& row) {
  const int length = static_cast<int>(tokens.size());
  for (size_t page = 0; page < chain.size(); ++page) {
    std::vector<Entries::iterator> others;
    auto [at, end] = by_page_.equal_range(chain[page]);
    for (size_t looks = 0; at != end && looks < kMostLooks; ++at, ++looks)
      if (page + 1 == chain.size() || at->second->chain.size() == page + 1) others.push_back(at->second);
    for (const auto other : others) {
      const int common = shared(*other, scope, tokens);
      const bool whole = bounds_.whole_only;  // an entry stands for itself alone then
      if (common == length && (whole ? other->row->length() : other->row->usable(length)) == length) {
        touch(other);
        return true;
      }
      if (common < static_cast<int>(other->tokens.size())) continue;
      if (!whole && row.usable(common) == common) {
        ++figures_.superseded;
        remove(other);
      } else {
        other->replaced = true;
      }
    }
  }
  return false;
}

void PrefixCache::keep(const std::string& scope, std::span<const TokenId> tokens, RowState row) {
  expire();
  if (row.length() < bounds_.least) {
    ++figures_.too_short;
    return;
  }
  tokens = tokens.first(static_cast<size_t>(row.length()));
  auto kept = std::make_unique<KeptRow>(std::move(row));
  auto chain = chain_of(scope, tokens);
  if (settle_with_others(scope, tokens, chain, *kept)) return;
  recurrent_bytes_ += kept->recurrent_bytes();
  entries_.push_front(
      {scope, {tokens.begin(), tokens.end()}, std::move(chain), std::move(kept), Clock::now()});
  for (const uint64_t hash : entries_.front().chain) by_page_.emplace(hash, entries_.begin());
  while (over_bounds() && entries_.size() > 1 && let_go()) ++figures_.over_budget;
  if (!over_bounds()) return;
  if (!too_large_told_)
    log::warn("engine", "prompt cache: an entry of {}, {} of it states, is over the {} and {} there may be",
              format_bytes(bytes()), format_bytes(recurrent_bytes_), format_bytes(capacity()),
              format_bytes(recurrent_capacity()));
  too_large_told_ = true;
  ++figures_.too_large;
  remove(entries_.begin());
}

void PrefixCache::remove(Entries::iterator entry) {
  for (const uint64_t hash : entry->chain) {
    auto [at, end] = by_page_.equal_range(hash);
    while (at != end && at->second != entry) ++at;
    if (at != end) by_page_.erase(at);
  }
  recurrent_bytes_ -= entry->row->recurrent_bytes();
  entries_.erase(entry);
}

bool PrefixCache::evict() {
  const bool gone = let_go();
  figures_.for_pages += gone ? 1 : 0;
  return gone;
}

void PrefixCache::forget(const std::string& scope, std::span<const TokenId> tokens) {
  const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) {
    return entry.scope == scope &&
           std::equal(entry.tokens.begin(), entry.tokens.end(), tokens.begin(), tokens.end());
  });
  if (found != entries_.end()) remove(found);
}

// One that a longer entry replaced, else the one used longest ago.
bool PrefixCache::let_go() {
  if (entries_.empty()) return false;
  auto victim = std::prev(entries_.end());
  for (auto at = entries_.end(); at != entries_.begin();)
    if ((--at)->replaced) {
      victim = at;
      break;
    }
  let_go(victim);
  return true;
}

void PrefixCache::let_go(Entries::iterator victim) {
  if (evicted_) evicted_(victim->scope, victim->tokens);
  remove(victim);
}

bool PrefixCache::over_bounds() const {
  return bytes() > bounds_.bytes || recurrent_bytes_ > bounds_.recurrent_bytes ||
         entries_.size() > bounds_.entries;
}

// Entries stand in the order of their last use.
void PrefixCache::expire() {
  if (bounds_.ttl_s <= 0.0) return;
  const TimePoint now = Clock::now();
  while (!entries_.empty() && seconds_between(entries_.back().used, now) > bounds_.ttl_s) {
    let_go(std::prev(entries_.end()));
    ++figures_.expired;
  }
}

void PrefixCache::clear() {
  if (evicted_)
    for (const Entry& entry : entries_) evicted_(entry.scope, entry.tokens);
  by_page_.clear();
  entries_.clear();
  recurrent_bytes_ = 0;
}

size_t PrefixCache::bytes() const { return kept_page_bytes(store_) + recurrent_bytes_; }

}  // namespace mlxcel
