#include "checkpoint/adapter_files.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string_view>

#include "base/error.h"
#include "checkpoint/config.h"
#include "checkpoint/formats/safetensors.h"
#include "checkpoint/values.h"

namespace mlxcel {

namespace fs = std::filesystem;

namespace {

constexpr size_t kMaxConfig = size_t{4} << 20;
constexpr std::string_view kCopy = ".base_layer.weight";

uint64_t mixed(uint64_t hash, const void* bytes, size_t count) {
  const auto* at = static_cast<const unsigned char*>(bytes);
  for (size_t i = 0; i < count; ++i) hash = (hash ^ at[i]) * 0x100000001b3ULL;
  return hash;
}

std::vector<float> values_of(const StoredTensor& stored, const std::string& name) {
  const array data = load_stored(stored, name);
  const array wide = float_values(Weight{name, data.shape(), data, {}, {}, {}});
  return {wide.data<float>(), wide.data<float>() + wide.size()};
}

}  // namespace

/// Reads one folder.
class AdapterReader {
 public:
  explicit AdapterReader(const fs::path& path) {
    const bool file = fs::is_regular_file(path);
    out_.path_ = path;
    const fs::path folder = file ? path.parent_path() : path;
    if (!fs::is_directory(folder)) fail(ErrorKind::not_found, "{}: no such adapter", path.string());
    if (!fs::exists(folder / "adapter_config.json"))
      fail(ErrorKind::not_found,
           "{}: adapter_config.json: missing; an adapter is a folder as mlx-lm or PEFT write it",
           folder.string());
    config_.emplace(Config::parse(read_file(folder / "adapter_config.json", kMaxConfig),
                                  (folder / "adapter_config.json").string()));
    peft_ = config_->has("peft_type");
    out_.format_ = peft_ ? "PEFT" : "MLX";
    const fs::path weights =
        file ? path : folder / (peft_ ? "adapter_model.safetensors" : "adapters.safetensors");
    if (!fs::exists(weights))
      fail(ErrorKind::not_found, "{}: missing{}", weights.string(),
           fs::exists(folder / "adapter_model.bin")
               ? "; PyTorch weights are not loaded: use a safetensors export"
               : "");
    peft_ ? check_peft() : check_mlx();
    std::vector<std::string> warnings;
    read_safetensors_header(File::open(weights), tensors_, warnings);
    where_ = weights.string();
  }

  AdapterFiles take() {
    collect();
    return std::move(out_);
  }

 private:
  struct Halves {
    std::string a, b;  // tensor names
  };

  [[noreturn]] void refuse(const std::string& what) const {
    fail(ErrorKind::unsupported, "{}: {}", config_->where(), what);
  }

  void check_peft() {
    const Config& c = *config_;
    if (const auto type = c.get<std::string>("peft_type"); type != "LORA")
      refuse(fmt::format("peft_type: expected LORA, found {}", type));
    if (c.get("use_dora", false)) refuse("use_dora: DoRA adapters are not supported");
    if (c.get("lora_bias", false)) refuse("lora_bias: adapters that change biases are not supported");
    if (const auto bias = c.get<std::string>("bias", "none"); bias != "none")
      refuse(
          fmt::format("bias: expected none, found {}: adapters that change biases are not supported", bias));
    for (const char* key : {"modules_to_save", "trainable_token_indices", "layer_replication",
                            "target_parameters", "alora_invocation_tokens"})
      if (c.has(key) && !(c.is_array(key) && c.get<std::vector<std::string>>(key).empty()))
        refuse(fmt::format("{}: not supported", key));
    // Others leave a changed base behind, which this model does not have.
    if (c.is_string("init_lora_weights")) {
      const auto kind = c.get<std::string>("init_lora_weights");
      if (kind != "gaussian" && kind != "eva" && kind != "orthogonal")
        refuse(
            fmt::format("init_lora_weights: \"{}\" changes the base model, which stays as it is here", kind));
    }
    out_.fan_in_fan_out_ = c.get("fan_in_fan_out", false);
    rank_ = c.integer("r", 1, AdapterFiles::kMostRank);
    alpha_ = number("lora_alpha");
    root_ = c.get("use_rslora", false);
    ranks_ = c.child("rank_pattern");
    alphas_ = c.child("alpha_pattern");
    for (const Config* patterns : {&*ranks_, &*alphas_})
      for (const std::string& key : patterns->keys())
        if (key.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.^", 0) !=
            std::string::npos)
          refuse(fmt::format("{}: \"{}\": expected a module's name or its end, not a general pattern",
                             patterns == &*ranks_ ? "rank_pattern" : "alpha_pattern", key));
  }

