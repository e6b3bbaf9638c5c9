#include "engine/front/fingerprint.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/file.h"
#include "engine/loop/prefix_file.h"
#include "kernels/isa/dispatch.h"
#include "kernels/matrix.h"

namespace mlxcel {
namespace {

namespace fs = std::filesystem;

constexpr int kNumerics = 1;  // changes when the same weights and tokens give other keys, values or states
constexpr uint64_t kWhole = uint64_t{64} << 20;
constexpr uint64_t kBlock = 4096;
constexpr uint64_t kBlocks = 64;

bool is_weights(const fs::path& path) {
  const std::string kind = path.extension().string();
  return kind == ".safetensors" || kind == ".gguf" || kind == ".bin" || kind == ".npz";
}

std::string digest_of(const fs::path& path) {
  const auto file = File::open(path);
  std::vector<std::byte> bytes;
  if (!is_weights(path) && file->size() <= kWhole) {
    bytes.resize(file->size());
    file->read(0, bytes);
  } else {
    const uint64_t block = std::min(kBlock, file->size());
    const uint64_t blocks = block == 0 ? 0 : std::min(kBlocks, (file->size() + block - 1) / block);
    bytes.resize(blocks * block);
    for (uint64_t i = 0; i < blocks; ++i) {
      const uint64_t at = blocks == 1 ? 0 : i * ((file->size() - block) / (blocks - 1));
      file->read(at, std::span(bytes).subspan(i * block, block));
    }
  }
  return fmt::format("{} {} {}\n", path.filename().string(), file->size(), sha256_hex(bytes));
}

}  // namespace

std::string model_fingerprint(const Checkpoint& checkpoint, const ModelInfo& info, const StateLayout& layout,
                              const std::vector<KvFormat>& kv, const std::string& edits) {
  std::string text = fmt::format("numerics {}\n{} {} {} {} {}\n", kNumerics, info.model_type,
                                 info.weights_label, info.vocab_size, info.layers, info.hidden);
  for (size_t slot = 0; slot < layout.kv().size(); ++slot) {
    const KvSpec& spec = layout.kv()[slot];
    text += fmt::format("kv {} {} {} {} {} {} {} as {} {}\n", spec.kv_heads, spec.key_dim, spec.value_dim,
                        spec.window, spec.chunk, spec.block, spec.latent, static_cast<int>(kv.at(slot).keys),
                        static_cast<int>(kv.at(slot).values));
  }
  for (const RecurrentSpec& state : layout.recurrent())
    text += fmt::format("state {} {}\n", state.name, to_string(state.shape));
  // Precisions and instruction sets give sums of their own; positions may have been overridden.
  text += fmt::format("{} {}\n{}\n{}\n", kernels::to_string(kernels::precision()),
                      kernels::to_string(kernels::isa()), checkpoint.config.dump(), edits);
  std::error_code error;
  std::vector<fs::path> files;
  if (fs::is_directory(checkpoint.path, error)) {
    for (const auto& file : fs::directory_iterator(checkpoint.path, error))
      if (file.is_regular_file(error)) files.push_back(file.path());
  } else if (fs::is_regular_file(checkpoint.path, error)) {
    files.push_back(checkpoint.path);
  }
  std::sort(files.begin(), files.end());
  for (const auto& path : files) text += digest_of(path);
  return sha256_hex(std::as_bytes(std::span(text)));
}

}  // namespace mlxcel
