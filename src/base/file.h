// Files: bounded reads, private memory maps of a part of a file, and writes that appear whole or not at all.
// Owner: values and shared_ptr; a map lives as long as its holder. Thread: reads any, concurrently.
// Failure: not_found for a missing file, bad_checkpoint for a read or map past the end, internal for the
// operating system's refusals; the message names the path.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace mlxcel {

/// Part of a file in memory. Pages come in when touched and go with the last holder. From map() it is private
/// and writable: a write copies the page for this holder alone and never reaches the file.
class MappedRange {
 public:
  MappedRange(void* base, size_t mapped, size_t lead, size_t size);
  ~MappedRange();
  MappedRange(const MappedRange&) = delete;
  MappedRange& operator=(const MappedRange&) = delete;

  std::byte* data() const { return static_cast<std::byte*>(base_) + lead_; }
  size_t size() const { return size_; }
  std::span<const std::byte> bytes() const { return {data(), size_}; }

 private:
  void* base_;
  size_t mapped_, lead_, size_;
};

/// An open file of fixed size.
class File {
 public:
  static std::shared_ptr<const File> open(const std::filesystem::path& path);
  ~File();
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  const std::filesystem::path& path() const { return path_; }
  uint64_t size() const { return size_; }
  void read(uint64_t offset, std::span<std::byte> into) const;
  /// The range [offset, offset + length), about to be read as a whole. Where `offset` is 8 or more, the 8
  /// bytes before it are mapped too.
  std::shared_ptr<MappedRange> map(uint64_t offset, uint64_t length) const {
    return map_range(offset, length, true);
  }
  /// The same to look into here and there: read-only, nothing read ahead.
  std::shared_ptr<const MappedRange> view(uint64_t offset, uint64_t length) const {
    return map_range(offset, length, false);
  }

 private:
  File(std::filesystem::path path, int descriptor, uint64_t size);
  std::shared_ptr<MappedRange> map_range(uint64_t offset, uint64_t length, bool tensor) const;
  std::filesystem::path path_;
  int descriptor_;
  uint64_t size_;
};

/// The whole of a file of at most `limit` bytes.
std::string read_file(const std::filesystem::path& path, size_t limit);

/// A file under construction beside its final name. commit() makes it durable and renames it; without commit
/// it vanishes with its owner.
class AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  uint64_t written() const { return written_; }
  void commit();

 private:
  std::filesystem::path path_, partial_;
  int descriptor_ = -1;
  uint64_t written_ = 0;
};

void write_file_atomically(const std::filesystem::path& path, std::string_view bytes);

}  // namespace mlxcel
