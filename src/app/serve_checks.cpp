#include "app/serve_checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <iterator>
#include <sstream>

#include "api/json_node.h"
#include "app/options.h"
#include "server/access.h"

namespace mlxcel::app {
namespace {

constexpr size_t kMostText = size_t{1} << 20;

/// Keys from every flag, file and variable, united.
void collect_keys(std::vector<std::string>& keys, const FlagState& raw) {
  auto add = [&](const std::string& list) {
    for (auto& key : split_keys(list)) keys.push_back(std::move(key));
  };
  for (const auto& list : raw.api_keys) add(list);
  const auto& files = raw.api_key_files;
  for (const auto& file : files) {
    std::stringstream lines(text_file(file, "--api-key-file", kMostText));
    for (std::string line; std::getline(lines, line);) {
      line = line.substr(0, line.find('#'));
      while (!line.empty() && (line.back() == ' ' || line.back() == '\t' || line.back() == '\r'))
        line.pop_back();
      if (!line.empty()) keys.push_back(line);
    }
  }
  if (keys.empty() && (!raw.api_keys.empty() || !files.empty())) {
    throw UsageError("--api-key, --api-key-file: no key in them");
  }
}

/// llama.cpp's names of templates built into it.
bool is_llama_template_name(const std::string& text) {
  static constexpr const char* kNames[] = {"bailing",
                                           "bailing-think",
                                           "bailing2",
                                           "chatglm3",
                                           "chatglm4",
                                           "chatml",
                                           "command-r",
                                           "deepseek",
                                           "deepseek-ocr",
                                           "deepseek2",
                                           "deepseek3",
                                           "exaone-moe",
                                           "exaone3",
                                           "exaone4",
                                           "falcon3",
                                           "gemma",
                                           "gigachat",
                                           "glmedge",
                                           "gpt-oss",
                                           "granite",
                                           "granite-4.0",
                                           "granite-4.1",
                                           "grok-2",
                                           "hunyuan-dense",
                                           "hunyuan-moe",
                                           "hunyuan-ocr",
                                           "hunyuan-vl",
                                           "kimi-k2",
                                           "llama2",
                                           "llama2-sys",
                                           "llama2-sys-bos",
                                           "llama2-sys-strip",
                                           "llama3",
                                           "llama4",
                                           "megrez",
                                           "minicpm",
                                           "mistral-v1",
                                           "mistral-v3",
                                           "mistral-v3-tekken",
                                           "mistral-v7",
                                           "mistral-v7-tekken",
                                           "monarch",
                                           "openchat",
                                           "orion",
                                           "pangu-embedded",
                                           "phi3",
                                           "phi4",
                                           "rwkv-world",
                                           "seed_oss",
                                           "smolvlm",
                                           "solar-open",
                                           "vicuna",
                                           "vicuna-orca",
                                           "yandex",
                                           "zephyr"};
  return std::find(std::begin(kNames), std::end(kNames), text) != std::end(kNames);
}

}  // namespace

std::vector<std::string> split_commas(const std::string& list) {
  std::vector<std::string> out;
  std::stringstream in(list);
  for (std::string item; std::getline(in, item, ',');) {
    const auto first = item.find_first_not_of(" \t");
    if (first == std::string::npos) continue;
    out.push_back(item.substr(first, item.find_last_not_of(" \t") - first + 1));
  }
  return out;
}

void check_access(ServeFlags& flags, const FlagState& raw) {
  auto& service = flags.service;
  const auto& transport = flags.transport;
  collect_keys(service.access.keys, raw);
  if (transport.tls_cert_file.empty() != transport.tls_key_file.empty()) {
    throw UsageError("--ssl-cert-file and --ssl-key-file: give both or neither");
  }
  if (!service.api_prefix.empty()) {
    while (service.api_prefix.ends_with('/')) service.api_prefix.pop_back();
    const bool plain =
        service.api_prefix.empty() || (service.api_prefix.starts_with('/') &&
                                       service.api_prefix.find_first_of(" ?#%{}") == std::string::npos);
    if (!plain)
      throw UsageError(
          fmt::format("--api-prefix {}: expected a plain path such as /llm", service.api_prefix));
  }
  auto& access = service.access;
  access.allowed_origins = split_commas(raw.allowed_origins);
  for (const auto& origin : access.allowed_origins) {
    if (!is_origin(origin)) {
      throw UsageError(fmt::format("--allowed-origins {}: expected scheme://host[:port]", origin));
    }
  }
  access.allowed_hosts = split_commas(raw.allowed_hosts);
  for (auto& host : access.allowed_hosts) {
    const bool plain = host.find_first_of("/:@ []") == std::string::npos;
    if (!plain)
      throw UsageError(fmt::format("--allowed-hosts {}: expected host names, without a port", host));
    std::transform(host.begin(), host.end(), host.begin(), [](unsigned char c) { return std::tolower(c); });
  }
  if (!access.allowed_origins.empty() && access.cors_origins != "*") {
    throw UsageError("--allowed-origins and --cors-origins: give one of them");
  }
  for (const auto* text : {&access.cors_origins, &access.cors_methods, &access.cors_headers}) {
    if (text->find_first_of("\r\n") != std::string::npos)
      throw UsageError("--cors-*: a line break in the value");
  }
}

void check_template(ServiceOptions& service, const FlagState& raw) {
  if (is_llama_template_name(service.chat_template)) {
    throw UsageError(
        fmt::format("--chat-template {}: built-in templates are not followed; give the text, or "
                    "--chat-template-file",
                    service.chat_template));
  }
  if (service.chat_template.empty() && !raw.chat_template_file.empty()) {
    service.chat_template = text_file(raw.chat_template_file, "--chat-template-file", kMostText);
  }
  if (!service.chat_template_kwargs.empty()) {
    try {
      JsonNode::parse(service.chat_template_kwargs).members();
    } catch (const Error& error) {
      throw UsageError(fmt::format("--chat-template-kwargs: expected a JSON object: {}", error.what()));
    }
  }
}

}  // namespace mlxcel::app
