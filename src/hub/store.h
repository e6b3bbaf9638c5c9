// The model store on this machine: where models lie, which are there, which one a reference means.
// Looks at ./models/<name>, the Hugging Face cache (never written) and the store, in this order.
// Thread: any; nothing is cached between calls. Failure: not_found naming every place looked at.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "hub/reference.h"

namespace mlxcel {

/// MLXCEL_CACHE_DIR, else $HOME/.cache/mlxcel.
std::filesystem::path cache_root();
/// `flag` (--models-dir) when given, else MLXCEL_MODELS_DIR, else <cache root>/models.
std::filesystem::path store_root(const std::optional<std::filesystem::path>& flag = std::nullopt);

struct StoredModel {
  std::string reference;       // "owner/name" or "owner/name:QUANT"
  std::filesystem::path path;  // folder, or the GGUF's first file
  std::uintmax_t bytes = 0;
  std::optional<std::int64_t> modified;  // Unix seconds
};

/// Every model of a store, sorted by reference; a GGUF is one entry per quantisation. `weights_alone`: a
/// folder of safetensors without a configuration counts too.
std::vector<StoredModel> list_models(const std::filesystem::path& root, bool weights_alone = false);

struct ResolveOptions {
  std::optional<std::filesystem::path> store;  // --models-dir
  std::string revision;                        // --revision: the Hugging Face cache only
  std::string file;                            // --hf-file: one file exactly, beats the quant
  /// Brings a repository (or what it lacks) into a folder of the store; null: nothing is fetched.
  std::function<void(const Reference&, const std::filesystem::path& folder)> fetch;
  std::string why_no_fetch;  // "offline", for the message
};

/// The folder or .gguf file to open. A snapshot of the store that lacks files is finished by `fetch`; one in
/// the Hugging Face cache is passed over; a local path is the loader's affair.
std::filesystem::path resolve_model(const Reference& reference, const ResolveOptions& options = {});

/// The model inside a folder: the folder itself where it has config.json (and no quant was asked for),
/// else the GGUF of that quant, else Q4_K_M, else the first in name order. Empty when it holds none.
std::optional<std::filesystem::path> model_in_folder(const std::filesystem::path& folder,
                                                     const std::string& quant);

/// A whole copy in the Hugging Face cache, if there is one.
std::optional<std::filesystem::path> cached_model(const Reference& reference, const ResolveOptions& options);

/// What remove_model() would free; the same errors.
std::uintmax_t stored_bytes(const Reference& reference, const std::filesystem::path& root);

/// Deletes a model, or one quantisation of it, inside `root` and nowhere else; returns the bytes freed.
/// not_found where the store does not have it (a copy in the Hugging Face cache is named, never deleted).
std::uintmax_t remove_model(const Reference& reference, const std::filesystem::path& root);

}  // namespace mlxcel
