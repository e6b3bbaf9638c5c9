#include "engine/loop/model_thread.h"

#include <mlx/stream.h>

#include <algorithm>
#include <future>

#include "base/worker_pool.h"
#include "tensor/tensor.h"

namespace mlxcel {

std::shared_ptr<ModelThread> ModelThread::shared() {
  static std::mutex mutex;
  static std::weak_ptr<ModelThread> current;
  const std::lock_guard lock(mutex);
  auto thread = current.lock();
  if (!thread) current = thread = std::make_shared<ModelThread>();
  return thread;
}

ModelThread::ModelThread() : thread_([this] { run(); }) {}

ModelThread::~ModelThread() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  ready_.notify_all();
  thread_.join();
}

void ModelThread::call(const std::function<void()>& job) {
  std::promise<void> done;
  auto result = done.get_future();
  {
    const std::lock_guard lock(mutex_);
    jobs_.emplace_back([&] {
      try {
        job();
        done.set_value();
      } catch (...) {
        done.set_exception(std::current_exception());
      }
    });
  }
  ready_.notify_all();
  result.get();
}

void ModelThread::add(Guest* guest) { guests_.push_back(guest); }
void ModelThread::remove(Guest* guest) { std::erase(guests_, guest); }

void ModelThread::wake() {
  {
    const std::lock_guard lock(mutex_);
    ++wakes_;
  }
  ready_.notify_all();
}

bool ModelThread::take_jobs() {
  std::unique_lock lock(mutex_);
  while (!jobs_.empty()) {
    const auto job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    job();
    lock.lock();
  }
  return !stop_;
}

void ModelThread::run() {
  mx::default_stream(mx::default_device());  // this thread's own stream, before any graph
  while (take_jobs()) {
    uint64_t seen = 0;
    {
      const std::lock_guard lock(mutex_);
      seen = wakes_;
    }
    bool worked = false;
    for (Guest* guest : guests_) worked |= guest->turn();
    if (worked) continue;
    if (!guests_.empty() && kernel_mode() == KernelMode::native) WorkerPool::shared().park();
    std::unique_lock lock(mutex_);
    ready_.wait(lock, [&] { return stop_ || !jobs_.empty() || wakes_ != seen; });
  }
  mx::clear_streams();
}

}  // namespace mlxcel
