#include "server/stream_log.h"

#include <chrono>
#include <utility>

namespace mlxcel {
namespace {

constexpr size_t kMostKept = size_t{4} << 20;
constexpr size_t kMostFinished = 256;
constexpr double kFinishedSeconds = 300;

int64_t unix_now() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

class RecordedExchange final : public Exchange, public std::enable_shared_from_this<RecordedExchange> {
 public:
  RecordedExchange(std::shared_ptr<Exchange> inner, StreamLogs& logs, std::string id)
      : inner_(std::move(inner)), logs_(logs), id_(std::move(id)) {}

  HttpRequest& request() override { return inner_->request(); }
  void post(std::function<void()> work) override { inner_->post(std::move(work)); }
  bool run_blocking(std::function<void()> work) override { return inner_->run_blocking(std::move(work)); }
  void respond(HttpResponse response) override { inner_->respond(std::move(response)); }

  void open_stream(HttpResponse head, int ping_seconds) override {
    log_ = logs_.begin(id_, inner_->request().key_label);
    // Whoever cancels comes from another connection's thread.
    log_->on_cancel([weak = weak_from_this()] {
      if (const auto self = weak.lock()) {
        self->inner_->post([self] {
          if (self->abort_) std::exchange(self->abort_, nullptr)("cancelled by the client");
          // Who sent the request may still be reading.
          self->close_stream();
        });
      }
    });
    streaming_ = true;
    inner_->open_stream(std::move(head), ping_seconds);
  }
  void write(std::string bytes) override {
    if (log_) log_->append(bytes);
    if (!gone_) inner_->write(std::move(bytes));
  }
  void close_stream() override {
    streaming_ = false;
    end_log();
    if (!gone_) inner_->close_stream();
  }
  bool answered() const override { return inner_->answered(); }
  bool streaming() const override { return streaming_; }

  void on_abort(std::function<void(const std::string&)> handler) override {
    abort_ = std::move(handler);
    registering_ = true;
    inner_->on_abort([weak = weak_from_this()](const std::string& reason) {
      const auto self = weak.lock();
      if (!self) return;
      self->gone_ = true;
      // Who left while the model was loading left a stream that had not begun.
      const bool goes_on = (self->streaming_ || self->registering_) && reason != "shutdown";
      if (!goes_on && self->abort_) std::exchange(self->abort_, nullptr)(reason);
    });
    registering_ = false;
  }
  void watch_progress(double seconds, std::function<void()> handler) override {
    inner_->watch_progress(seconds, std::move(handler));
  }
  void progress() override { inner_->progress(); }

 private:
  void end_log() {
    if (log_) log_->finish(unix_now());
  }

  const std::shared_ptr<Exchange> inner_;
  StreamLogs& logs_;
  const std::string id_;
  std::shared_ptr<StreamLog> log_;
  std::function<void(const std::string&)> abort_;
  bool streaming_ = false, gone_ = false, registering_ = false;
};

}  // namespace

void StreamLog::append(const std::string& bytes) {
  const std::lock_guard lock(mutex_);
  kept_ += bytes;
  if (kept_.size() > kMostKept) {
    const size_t gone = kept_.size() - kMostKept;
    kept_.erase(0, gone);
    first_ += gone;
  }
  for (const auto& weak : followers_) {
    if (const auto exchange = weak.lock()) exchange->post([exchange, bytes] { exchange->write(bytes); });
  }
}

void StreamLog::finish(int64_t now) {
  const std::lock_guard lock(mutex_);
  if (done_) return;
  done_ = true;
  completed_ = now;
  for (const auto& weak : followers_) {
    if (const auto exchange = weak.lock()) exchange->post([exchange] { exchange->close_stream(); });
  }
  followers_.clear();
  cancel_ = nullptr;
}

bool StreamLog::follow(const std::shared_ptr<Exchange>& exchange, size_t offset, HttpResponse head,
                       int ping_seconds) {
  const std::lock_guard lock(mutex_);
  if (offset < first_ || offset > first_ + kept_.size()) return false;
  exchange->open_stream(std::move(head), ping_seconds);
  exchange->write(kept_.substr(offset - first_));
  if (done_)
    exchange->close_stream();
  else
    followers_.push_back(exchange);
  return true;
}

void StreamLog::on_cancel(std::function<void()> cancel) {
  const std::lock_guard lock(mutex_);
  cancel_ = std::move(cancel);
}

void StreamLog::cancel() {
  std::function<void()> action;
  {
    const std::lock_guard lock(mutex_);
    action = cancel_;
  }
  if (action) action();
}

StreamLog::State StreamLog::state() const {
  const std::lock_guard lock(mutex_);
  return {done_, first_ + kept_.size(), started_, completed_};
}

void StreamLogs::forget_old() {
  const auto now = Clock::now();
  size_t finished = 0;
  for (auto it = logs_.begin(); it != logs_.end();) {
    const bool done = it->second.log->state().done;
    if (done && seconds_between(it->second.since, now) > kFinishedSeconds) {
      it = logs_.erase(it);
      continue;
    }
    finished += done;
    ++it;
  }
  while (finished-- > kMostFinished) {
    auto oldest = logs_.end();
    for (auto it = logs_.begin(); it != logs_.end(); ++it) {
      if (it->second.log->state().done && (oldest == logs_.end() || it->second.since < oldest->second.since))
        oldest = it;
    }
    logs_.erase(oldest);
  }
}

std::shared_ptr<StreamLog> StreamLogs::begin(const std::string& id, const std::string& key) {
  const std::lock_guard lock(mutex_);
  auto log = std::make_shared<StreamLog>(unix_now());
  logs_[{key, id}] = {log, Clock::now()};
  forget_old();
  return log;
}

std::shared_ptr<StreamLog> StreamLogs::find(const std::string& id, const std::string& key) {
  const std::lock_guard lock(mutex_);
  forget_old();
  const auto found = logs_.find({key, id});
  return found == logs_.end() ? nullptr : found->second.log;
}

void StreamLogs::park(const std::string& id, const std::string& key, std::function<void()> cancel) {
  const std::lock_guard lock(mutex_);
  parked_[{key, id}] = std::move(cancel);
}

void StreamLogs::unpark(const std::string& id, const std::string& key) {
  const std::lock_guard lock(mutex_);
  parked_.erase({key, id});
}

bool StreamLogs::parked(const std::string& id, const std::string& key) {
  const std::lock_guard lock(mutex_);
  return parked_.contains({key, id});
}

bool StreamLogs::cancel(const std::string& id, const std::string& key) {
  std::function<void()> waiting;
  std::shared_ptr<StreamLog> log;
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = parked_.find({key, id}); found != parked_.end()) {
      waiting = std::move(found->second);
      parked_.erase(found);
    }
    if (const auto found = logs_.find({key, id}); found != logs_.end()) {
      log = std::move(found->second.log);
      logs_.erase(found);
    }
  }
  if (waiting) waiting();
  if (log) log->cancel();
  return waiting || log;
}

std::string conversation_of(const HttpRequest& request) {
  std::string id(request.header("x-conversation-id"));
  return request.method == "POST" && id.size() <= 256 ? id : std::string();
}

std::shared_ptr<Exchange> recorded(std::shared_ptr<Exchange> exchange, StreamLogs& logs,
                                   const std::string& id) {
  return std::make_shared<RecordedExchange>(std::move(exchange), logs, id);
}

}  // namespace mlxcel
