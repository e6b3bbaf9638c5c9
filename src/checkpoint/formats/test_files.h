// For tests: a folder that goes away, and files made from parts that may lie.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "tensor/external.h"

namespace mlxcel::testing_files {

namespace fs = std::filesystem;

class Folder {
 public:
  Folder() {
    static std::atomic<int> serial{0};
    // Memory where there is some: the mutation tests write thousands of files.
    const fs::path root = fs::is_directory("/dev/shm") ? fs::path("/dev/shm") : fs::temp_directory_path();
    path_ = root / fmt::format("mlxcel_checkpoint_test_{}_{}", ::getpid(), serial++);
    fs::create_directories(path_);
  }
  ~Folder() { fs::remove_all(path_); }
  fs::path operator/(const std::string& name) const { return path_ / name; }
  const fs::path& path() const { return path_; }
  fs::path put(const std::string& name, const std::string& bytes) const {
    std::ofstream(path_ / name, std::ios::binary) << bytes;
    return path_ / name;
  }

 private:
  fs::path path_;
};

/// The error an action ends in, or a failed test.
struct Caught {
  ErrorKind kind = ErrorKind::internal;
  std::string message = "no error";
};
inline Caught caught(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return {error.kind(), error.what()};
  }
  ADD_FAILURE() << "expected an error";
  return {};
}
inline void expect_error(const std::function<void()>& action, ErrorKind kind,
                         const std::vector<std::string>& parts) {
  const Caught error = caught(action);
  EXPECT_EQ(error.kind, kind) << error.message;
  for (const std::string& part : parts)
    EXPECT_NE(error.message.find(part), std::string::npos) << error.message;
}

template <class T>
std::string raw(T value) {
  std::string out(sizeof(T), '\0');
  std::memcpy(out.data(), &value, sizeof(T));
  return out;
}

/// A safetensors file: this header, that data.
inline std::string safetensors(const std::string& header, const std::string& data) {
  return raw<uint64_t>(header.size()) + header + data;
}

/// A GGUF file, little endian, alignment 32.
class Gguf {
 public:
  uint32_t version = 3;

  static std::string text(const std::string& value) { return raw<uint64_t>(value.size()) + value; }
  Gguf& pair(const std::string& key, uint32_t type, const std::string& value) {
    ++pairs_;
    metadata_ += text(key) + raw(type) + value;
    return *this;
  }
  Gguf& integer(const std::string& key, uint32_t value) { return pair(key, 4, raw(value)); }
  Gguf& number(const std::string& key, float value) { return pair(key, 6, raw(value)); }
  Gguf& boolean(const std::string& key, bool value) { return pair(key, 7, raw<uint8_t>(value)); }
  Gguf& string(const std::string& key, const std::string& value) { return pair(key, 8, text(value)); }
  /// Axes as ggml has them: fastest first.
  Gguf& tensor(const std::string& name, uint32_t type, const std::vector<uint64_t>& axes,
               const std::string& data) {
    tensor_at(name, type, axes, data_.size());
    data_ += data;
    data_.append((32 - data_.size() % 32) % 32, '\0');
    return *this;
  }
  Gguf& tensor_at(const std::string& name, uint32_t type, const std::vector<uint64_t>& axes,
                  uint64_t offset) {
    ++tensors_;
    table_ += text(name) + raw(static_cast<uint32_t>(axes.size()));
    for (const uint64_t axis : axes) table_ += raw(axis);
    table_ += raw(type) + raw(offset);
    return *this;
  }
  std::string bytes() const {
    std::string out =
        "GGUF" + raw(version) + raw<uint64_t>(tensors_) + raw<uint64_t>(pairs_) + metadata_ + table_;
    out.append((32 - out.size() % 32) % 32, '\0');
    return out + data_;
  }

 private:
  uint64_t pairs_ = 0, tensors_ = 0;
  std::string metadata_, table_, data_;
};

inline array filled(const Shape& shape, mx::Dtype dtype, const void* data) {
  array out = allocated(shape, dtype);
  if (out.nbytes() > 0) std::memcpy(mutable_bytes(out), data, out.nbytes());
  return out;
}
inline array numbers(const Shape& shape, float first = 0, float step = 1) {
  array out = allocated(shape, mx::float32);
  float* to = out.data<float>();
  for (size_t i = 0; i < out.size(); ++i) to[i] = first + step * static_cast<float>(i);
  return out;
}

}  // namespace mlxcel::testing_files
