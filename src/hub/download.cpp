#include "hub/download.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "base/error.h"
#include "base/memory.h"
#include "hub/remote.h"
#include "hub/snapshot.h"
#include "hub/transfer.h"

namespace mlxcel {
namespace fs = std::filesystem;
namespace {

constexpr size_t kHeads = 8;
constexpr size_t kTransfers = 4;
constexpr std::uintmax_t kSpare = std::uintmax_t{16} << 20;  // left free on the disk

/// Runs `work(index)` for every index on some threads; the first error stops them and is thrown.
void in_parallel(size_t count, size_t threads, const std::function<void(size_t, std::atomic<bool>&)>& work) {
  std::atomic<size_t> next{0};
  std::atomic<bool> stop{false};
  std::mutex mutex;
  std::exception_ptr first;
  std::vector<std::thread> pool;
  for (size_t i = 0; i < std::min(threads, count); ++i)
    pool.emplace_back([&] {
      for (size_t index; !stop && (index = next++) < count;) {
        try {
          work(index, stop);
        } catch (...) {
          const std::lock_guard lock(mutex);
          if (!first) first = std::current_exception();
          stop = true;
        }
      }
    });
  for (auto& thread : pool) thread.join();
  if (first) std::rethrow_exception(first);
}

class Download {
 public:
  Download(const Reference& reference, const DownloadOptions& options, DownloadObserver& observer)
      : reference_(reference),
        options_(options),
        observer_(observer),
        endpoint_(hub_endpoint(options.token)) {}

  DownloadReport run() {
    if (endpoint_.token_withheld)
      observer_.note(
          fmt::format("the access token is not sent to {}: it is not HTTPS "
                      "(MLXCEL_ALLOW_INSECURE_ENDPOINT sends it all the same)",
                      endpoint_.base));
    Http http(endpoint_);
    RemoteRepo repo;
    with_retries([&] { repo = list_repository(http, endpoint_, reference_.repo(), options_.revision); },
                 nullptr, events());
    const auto chosen = choose_files(repo, reference_.quant, options_.file);
    make_folder();
    const FolderLock lock(options_.folder,
                          [&] { observer_.note("another download of this model runs; waiting"); });
    open_record(repo);
    const auto files = describe(repo, chosen);

    DownloadReport report;
    report.commit = repo.commit;
    std::vector<const RemoteFile*> missing;
    for (const RemoteFile& file : files) {
      report.files.push_back(file.path);
      if (!options_.force && present(file)) {
        ++report.present_files;
        note_file(file);
      } else {
        missing.push_back(&file);
        record_.files.erase(file.path);
        record_.pending.insert(file.path);
      }
    }
    sweep(files);
    if (!missing.empty()) {
      check_space(missing);
      record_.save(options_.folder);
      fetch(missing, report);
    }
    record_.pending.clear();
    record_.save(options_.folder);
    return report;
  }

 private:
  TransferEvents events() {
    return {.progress = nullptr, .note = [this](const std::string& text) { note(text); }, .stopped = nullptr};
  }
  void note(const std::string& text) {
    const std::lock_guard lock(mutex_);
    observer_.note(text);
  }
  void note_file(const RemoteFile& file) {
    record_.files[file.path] = {file.size.value_or(0), file.etag};
    record_.pending.erase(file.path);
  }

  void make_folder() const {
    std::error_code error;
    fs::create_directories(options_.folder, error);
    if (error || !fs::is_directory(options_.folder))
      fail(ErrorKind::internal, "{}: the folder cannot be made: {}", options_.folder.string(),
           error ? error.message() : "something else has this name");
  }

  /// Refuses a folder that holds another revision than the one asked for.
  void open_record(const RemoteRepo& repo) {
    const std::string wanted = options_.revision.empty() ? "main" : options_.revision;
    auto found = SnapshotRecord::load(options_.folder);
    const auto refuse = [&](const std::string& holds) {
      fail(ErrorKind::invalid_request,
           "{}: holds {} of {}, not revision {}; a folder keeps one revision: use another store "
           "(--models-dir), "
           "--local-dir or --force",
           options_.folder.string(), holds, reference_.repo(), wanted);
    };
    if (!options_.force) {
      if (found && !found->repo.empty() && found->repo != repo.name)
        fail(ErrorKind::invalid_request, "{}: holds files of {}, not of {}", options_.folder.string(),
             found->repo, repo.name);
      if (found && found->commit != repo.commit && found->revision != wanted)
        refuse("revision " + found->revision);
      std::error_code error;
      if (!found && !options_.revision.empty() && fs::exists(options_.folder / "config.json", error))
        refuse("an unknown revision");
    }
    if (found && found->repo == repo.name) record_ = std::move(*found);
    record_.repo = repo.name;
    record_.revision = wanted;
    record_.commit = repo.commit;
  }

