#include "hub/remote.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "hub/gguf_name.h"

namespace mlxcel {
namespace {

constexpr size_t kMostListing = size_t{32} << 20;
constexpr size_t kMostFiles = 20000;

std::string base_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

/// What a model folder is made of, but for its GGUF files.
bool is_model_file(const std::string& path) {
  const std::string name = base_name(path);
  if (name.starts_with(".")) return false;
  for (const char* ending : {".safetensors", ".json", ".tiktoken", ".model", ".jinja", ".npz"})
    if (name.ends_with(ending)) return true;
  for (const char* whole : {"chat_template", "merges.txt", "vocab.txt", "added_tokens.txt"})
    if (name == whole) return true;
  return false;
}

bool is_commit(const std::string& text) {
  return text.size() >= 7 && text.size() <= 64 &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isxdigit(c); });
}

}  // namespace

bool is_safe_path(const std::string& path) {
  if (path.empty() || path.size() > 1024 || path.front() == '/' || path.back() == '/') return false;
  for (const unsigned char c : path)
    if (c < 0x20 || c == 0x7f || c == '\\' || c == ':') return false;
  size_t begin = 0;
  while (begin <= path.size()) {
    const size_t end = std::min(path.find('/', begin), path.size());
    const std::string part = path.substr(begin, end - begin);
    if (part.empty() || part == "." || part == "..") return false;
    begin = end + 1;
  }
  return true;
}

RemoteRepo list_repository(Http& http, const Endpoint& endpoint, const std::string& name,
                           const std::string& revision) {
  const std::string model = endpoint.base + "/api/models/" + url_path(name);
  const std::string wanted = revision.empty() ? "main" : revision;
  std::string text;
  std::string part = url_path(wanted);
  for (size_t at; (at = part.find('/')) != std::string::npos;) part.replace(at, 1, "%2F");
  try {
    text = http.text(model + "/revision/" + part, kMostListing);
  } catch (const NetworkError& error) {
    if (error.status != 404) throw;
    if (!revision.empty())
      throw NetworkError(
          fmt::format("{} at revision {}: not found on the hub ({})", name, revision, endpoint.base), false,
          404);
    try {
      text = http.text(model, kMostListing);  // some mirrors know no revisions
    } catch (const NetworkError& second) {
      if (second.status != 404) throw;
      throw NetworkError(fmt::format("{}: not found on the hub ({})", name, endpoint.base), false, 404);
    }
  }
  const auto json = nlohmann::json::parse(text, nullptr, false);
  const auto bad = [&](const char* what) {
    fail(ErrorKind::bad_checkpoint, "{}: the hub's listing {}", name, what);
  };
  if (!json.is_object()) bad("is not a JSON object");
  RemoteRepo repo;
  repo.name = name;
  repo.commit = json.value("sha", nlohmann::json()).is_string() ? json["sha"].get<std::string>() : wanted;
  if (repo.commit != wanted && !is_commit(repo.commit)) bad("has a revision id that is none");
  const auto files = json.find("siblings");
  if (files == json.end() || !files->is_array()) bad("names no files");
  if (files->size() > kMostFiles) bad("names over 20000 files");
  std::set<std::string> seen;
  for (const auto& entry : *files) {
    if (!entry.is_object() || !entry.contains("rfilename") || !entry["rfilename"].is_string())
      bad("has an entry without a file name");
    const auto path = entry["rfilename"].get<std::string>();
    if (!is_safe_path(path))
      fail(ErrorKind::bad_checkpoint,
           "{}: refused: the repository has a file named \"{}\", which could leave the "
           "target folder",
           name, path);
    if (seen.insert(path).second) repo.files.push_back(path);
  }
  std::sort(repo.files.begin(), repo.files.end());
  return repo;
}

std::vector<std::string> choose_files(const RemoteRepo& repo, const std::string& quant,
                                      const std::string& file) {
  if (!file.empty()) {
    if (std::find(repo.files.begin(), repo.files.end(), file) == repo.files.end())
      fail(ErrorKind::not_found, "--hf-file {}: not in {}", file, repo.name);
    const auto set = gguf_parts(repo.files, file);
    return set.empty() ? std::vector<std::string>{file} : set;
  }
  std::vector<std::string> weights, chosen;
  bool plain_model = false;
  for (const std::string& path : repo.files) {
    if (is_model_file(path)) chosen.push_back(path);
    if (path.ends_with(".safetensors")) weights.push_back(path);
    plain_model |= base_name(path).starts_with("model") && path.ends_with(".safetensors");
  }
  if (!quant.empty() || weights.empty()) {
    const std::string picked = pick_gguf(repo.files, quant);
    if (!picked.empty()) return gguf_parts(repo.files, picked);
    if (!quant.empty()) {
      std::string there;
      for (const std::string& path : repo.files)
        if (const std::string word = gguf_quant(path); !word.empty())
          there += (there.empty() ? "" : ", ") + word;
      fail(ErrorKind::not_found, "{}:{}: no GGUF of that quantisation; the repository has {}", repo.name,
           quant, there.empty() ? "none at all" : there);
    }
  }
  // Mistral's consolidated.* is the same model again.
  if (plain_model)
    std::erase_if(chosen, [](const std::string& path) {
      return base_name(path).starts_with("consolidated") && path.ends_with(".safetensors");
    });
  if (chosen.empty()) fail(ErrorKind::not_found, "{}: the repository holds no model files", repo.name);
  return chosen;
}

RemoteFile describe_file(Http& http, const Endpoint& endpoint, const RemoteRepo& repo,
                         const std::string& path) {
  RemoteFile file;
  file.path = path;
  file.url =
      endpoint.base + "/" + url_path(repo.name) + "/resolve/" + url_path(repo.commit) + "/" + url_path(path);
  const HttpReply reply = http.head(file.url);
  const auto header = [&](const char* name) {
    const auto found = reply.headers.find(name);
    return found == reply.headers.end() ? std::string() : found->second;
  };
  std::string size = header("x-linked-size");
  if (size.empty()) size = header("content-length");
  if (!size.empty()) {
    if (size.size() > 18 ||
        !std::all_of(size.begin(), size.end(), [](unsigned char c) { return std::isdigit(c); }))
      fail(ErrorKind::bad_checkpoint, "{}: the hub gives the size \"{}\"", path, size);
    file.size = std::stoull(size);
  }
  std::string etag = header("x-linked-etag");
  if (etag.empty()) etag = header("etag");
  if (etag.starts_with("W/")) etag.erase(0, 2);
  std::erase(etag, '"');
  for (const unsigned char c : etag)
    if (!std::isalnum(c) && c != '-' && c != '_' && c != '.') etag.clear();
  file.etag = etag.substr(0, 128);
  return file;
}

}  // namespace mlxcel