  void check_mlx() {
    const Config& c = *config_;
    const auto type = c.get<std::string>("fine_tune_type", "lora");
    if (type == "dora") refuse("fine_tune_type: DoRA adapters are not supported");
    if (type != "lora") refuse(fmt::format("fine_tune_type: expected lora, found {}", type));
    const Config parameters = c.child("lora_parameters");
    if (parameters.empty()) refuse("lora_parameters: missing");
    rank_ = parameters.integer("rank", 1, AdapterFiles::kMostRank);
    alpha_ = parameters.get<float>("scale");
    if (!std::isfinite(alpha_)) refuse("lora_parameters.scale: expected a finite number");
  }

  float number(const char* key) const {
    const float value = config_->get<float>(key);
    if (!std::isfinite(value)) refuse(fmt::format("{}: expected a finite number", key));
    return value;
  }

  /// "X.lora_A.weight" to X and whether it is the first half.
  std::optional<std::pair<std::string, bool>> half_of(const std::string& name) const {
    const std::vector<std::pair<const char*, bool>> endings =
        peft_ ? std::vector<std::pair<const char*, bool>>{{".lora_A.weight", true},
                                                          {".lora_B.weight", false},
                                                          {".lora_A.default.weight", true},
                                                          {".lora_B.default.weight", false}}
              : std::vector<std::pair<const char*, bool>>{{".lora_a", true}, {".lora_b", false}};
    for (const auto& [ending, first] : endings)
      if (name.ends_with(ending)) return std::pair(name.substr(0, name.size() - std::strlen(ending)), first);
    return std::nullopt;
  }

  static AdapterFiles::Copy copy_of(const std::string& name, const StoredTensor& stored) {
    const array data = load_stored(stored, name);
    return {name, AdapterFiles::bare(name.substr(0, name.size() - kCopy.size())) + ".weight",
            float_values(Weight{name, data.shape(), data, {}, {}, {}})};
  }

  void collect() {
    std::map<std::string, Halves> modules;
    std::vector<std::string> strays;
    for (const auto& [name, stored] : tensors_) {
      const auto half = half_of(name);
      if (half)
        (half->second ? modules[half->first].a : modules[half->first].b) = name;
      else if (peft_ && name.ends_with(kCopy))
        out_.copies_.push_back(copy_of(name, stored));
      else
        strays.push_back(name);
    }
    for (const auto& [module, halves] : modules) {
      if (halves.a.empty()) strays.push_back(halves.b);
      if (halves.b.empty()) strays.push_back(halves.a);
    }
    if (!strays.empty())
      fail(ErrorKind::bad_checkpoint, "{}: tensors that are not half of a LoRA pair: {}", where_,
           fmt::join(strays, ", "));
    if (modules.empty()) fail(ErrorKind::bad_checkpoint, "{}: no LoRA pairs", where_);
    uint64_t digest = 0xcbf29ce484222325ULL;
    for (const auto& [module, halves] : modules) {
      AdapterFiles::Pair pair = read_pair(module, halves);
      digest = mixed(digest, module.data(), module.size());
      digest = mixed(digest, pair.factors.left.data(), pair.factors.left.size() * sizeof(float));
      digest = mixed(digest, pair.factors.right.data(), pair.factors.right.size() * sizeof(float));
      out_.rank_ = std::max(out_.rank_, pair.factors.rank);
      if (!out_.pairs_.emplace(AdapterFiles::bare(module) + ".weight", std::move(pair)).second)
        fail(ErrorKind::bad_checkpoint, "{}: {}: the same module under two names", where_, module);
    }
    out_.digest_ = digest;
  }

  /// PEFT: the first pattern that is the module's name or its end.
  template <class T>
  T pattern(const Config& patterns, std::string module, T fallback) const {
    if (module.starts_with("base_model.model.")) module.erase(0, std::strlen("base_model.model."));
    for (const std::string& key : patterns.keys()) {
      const bool whole = key.starts_with("^");
      const std::string name = whole ? key.substr(1) : key;
      if (module == name || (!whole && module.ends_with("." + name))) {
        if constexpr (std::is_same_v<T, int>)
          return patterns.integer(key, 1, AdapterFiles::kMostRank);
        else
          return patterns.get<T>(key);
      }
    }
    return fallback;
  }