  std::vector<RemoteFile> describe(const RemoteRepo& repo, const std::vector<std::string>& chosen) {
    std::vector<RemoteFile> files(chosen.size());
    in_parallel(chosen.size(), kHeads, [&](size_t i, std::atomic<bool>& stop) {
      Http http(endpoint_);
      TransferEvents quiet = events();
      quiet.stopped = [&] { return stop.load(); };
      with_retries([&] { files[i] = describe_file(http, endpoint_, repo, chosen[i]); }, nullptr, quiet);
    });
    return files;
  }

  fs::path target(const RemoteFile& file) const {
    const fs::path path = options_.folder / file.path;
    // Names were checked; a symlink inside the folder could still lead out.
    std::error_code error;
    const fs::path folder = fs::weakly_canonical(options_.folder, error);
    const fs::path real = fs::weakly_canonical(path.parent_path(), error) / path.filename();
    const auto [end, unused] = std::mismatch(folder.begin(), folder.end(), real.begin(), real.end());
    if (end != folder.end())
      fail(ErrorKind::bad_checkpoint, "{}: would be written outside {}", file.path, options_.folder.string());
    return path;
  }

  bool present(const RemoteFile& file) const {
    std::error_code error;
    const auto size = fs::file_size(target(file), error);
    if (error || (file.size && size != *file.size) || (!file.size && size == 0)) return false;
    const auto known = record_.files.find(file.path);
    return known == record_.files.end() || known->second.etag.empty() || known->second.etag == file.etag;
  }

  /// Removes what interrupted downloads of other versions left.
  void sweep(const std::vector<RemoteFile>& files) const {
    std::set<fs::path> kept;
    for (const RemoteFile& file : files) kept.insert(partial_path(target(file), file).lexically_normal());
    std::error_code error;
    std::vector<fs::path> stale;
    for (const auto& entry : fs::recursive_directory_iterator(options_.folder, error)) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with(".") && name.ends_with(".partial") &&
          !kept.contains(entry.path().lexically_normal()))
        stale.push_back(entry.path());
    }
    for (const fs::path& path : stale) fs::remove(path, error);
  }

  void check_space(const std::vector<const RemoteFile*>& missing) const {
    std::uintmax_t wanted = 0;
    for (const RemoteFile* file : missing) {
      std::error_code error;
      const auto have = fs::file_size(partial_path(target(*file), *file), error);
      const std::uintmax_t size = file->size.value_or(0);
      wanted += error ? size : size - std::min<std::uintmax_t>(size, have);
    }
    std::error_code error;
    const auto space = fs::space(options_.folder, error);
    if (!error && space.available < wanted + (wanted > kSpare ? kSpare : 0))
      fail(ErrorKind::internal, "{}: {} are to be fetched and {} are free on that disk",
           options_.folder.string(), format_bytes(wanted), format_bytes(space.available));
  }

  void fetch(std::vector<const RemoteFile*> missing, DownloadReport& report) {
    // The largest first, so that nothing long starts last.
    std::stable_sort(missing.begin(), missing.end(),
                     [](const auto* a, const auto* b) { return a->size.value_or(0) > b->size.value_or(0); });
    std::vector<DownloadObserver::File> plan;
    for (const RemoteFile* file : missing) {
      std::error_code error;
      const auto have = fs::file_size(partial_path(target(*file), *file), error);
      plan.push_back({file->path, file->size.value_or(0), error ? 0 : have});
    }
    observer_.plan(plan);
    in_parallel(missing.size(), kTransfers, [&](size_t i, std::atomic<bool>& stop) {
      const RemoteFile& file = *missing[i];
      const fs::path to = target(file);
      std::error_code error;
      fs::create_directories(to.parent_path(), error);
      Http http(endpoint_);
      TransferEvents told = events();
      told.stopped = [&] { return stop.load(); };
      told.progress = [&](std::uint64_t done) {
        const std::lock_guard lock(mutex_);
        observer_.progress(i, done);
      };
      const std::uint64_t bytes = transfer_file(http, file, to, told);
      const std::lock_guard lock(mutex_);
      report.fetched_bytes += bytes;
      ++report.fetched_files;
      note_file(file);
      record_.save(options_.folder);
      observer_.finished(i);
    });
  }

  const Reference& reference_;
  const DownloadOptions& options_;
  DownloadObserver& observer_;
  Endpoint endpoint_;
  SnapshotRecord record_;
  std::mutex mutex_;
};

}  // namespace

DownloadReport download_model(const Reference& reference, const DownloadOptions& options,
                              DownloadObserver& observer) {
  if (offline())
    fail(ErrorKind::not_found,
         "{}: not here, and this process is offline (--offline, LLAMA_ARG_OFFLINE or "
         "HF_HUB_OFFLINE)",
         reference.text);
  return Download(reference, options, observer).run();
}

}  // namespace mlxcel
