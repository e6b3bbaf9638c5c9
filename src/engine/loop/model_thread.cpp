#include "engine/loop/model_thread.h"

#include <mlx/stream.h>

#include <algorithm>
#include <exception>
#include <future>
#include <memory>
#include <thread>

#include "base/worker_pool.h"
#include "tensor/tensor.h"

namespace mlxcel {

ModelThread& ModelThread::shared() {
  // Never destroyed: the thread uses it to the end of the process.
  static ModelThread* instance = new ModelThread;
  return *instance;
}

void ModelThread::call(const std::function<void()>& job) {
  // Not before the first job, which somebody waits for: a program that ends at once (a flag that contradicts
  // the model) would otherwise let go of MLX's globals while this thread is still making its stream.
  std::call_once(begun_, [this] { std::thread([this] { run(); }).detach(); });
  // Shared: the thread may still be inside set_value() when this call returns.
  const auto done = std::make_shared<std::promise<void>>();
  auto result = done->get_future();
  std::exception_ptr failure;
  {
    const std::lock_guard lock(mutex_);
    jobs_.emplace_back([&job, &failure, done] {
      try {
        job();
      } catch (...) {
        failure = std::current_exception();
      }
      done->set_value();
    });
  }
  ready_.notify_all();
  result.get();
  if (failure) std::rethrow_exception(failure);
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

void ModelThread::take_jobs() {
  std::unique_lock lock(mutex_);
  while (!jobs_.empty()) {
    const auto job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    job();
    lock.lock();
  }
}

void ModelThread::run() {
  mx::default_stream(mx::default_device());  // this thread's own stream, before any graph
  while (true) {
    take_jobs();
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
    ready_.wait(lock, [&] { return !jobs_.empty() || wakes_ != seen; });
  }
}

}  // namespace mlxcel
