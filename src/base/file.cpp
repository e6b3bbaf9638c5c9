#include "base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "base/error.h"

namespace mlxcel {

namespace {

constexpr uint64_t kLead = 8;

ErrorKind kind_of(int code) {
  if (code == ENOENT || code == ENOTDIR) return ErrorKind::not_found;
  return code == ENOMEM ? ErrorKind::out_of_memory : ErrorKind::internal;
}

[[noreturn]] void fail_system(const char* what, const std::filesystem::path& path, int code) {
  fail(kind_of(code), "{}: cannot {}: {}", path.string(), what, std::strerror(code));
}

void write_all(int descriptor, const std::byte* data, size_t count, const std::filesystem::path& path) {
  while (count > 0) {
    const ssize_t done = ::write(descriptor, data, count);
    if (done < 0) {
      if (errno == EINTR) continue;
      fail_system("write", path, errno);
    }
    data += done;
    count -= static_cast<size_t>(done);
  }
}

}  // namespace

MappedRange::MappedRange(void* base, size_t mapped, size_t lead, size_t size)
    : base_(base), mapped_(mapped), lead_(lead), size_(size) {}

MappedRange::~MappedRange() {
  if (base_ && mapped_ > 0) ::munmap(base_, mapped_);
}

File::File(std::filesystem::path path, int descriptor, uint64_t size)
    : path_(std::move(path)), descriptor_(descriptor), size_(size) {}

File::~File() { ::close(descriptor_); }

std::shared_ptr<const File> File::open(const std::filesystem::path& path) {
  // A pipe in a file's place must not wait for someone who writes; files do not care.
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) fail_system("open", path, errno);
  struct stat status{};
  if (::fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode)) {
    ::close(descriptor);
    fail(ErrorKind::bad_checkpoint, "{}: expected a regular file", path.string());
  }
  return std::shared_ptr<const File>(new File(path, descriptor, static_cast<uint64_t>(status.st_size)));
}

void File::read(uint64_t offset, std::span<std::byte> into) const {
  if (offset > size_ || into.size() > size_ - offset)
    fail(ErrorKind::bad_checkpoint, "{}: bytes {} to {} wanted, the file has {}", path_.string(), offset,
         offset + into.size(), size_);
  size_t done = 0;
  while (done < into.size()) {
    const ssize_t count =
        ::pread(descriptor_, into.data() + done, into.size() - done, static_cast<off_t>(offset + done));
    if (count < 0) {
      if (errno == EINTR) continue;
      fail_system("read", path_, errno);
    }
    if (count == 0)
      fail(ErrorKind::bad_checkpoint, "{}: ends at byte {}, {} expected", path_.string(), offset + done,
           size_);
    done += static_cast<size_t>(count);
  }
}

std::shared_ptr<MappedRange> File::map_range(uint64_t offset, uint64_t length, bool tensor) const {
  if (offset > size_ || length > size_ - offset || length > std::numeric_limits<size_t>::max() / 2)
    fail(ErrorKind::bad_checkpoint, "{}: bytes {} to {} wanted, the file has {}", path_.string(), offset,
         offset + length, size_);
  if (length == 0) return std::make_shared<MappedRange>(nullptr, 0, 0, 0);
  static const uint64_t page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  const uint64_t first = (offset >= kLead ? offset - kLead : offset) / page * page;
  const uint64_t lead = offset - first;
  const size_t mapped = static_cast<size_t>(lead + length);
  const int access = tensor ? PROT_READ | PROT_WRITE : PROT_READ;
  void* base =
      ::mmap(nullptr, mapped, access, MAP_PRIVATE | MAP_NORESERVE, descriptor_, static_cast<off_t>(first));
  if (base == MAP_FAILED) fail_system("map", path_, errno);
  if (tensor) ::madvise(base, mapped, MADV_WILLNEED);
  return std::make_shared<MappedRange>(base, mapped, static_cast<size_t>(lead), static_cast<size_t>(length));
}

std::string read_file(const std::filesystem::path& path, size_t limit) {
  const auto file = File::open(path);
  if (file->size() > limit)
    fail(ErrorKind::bad_checkpoint, "{}: {} bytes, at most {} are read", path.string(), file->size(), limit);
  std::string text(static_cast<size_t>(file->size()), '\0');
  file->read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

AtomicFile::AtomicFile(std::filesystem::path path) : path_(std::move(path)) {
  static std::atomic<unsigned> serial{0};
  partial_ = path_;
  partial_ += fmt::format(".{}-{}.partial", ::getpid(), serial.fetch_add(1));
  descriptor_ = ::open(partial_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor_ < 0) fail_system("create", partial_, errno);
}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(partial_.c_str());
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  if (descriptor_ < 0) fail(ErrorKind::internal, "{}: written to after commit", path_.string());
  write_all(descriptor_, bytes.data(), bytes.size(), partial_);
  written_ += bytes.size();
}

void AtomicFile::commit() {
  if (descriptor_ < 0) fail(ErrorKind::internal, "{}: committed twice", path_.string());
  if (::fsync(descriptor_) != 0) fail_system("flush", partial_, errno);
  if (::rename(partial_.c_str(), path_.c_str()) != 0) fail_system("rename into place", path_, errno);
  ::close(std::exchange(descriptor_, -1));
}

void write_file_atomically(const std::filesystem::path& path, std::string_view bytes) {
  AtomicFile file(path);
  file.write(bytes);
  file.commit();
}

}  // namespace mlxcel
