#include "checkpoint/adapter_gguf.h"

#include <fmt/ranges.h>

#include <string_view>

#include "base/error.h"
#include "checkpoint/formats/gguf_blocks.h"
#include "checkpoint/formats/gguf_file.h"
#include "checkpoint/rules/gguf_arch.h"
#include "checkpoint/rules/pattern.h"
#include "checkpoint/values.h"

namespace mlxcel {

class GgufAdapterReader {
 public:
  explicit GgufAdapterReader(const std::filesystem::path& path)
      : file_(read_gguf(path)), where_(path.string()) {
    out_.path_ = path;
    out_.format_ = "GGUF";
    expect("general.type", "adapter");
    expect("adapter.type", "lora");
    const auto name = gguf_string(file_.metadata, "general.architecture");
    arch_ = name ? find_gguf_arch(*name) : nullptr;
    if (!arch_)
      fail(ErrorKind::unsupported, "{}: general.architecture: {}: no model family of that name is known",
           where_, name ? "\"" + *name + "\"" : "missing");
    alpha_ = static_cast<float>(gguf_number(file_.metadata, "adapter.lora.alpha").value_or(0.0));
  }

  AdapterFiles take() {
    std::map<std::string, std::pair<const GgufTensor*, const GgufTensor*>> modules;
    std::vector<std::string> strays;
    for (const auto& [name, tensor] : file_.tensors) {
      if (name.ends_with(kFirst))
        modules[name.substr(0, name.size() - kFirst.size())].first = &tensor;
      else if (name.ends_with(kSecond))
        modules[name.substr(0, name.size() - kSecond.size())].second = &tensor;
      else
        strays.push_back(name);
    }
    for (const auto& [name, halves] : modules)
      if (!halves.first || !halves.second)
        strays.push_back(name + std::string(halves.first ? kFirst : kSecond));
    if (!strays.empty())
      fail(ErrorKind::bad_checkpoint, "{}: tensors that are not half of a LoRA pair: {}", where_,
           fmt::join(strays, ", "));
    if (modules.empty()) fail(ErrorKind::bad_checkpoint, "{}: no LoRA pairs", where_);
    for (const auto& [name, halves] : modules) add(name, *halves.first, *halves.second);
    return std::move(out_);
  }

 private:
  using Form = AdapterFiles::Pair::Form;
  static constexpr std::string_view kFirst = ".lora_a", kSecond = ".lora_b";

  void expect(const char* key, std::string_view value) const {
    const auto found = gguf_string(file_.metadata, key);
    if (found.value_or("") != value)
      fail(ErrorKind::unsupported, "{}: {}: expected \"{}\", found {}", where_, key, value,
           found ? "\"" + *found + "\"" : "nothing");
  }

  /// The published name of a base weight, without its ".weight", and the form its pair has.
  std::pair<std::string, Form> published(const std::string& name) const {
    for (const GgufName& row : arch_->names) {
      const auto captures = match(row.gguf, name);
      if (!captures) continue;
      std::string target = *row.hf == '\0' ? "" : fill(row.hf, *captures);
      const bool plain = row.change == GgufChange::none, q = row.change == GgufChange::unpermute_q,
                 k = row.change == GgufChange::unpermute_k;
      if (!target.ends_with(".weight") || !(plain || q || k))
        fail(ErrorKind::unsupported, "{}: {}: pairs beside this tensor of a {} model are not supported",
             where_, name, arch_->name);
      target.resize(target.size() - std::string_view(".weight").size());
      return {std::move(target), q ? Form::query_pairs : k ? Form::key_pairs : Form::published};
    }
    fail(ErrorKind::bad_checkpoint, "{}: {} is not a tensor of a {} model", where_, name, arch_->name);
  }

  std::vector<float> values(const GgufTensor& tensor, const std::string& name) const {
    const array wide = float_values(load_gguf_tensor(tensor, name));
    return {wide.data<float>(), wide.data<float>() + wide.size()};
  }

  void add(const std::string& name, const GgufTensor& a, const GgufTensor& b) {
    auto [module, form] = published(name);
    const size_t axes = a.shape.size();
    const bool bank = axes == 3, table = name == "token_embd.weight";
    const auto at = [&](const GgufTensor& t, size_t axis) { return t.shape[axes - 2 + axis]; };
    const int rank = axes == b.shape.size() && (axes == 2 || axes == 3) ? at(b, 1) : 0;
    if (rank < 1 || rank > AdapterFiles::kMostRank || at(a, table ? 1 : 0) != rank ||
        (bank && (table || a.shape[0] != b.shape[0])))
      fail(ErrorKind::bad_checkpoint,
           "{}: {}.lora_a {} and .lora_b {} do not fit together, ranks are 1 to {}", where_, name,
           to_string(a.shape), to_string(b.shape), AdapterFiles::kMostRank);
    LowRank f{.count = bank ? a.shape[0] : 0, .rows = at(b, 0), .columns = at(a, 1), .rank = rank};
    f.left = values(b, name + ".lora_b");
    f.right = values(a, name + ".lora_a");
    if (table) {  // [rows, rank] and [width, rank]
      LowRank turned{.count = 0, .rows = at(b, 0), .columns = at(a, 0), .rank = rank};
      turned.left = std::move(f.left);
      turned.right.resize(f.right.size());
      const auto rows = static_cast<size_t>(turned.columns), r = static_cast<size_t>(rank);
      for (size_t i = 0; i < rows; ++i)
        for (size_t k = 0; k < r; ++k) turned.right[k * rows + i] = f.right[i * r + k];
      f = transposed(turned);
    }
    // Files without an alpha mean one that is the rank.
    const float scale = alpha_ == 0.0f ? 1.0f : alpha_ / static_cast<float>(rank);
    out_.put(module, {name, std::move(f), form}, scale, where_);
  }

  AdapterFiles out_;
  GgufContents file_;
  std::string where_;
  const GgufArch* arch_ = nullptr;
  float alpha_ = 0.0f;
};

AdapterFiles read_gguf_adapter(const std::filesystem::path& file) { return GgufAdapterReader(file).take(); }

}  // namespace mlxcel
