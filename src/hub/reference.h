// Model references as users write them: a path, `owner/name`, `owner/name:QUANT`, or a bare name.
// Thread: any. Failure: invalid_request (a usage error) naming the forms and the allowed characters.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace mlxcel {

/// The default model's name and owner; `mlxcel run` without a model means this one.
inline constexpr const char* kDefaultModel = "SmolLM2-135M-Instruct";
inline constexpr const char* kDefaultModelOwner = "HuggingFaceTB";

struct Reference {
  std::string text;                           // as given
  std::optional<std::filesystem::path> path;  // an existing path, used verbatim
  std::string owner, name, quant;             // otherwise; quant may be empty

  std::string repo() const { return owner + "/" + name; }
  bool is_default_model() const { return owner == kDefaultModelOwner && name == kDefaultModel; }
};

/// An existing path wins over every other reading. A bare name belongs to MLXCEL_DEFAULT_ORG
/// (`mlx-community` when unset), but for the default model's.
Reference parse_reference(const std::string& text);
/// The same where only a repository makes sense (download, rm): paths are not looked at.
Reference parse_repository(const std::string& text);
/// Where a reference is fetched from: the default model's folder lies in the default organisation.
Reference download_source(const Reference& reference);

}  // namespace mlxcel