  AdapterFiles::Pair read_pair(const std::string& module, const Halves& halves) const {
    const StoredTensor &a = tensors_.at(halves.a), &b = tensors_.at(halves.b);
    const int rank = peft_ ? pattern(*ranks_, module, rank_) : rank_;
    const auto misfit = [&] {
      fail(ErrorKind::bad_checkpoint,
           "{}: {} {} and {} {} do not fit together at the rank {} of the configuration", where_, halves.a,
           to_string(a.shape), halves.b, to_string(b.shape), rank);
    };
    const size_t axes = a.shape.size();
    if (axes != b.shape.size() || axes < 2 || axes > (peft_ ? 2u : 3u)) misfit();
    const bool bank = axes == 3, turned = !peft_ && !bank;  // MLX's plain pairs are [in, r] and [r, out]
    LowRank f{.count = bank ? a.shape[0] : 0, .rank = rank};
    const auto at = [&](const StoredTensor& t, size_t axis) { return t.shape[axes - 2 + axis]; };
    f.columns = at(a, turned ? 0 : 1);
    f.rows = at(b, turned ? 1 : 0);
    if (at(a, turned ? 1 : 0) != rank || at(b, turned ? 0 : 1) != rank ||
        (bank && a.shape[0] != b.shape[0]) || f.rows < 1 || f.columns < 1 || (bank && f.count < 1))
      misfit();
    f.right = values_of(a, halves.a);
    f.left = values_of(b, halves.b);
    if (turned) {  // x a b: the product's transpose, seen from the weight
      LowRank other{.count = 0, .rows = f.columns, .columns = f.rows, .rank = rank};
      other.left = std::move(f.right);
      other.right = std::move(f.left);
      f = transposed(other);
    }
    const float alpha = peft_ ? pattern(*alphas_, module, alpha_) : alpha_;
    const float scale =
        !peft_ ? alpha : alpha / (root_ ? std::sqrt(static_cast<float>(rank)) : static_cast<float>(rank));
    if (!std::isfinite(scale)) refuse(fmt::format("{}: the scale is not finite", module));
    for (float& value : f.left) value *= scale;
    for (const auto* values : {&f.left, &f.right})
      if (!std::all_of(values->begin(), values->end(), [](float v) { return std::isfinite(v); }))
        fail(ErrorKind::bad_checkpoint, "{}: {}: a value is not finite", where_,
             values == &f.left ? halves.b : halves.a);
    return {module, std::move(f)};
  }

  AdapterFiles out_;
  std::optional<Config> config_, ranks_, alphas_;
  StoredTensors tensors_;
  std::string where_;
  bool peft_ = false, root_ = false;
  int rank_ = 0;
  float alpha_ = 0.0f;
};

// Wrappers that one tool puts around a model's names and another leaves out.
std::string AdapterFiles::bare(std::string name) {
  for (const char* wrapper : {"base_model.model.", "model.", "language_model.", "transformer.", "model."})
    if (name.starts_with(wrapper)) name.erase(0, std::strlen(wrapper));
  return name;
}

AdapterFiles AdapterFiles::read(const fs::path& folder) { return AdapterReader(folder).take(); }

std::optional<LowRank> AdapterFiles::of(const std::string& name, const Shape& shape) const {
  const auto found = pairs_.find(bare(name));
  if (found == pairs_.end()) return std::nullopt;
  const LowRank& factors = found->second.factors;
  used_.insert(found->first);
  const Shape own = factors.shape();
  Shape turned = own;
  std::swap(turned[turned.size() - 1], turned[turned.size() - 2]);
  if (fan_in_fan_out_ && shape == turned) return transposed(factors);
  if (shape != own)
    fail(ErrorKind::bad_checkpoint, "{}: {}: the pair makes {}, the model's {} is {}", path_.string(),
         found->second.stored, to_string(own), name, to_string(shape));
  return factors;
}

std::vector<std::string> AdapterFiles::unused() const {
  std::vector<std::string> names;
  for (const auto& [name, pair] : pairs_)
    if (!used_.contains(name)) names.push_back(pair.stored);
  return names;
}

}  // namespace mlxcel
