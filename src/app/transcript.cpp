#include "app/transcript.h"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>

#include "base/error.h"
#include "base/file.h"

namespace mlxcel::app {
namespace {

namespace fs = std::filesystem;
constexpr size_t kMostBytes = size_t{64} << 20;

}  // namespace

void write_transcript(const std::string& path, const std::vector<ChatMessage>& messages) {
  auto json = nlohmann::ordered_json::array();
  for (const ChatMessage& message : messages)
    json.push_back({{"role", message.role}, {"content", message.content}});
  const std::string text = json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  std::error_code error;
  const fs::path target = fs::weakly_canonical(path, error);  // the file that a link means
  if (!error && (!fs::exists(target, error) || fs::is_regular_file(target, error)))
    return write_file_atomically(target, text);
  std::ofstream out(path);
  out << text << std::flush;
  if (!out) fail(ErrorKind::internal, "{}: not a file", path);
}

std::vector<ChatMessage> read_transcript(const std::string& path) {
  const auto json = nlohmann::json::parse(read_file(path, kMostBytes), nullptr, false);
  const auto refuse = [] {
    fail(ErrorKind::invalid_request,
         "expected a list of objects with role (system, user or assistant) and content (text)");
  };
  if (!json.is_array()) refuse();
  std::vector<ChatMessage> messages;
  for (const auto& item : json) {
    const auto text = [&](const char* key) {
      const bool there = item.is_object() && item.contains(key) && item[key].is_string();
      if (!there) refuse();
      return item[key].get<std::string>();
    };
    ChatMessage message{text("role"), text("content")};
    if (message.role != "system" && message.role != "user" && message.role != "assistant") refuse();
    messages.push_back(std::move(message));
  }
  return messages;
}

}  // namespace mlxcel::app
