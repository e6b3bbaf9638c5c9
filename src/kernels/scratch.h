// Memory that kernels keep between calls. Owner: a thread or a plan. Thread: its owner's.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <new>

namespace mlxcel::kernels {

/// Grow-only, 64-byte aligned: allocates nothing once warm. Its content does not outlive the next get().
class Scratch {
 public:
  Scratch() = default;
  ~Scratch() { std::free(data_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  template <class T>
  T* get(size_t count) {
    const size_t bytes = (count * sizeof(T) + 63) / 64 * 64;
    if (bytes > size_) {
      std::free(data_);
      size_ = 0;
      data_ = std::aligned_alloc(64, bytes);
      if (!data_) throw std::bad_alloc();
      size_ = bytes;
    }
    return static_cast<T*>(data_);
  }

 private:
  void* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace mlxcel::kernels
