#include "engine/loop/draft_policy.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"

namespace mlxcel {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kVersion = 1;
constexpr size_t kMostBytes = size_t{64} << 10;

uint64_t hash_of(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return hash;
}

}  // namespace

DraftPolicy::DraftPolicy(std::filesystem::path directory, Key key)
    : directory_(std::move(directory)), key_(std::move(key)) {
  if (!directory_.empty() && restore()) return;
  measuring_ = true;
  state_ = "profiling";
  reason_ = "measuring";
}

DraftPolicy DraftPolicy::forced(Key key, std::string reason) {
  DraftPolicy policy;
  policy.key_ = std::move(key);
  policy.reason_ = std::move(reason);
  return policy;
}

DraftPolicy& DraftPolicy::operator=(DraftPolicy&& o) noexcept {
  directory_ = std::move(o.directory_);
  key_ = std::move(o.key_);
  drafts_ = o.drafts_, measuring_ = o.measuring_, in_turn_ = o.in_turn_;
  now_ = o.now_, all_ = o.all_, samples_ = o.samples_, gain_ = o.gain_;
  state_ = std::move(o.state_);
  reason_ = std::move(o.reason_);
  return *this;
}

std::filesystem::path DraftPolicy::file() const {
  const std::string text =
      fmt::format("{}\n{}\n{}\n{}", key_.target, key_.drafter, key_.hardware, key_.block);
  return directory_ / fmt::format("{:016x}.json", hash_of(text));
}

bool DraftPolicy::restore() {
  try {
    if (!std::filesystem::exists(file())) return false;
    const Json kept = Json::parse(read_file(file(), kMostBytes));
    if (kept.at("version") != kVersion || kept.at("target") != key_.target ||
        kept.at("drafter") != key_.drafter || kept.at("hardware") != key_.hardware ||
        kept.at("block_size") != key_.block)
      return false;
    const auto verdict = kept.at("verdict").get<std::string>();
    const double with = kept.at("with").get<double>(), without = kept.at("without").get<double>();
    if ((verdict != "enable" && verdict != "disable") || !(with > 0.0) || !(without > 0.0)) return false;
    drafts_ = verdict == "enable";
    gain_ = with / without;
    all_ = {Way{1e3, static_cast<int>(std::min(without, 1e6))},
            Way{1e3, static_cast<int>(std::min(with, 1e6))}};
    samples_ = kSamples;
    state_ = "settled";
    reason_ = "kept";
    return true;
  } catch (const std::exception& error) {
    log::warn("engine", "{}: no verdict on drafts: {}", file().string(), error.what());
    return false;
  }
}

void DraftPolicy::keep() const {
  if (directory_.empty()) return;
  try {
    std::filesystem::create_directories(directory_);
    Json out;
    out["version"] = kVersion;
    out["target"] = key_.target;
    out["drafter"] = key_.drafter;
    out["hardware"] = key_.hardware;
    out["block_size"] = key_.block;
    out["verdict"] = drafts_ ? "enable" : "disable";
    out["with"] = all_[1].rate();
    out["without"] = all_[0].rate();
    write_file_atomically(file(), out.dump(2) + "\n");
    ::chmod(file().c_str(), 0600);
  } catch (const std::exception& error) {
    log::warn("engine", "{}: the verdict on drafts is not kept: {}", directory_.string(), error.what());
  }
}

void DraftPolicy::observe(int tokens, double ms) {
  if (!measuring_ || tokens < 1 || !(ms > 0.0)) return;
  Way& way = now_[drafts_ ? 1 : 0];
  way.ms += ms;
  way.tokens += tokens;
  in_turn_ += tokens;
  if (in_turn_ < kTurn) return;
  in_turn_ = 0;
  drafts_ = !drafts_;
}

void DraftPolicy::ended(bool counts) {
  if (!measuring_) return;
  if (counts && now_[0].tokens >= kLeastTokens && now_[1].tokens >= kLeastTokens) {
    const std::lock_guard lock(mutex_);
    for (size_t i = 0; i < now_.size(); ++i) {
      all_[i].ms += now_[i].ms;
      all_[i].tokens += now_[i].tokens;
    }
    if (++samples_ == kSamples) settle();
  }
  now_ = {};
}

void DraftPolicy::settle() {
  measuring_ = false;
  gain_ = all_[1].rate() / all_[0].rate();
  drafts_ = gain_ >= kLeastGain;
  state_ = "settled";
  reason_ = "measured";
  log::info("engine", "drafts {}: {:.1f} tokens a second with them, {:.1f} without",
            drafts_ ? "pay" : "do not pay", all_[1].rate(), all_[0].rate());
  keep();
}

DraftPolicyReport DraftPolicy::report() const {
  const std::lock_guard lock(mutex_);
  DraftPolicyReport report;
  report.state = state_;
  report.reason = reason_;
  report.drafter = key_.drafter;
  report.hardware = key_.hardware;
  report.block_size = key_.block;
  report.samples = samples_;
  report.samples_required = state_ == "forced" ? 0 : kSamples;
  report.enabled = state_ != "settled" || gain_ >= kLeastGain;
  if (state_ == "settled") {
    report.verdict = report.enabled ? "enable" : "disable";
    report.detail = fmt::format("{:.2f} times as fast with drafts as without", gain_);
  }
  return report;
}

}  // namespace mlxcel
