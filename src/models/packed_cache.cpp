#include "models/packed_cache.h"

#if defined(__APPLE__)
#include <mach-o/dyld.h>
#endif

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <optional>

#include "base/error.h"
#include "base/log.h"

namespace mlxcel {

namespace {

namespace fs = std::filesystem;

constexpr const char* kEnding = ".packed";
// A model that ends while its file is being written waits so long; what is not done by then is left.
constexpr auto kGrace = std::chrono::milliseconds(1500);
constexpr auto kStale = std::chrono::hours(1);  // of a file that a writer left unfinished
constexpr uint64_t kDiskToLeave = uint64_t{1} << 30;

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

uint64_t hash_of(std::string_view text) {
  uint64_t h = 0xcbf29ce484222325u;
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return h;
}

/// A file by its place, its size and when it was changed.
std::string identity(const fs::path& path) {
  const fs::path real = fs::canonical(path);
  return fmt::format("{} {} {}\n", real.string(), fs::file_size(real),
                     fs::last_write_time(real).time_since_epoch().count());
}

/// The program that runs: how it packs, and the rules of its architectures, are its own.
fs::path program() {
#if defined(__APPLE__)
  char buffer[4096];
  uint32_t size = sizeof buffer;
  if (_NSGetExecutablePath(buffer, &size) != 0)
    fail(ErrorKind::internal, "the program's own path is too long");
  return fs::canonical(buffer);
#else
  return fs::canonical("/proc/self/exe");
#endif
}

bool belongs(const fs::path& path) {
  const auto ending = path.extension();
  return ending == ".safetensors" || ending == ".json" || ending == ".gguf";
}

/// All files that a checkpoint's weights may follow from.
std::string checkpoint_identity(const fs::path& path) {
  std::vector<fs::path> files;
  if (fs::is_directory(path)) {
    for (const auto& entry : fs::directory_iterator(path))
      if (entry.is_regular_file() && belongs(entry.path())) files.push_back(entry.path());
  } else {
    files.push_back(path);
    const std::string name = path.filename().string();
    if (const size_t of = name.rfind("-of-"); of != std::string::npos && of > 5) {
      const std::string_view stem = std::string_view(name).substr(0, of - 5);
      for (const auto& entry : fs::directory_iterator(fs::absolute(path).parent_path()))
        if (entry.path().filename().string().starts_with(stem) && belongs(entry.path()))
          files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  std::string all;
  for (const fs::path& file : files) all += identity(file);
  return all;
}

/// Why nothing can be left in `folder`, which is made where it is missing; empty: it can.
std::string hindrance(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (!error && ::access(folder.c_str(), W_OK | X_OK) != 0) error.assign(errno, std::generic_category());
  return error ? error.message() : std::string();
}

}  // namespace

PackedCacheOptions PackedCacheOptions::from_environment() {
  PackedCacheOptions options;
  const std::string place = environment("MLXCEL_PACKED_CACHE");
  if (place == "off" || place == "0") return options;
  if (!place.empty()) {
    options.folder = place;
    options.named = true;
    if (!options.folder.is_absolute())
      fail(ErrorKind::invalid_request,
           "MLXCEL_PACKED_CACHE={}: expected off or the path of a folder from the root", place);
  } else if (const std::string root = environment("MLXCEL_CACHE_DIR"); !root.empty()) {
    options.folder = fs::path(root) / "packed";
  } else if (const std::string home = environment("HOME"); !home.empty()) {
    options.folder = fs::path(home) / ".cache/mlxcel/packed";
  }
  if (const std::string limit = environment("MLXCEL_PACKED_CACHE_MB"); !limit.empty()) {
    uint64_t megabytes = 0;
    const auto [end, error] = std::from_chars(limit.data(), limit.data() + limit.size(), megabytes);
    if (error != std::errc() || end != limit.data() + limit.size() || megabytes > (uint64_t{1} << 40))
      fail(ErrorKind::invalid_request, "MLXCEL_PACKED_CACHE_MB={}: expected a number of megabytes", limit);
    options.most = megabytes << 20;
  }
  return options;
}

PackedCache::PackedCache(PackedCacheOptions options, const fs::path& path, std::string_view settings)
    : options_(std::move(options)) {
  try {
    key_ = fmt::format("{}{}{}", identity(program()), checkpoint_identity(path), settings);
    // One file a checkpoint, program and instruction set: an old one is written over.
    file_ = options_.folder / fmt::format("{:016x}-{:016x}{}", hash_of(fs::canonical(path).string()),
                                          hash_of(program().string() + kernels::isa_name()), kEnding);
    std::error_code error;
    if (fs::exists(file_, error)) {
      std::string why;
      packed_ = kernels::PackedFile::open(file_, key_, options_.use, &why);
      if (!packed_) log::debug("packed", "{}: not used: {}", file_.string(), why);
      // When it was used; a folder that cannot be written to serves as well.
      fs::last_write_time(file_, fs::file_time_type::clock::now(), error);
    }
    if (!packed_ && options_.named)
      if (const std::string why = hindrance(options_.folder); !why.empty()) tell(why);
  } catch (const std::exception& error) {
    tell(error.what());
    file_.clear();
  }
}

void PackedCache::tell(const std::string& why) {
  log::debug("packed", "{}: no packed weights are kept: {}", options_.folder.string(), why);
  if (options_.named)
    trouble_ = fmt::format(
        "MLXCEL_PACKED_CACHE={}: {}; every start packs the weights anew (name a folder that can be written "
        "to, or say off)",
        options_.folder.string(), why);
}

PackedCache::~PackedCache() {
  const auto until = std::chrono::steady_clock::now() + kGrace;
  while (writer_.joinable() && !done_.load() && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  stop_.store(true);
  if (writer_.joinable()) writer_.join();
}

std::optional<kernels::Matrix> PackedCache::find(std::span<const kernels::WeightForm> forms, bool gated) {
  if (!packed_) return std::nullopt;
  auto matrix = packed_->find(forms, gated);
  if (matrix)
    ++found_;
  else
    log::debug("packed", "{}: {} is not in it, or damaged", file_.string(), forms.front().name);
  return matrix;
}

void PackedCache::keep(const kernels::Matrix& matrix) { kept_.push_back(matrix); }

void PackedCache::store() {
  if (packed_ && packed_->damaged()) {
    std::error_code error;
    fs::remove(file_, error);  // the next load writes a sound one
  }
  packed_.reset();
  uint64_t bytes = 0;
  for (const auto& matrix : kept_) bytes += matrix.bytes();
  if (file_.empty() || found_ > 0 || bytes < options_.least || bytes > options_.most ||
      kernel_mode() != KernelMode::native)
    return kept_.clear();
  writer_ = std::thread([this] { write(); });
}

bool PackedCache::wait() {
  if (writer_.joinable()) writer_.join();
  return written_.load();
}

bool PackedCache::make_room(uint64_t bytes) const {
  struct Held {
    fs::path path;
    uint64_t bytes;
    fs::file_time_type used;
  };
  std::vector<Held> held;
  uint64_t total = bytes;
  for (const auto& entry : fs::directory_iterator(options_.folder)) {
    if (!entry.is_regular_file()) continue;
    const fs::path& path = entry.path();
    if (path.extension() == ".partial") {
      std::error_code error;
      if (fs::file_time_type::clock::now() - entry.last_write_time() > kStale) fs::remove(path, error);
    } else if (path.extension() == kEnding && path != file_) {
      held.push_back({path, entry.file_size(), entry.last_write_time()});
      total += held.back().bytes;
    }
  }
  std::sort(held.begin(), held.end(), [](const Held& a, const Held& b) { return a.used < b.used; });
  for (const Held& old : held) {
    if (total <= options_.most) break;
    fs::remove(old.path);
    total -= old.bytes;
  }
  return total <= options_.most && fs::space(options_.folder).available >= bytes + kDiskToLeave;
}

void PackedCache::write() {
  try {
    uint64_t bytes = 0;
    for (const auto& matrix : kept_) bytes += matrix.bytes();
    fs::create_directories(options_.folder);
    if (make_room(bytes))
      written_ = kernels::PackedFile::write(file_, key_, kept_, stop_);
    else
      log::debug("packed", "{}: not written: no room for {} bytes", file_.string(), bytes);
  } catch (const std::exception& error) {
    log::debug("packed", "{}: not written: {}", file_.string(), error.what());
  }
  kept_.clear();
  done_.store(true);
}

}  // namespace mlxcel
