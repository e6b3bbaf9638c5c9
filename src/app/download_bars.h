// What a download shows: a bar for each running file and one for all, on a terminal; notes as lines on
// stderr. Thread: the observer's (one at a time).
#pragma once

#include <chrono>
#include <vector>

#include "hub/download.h"

namespace mlxcel::app {

class DownloadBars final : public DownloadObserver {
 public:
  DownloadBars();
  ~DownloadBars() override;
  void note(const std::string& text) override;
  void plan(const std::vector<File>& files) override;
  void progress(std::size_t index, std::uint64_t done) override;
  void finished(std::size_t index) override;

 private:
  using Clock = std::chrono::steady_clock;
  void draw(bool always);
  void clear();

  bool bars_;
  std::vector<File> files_;
  std::vector<bool> running_;
  std::uint64_t before_ = 0;  // bytes that were here at the start
  int lines_ = 0;             // drawn now
  Clock::time_point begun_, drawn_{};
};

}  // namespace mlxcel::app
