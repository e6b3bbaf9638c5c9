#include "server/downloads.h"

#include <utility>

#include "api/error.h"
#include "base/log.h"
#include "hub/download.h"
#include "hub/endpoint.h"

namespace mlxcel {
namespace {

constexpr size_t kMostAtOnce = 4;

struct Cancelled : std::runtime_error {
  Cancelled() : std::runtime_error("cancelled") {}
};

}  // namespace

class Downloads::Observer final : public DownloadObserver {
 public:
  explicit Observer(Job& job) : job_(job) {}
  void note(const std::string& text) override {
    stop_when_asked();
    tell(job_, {.status = text, .file = "", .total = 0, .done = 0, .last = false, .error = ""});
  }
  void plan(const std::vector<File>& files) override {
    stop_when_asked();
    files_ = files;
  }
  void progress(size_t index, std::uint64_t done) override {
    stop_when_asked();
    say(index, done);
  }
  void finished(size_t index) override { say(index, files_.at(index).size); }

 private:
  void stop_when_asked() const {
    if (job_.cancelled) throw Cancelled();
  }
  void say(size_t index, uint64_t done) {
    const File& file = files_.at(index);
    tell(job_, {.status = "pulling " + file.path,
                .file = file.path,
                .total = file.size,
                .done = done,
                .last = false,
                .error = ""});
  }
  Job& job_;
  std::vector<File> files_;
};

Downloads::~Downloads() {
  std::vector<std::shared_ptr<Job>> all;
  {
    const std::lock_guard lock(mutex_);
    for (auto& [model, job] : jobs_) all.push_back(job);
    all.insert(all.end(), finished_.begin(), finished_.end());
  }
  for (auto& job : all) job->cancelled = true;
  for (auto& job : all) {
    if (job->thread.joinable()) job->thread.join();
  }
}

void Downloads::tell(Job& job, News news) {
  std::vector<Listener> listeners;
  {
    const std::lock_guard lock(job.mutex);
    job.latest = news;
    job.over = job.over || news.last;
    listeners = job.listeners;
  }
  for (const auto& listener : listeners) listener(news);
}

void Downloads::join_finished() {
  for (auto& job : finished_) {
    if (job->thread.joinable()) job->thread.join();
  }
  finished_.clear();
}

void Downloads::start(const std::filesystem::path& root, const std::string& model, Listener listener) {
  const Reference reference = parse_repository(model);
  if (offline()) refuse(400, "invalid_request_error", "this server has no network (--offline)");
  const std::lock_guard lock(mutex_);
  join_finished();
  if (const auto running = jobs_.find(model); running != jobs_.end()) {
    Job& job = *running->second;
    const std::lock_guard guard(job.mutex);
    if (job.over)
      listener(job.latest);
    else
      job.listeners.push_back(std::move(listener));
    return;
  }
  if (jobs_.size() >= kMostAtOnce) refuse(503, "server_busy", "{} downloads are running", jobs_.size());
  const auto job = std::make_shared<Job>();
  if (listener) job->listeners.push_back(std::move(listener));
  jobs_[model] = job;
  job->thread = std::thread([this, root, model, job] { run(root, model, job); });
}

void Downloads::run(const std::filesystem::path& root, const std::string& model,
                    const std::shared_ptr<Job>& job) {
  News end;
  end.last = true;
  end.status = "success";
  try {
    tell(*job, {.status = "pulling manifest", .file = "", .total = 0, .done = 0, .last = false, .error = ""});
    const Reference source = download_source(parse_repository(model));
    Observer observer(*job);
    download_model(source,
                   {.folder = root / source.owner / source.name, .revision = "", .file = "", .token = ""},
                   observer);
    for (const char* status : {"verifying sha256 digest", "writing manifest"})
      tell(*job, {.status = status, .file = "", .total = 0, .done = 0, .last = false, .error = ""});
    log::info("server", "fetched {}", model);
  } catch (const std::exception& error) {
    end.status = "error";
    end.error = error.what();
    log::warn("server", "fetching {}: {}", model, error.what());
  }
  {
    const std::lock_guard lock(mutex_);
    jobs_.erase(model);
    finished_.push_back(job);
  }
  tell(*job, end);
}

bool Downloads::cancel(const std::string& model) {
  const std::lock_guard lock(mutex_);
  const auto found = jobs_.find(model);
  if (found == jobs_.end()) return false;
  found->second->cancelled = true;
  return true;
}

std::vector<std::string> Downloads::running() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> out;
  for (const auto& [model, job] : jobs_) out.push_back(model);
  return out;
}

}  // namespace mlxcel
