#include "checkpoint/adapter_files.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string_view>

#include "base/error.h"
#include "checkpoint/adapter_gguf.h"
#include "checkpoint/config.h"
#include "checkpoint/formats/safetensors.h"
#include "checkpoint/values.h"

namespace mlxcel {

namespace fs = std::filesystem;

namespace {

constexpr size_t kMaxConfig = size_t{4} << 20;
constexpr std::string_view kCopy = ".base_layer.weight", kWeight = ".weight", kLayer = ".base_layer";

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
    if (!fs::is_directory(folder))
      fail(ErrorKind::not_found, "{}: {}; expected a folder, a .safetensors or a .gguf file", path.string(),
           fs::exists(path) ? "this is no adapter" : "no such adapter");
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
    if (const auto saved = list_of("modules_to_save"); !saved.empty())
      refuse(fmt::format("modules_to_save: {}: retrained modules are not supported", fmt::join(saved, ", ")));
    for (const char* key : {"trainable_token_indices", "layer_replication", "alora_invocation_tokens"})
      if (c.has(key) && !(c.is_array(key) && c.get<std::vector<std::string>>(key).empty()))
        refuse(fmt::format("{}: not supported", key));
    parameters_ = list_of("target_parameters");
    out_.heads_follow_tables_ = c.get("ensure_weight_tying", false);
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

  std::vector<std::string> list_of(const char* key) const {
    if (!config_->has(key)) return {};
    if (config_->is_string(key)) return {config_->get<std::string>(key)};
    return config_->get<std::vector<std::string>>(key);
  }

  void check_mlx() {
    const Config& c = *config_;
    out_.heads_follow_tables_ = true;
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
                                                          {".lora_B.default.weight", false},
                                                          {".lora_embedding_A", true},
                                                          {".lora_embedding_B", false},
                                                          {".lora_embedding_A.default", true},
                                                          {".lora_embedding_B.default", false}}
              : std::vector<std::pair<const char*, bool>>{{".lora_a", true}, {".lora_b", false}};
    for (const auto& [ending, first] : endings)
      if (name.ends_with(ending)) return std::pair(name.substr(0, name.size() - std::strlen(ending)), first);
    return std::nullopt;
  }

  static AdapterFiles::Copy copy_of(const std::string& name, const StoredTensor& stored) {
    const array data = load_stored(stored, name);
    const std::string_view ending = name.ends_with(kCopy) ? kCopy : kWeight;
    return {name, AdapterFiles::bare(name.substr(0, name.size() - ending.size())) + ".weight",
            float_values(Weight{name, data.shape(), data, {}, {}, {}})};
  }

  /// The base's weights that PEFT writes beside a targeted table or head; beside a table the head's too.
  bool is_copy(const std::string& name) const {
    if (!peft_) return false;
    if (name.ends_with(kCopy)) return true;
    const bool table = std::any_of(tensors_.begin(), tensors_.end(), [](const auto& entry) {
      return entry.first.find(".lora_embedding_A") != std::string::npos;
    });
    return table && (name.ends_with("embed_tokens.weight") || name.ends_with("lm_head.weight") ||
                     name.ends_with("wte.weight"));
  }

  void collect() {
    std::map<std::string, Halves> modules;
    std::vector<std::string> strays;
    for (const auto& [name, stored] : tensors_) {
      const auto half = half_of(name);
      if (half)
        (half->second ? modules[half->first].a : modules[half->first].b) = name;
      else if (is_copy(name))
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
    for (const auto& [module, halves] : modules) {
      const int rank = peft_ ? pattern(*ranks_, module, rank_) : rank_;
      const auto parameter = parameter_of(module);
      out_.put(parameter ? *parameter : module,
               parameter ? read_bank(*parameter, halves, rank) : read_pair(module, halves, rank),
               scale_of(module, rank), where_);
    }
  }

  float scale_of(const std::string& module, int rank) const {
    if (!peft_) return alpha_;
    const float alpha = pattern(*alphas_, module, alpha_);
    return alpha / (root_ ? std::sqrt(static_cast<float>(rank)) : static_cast<float>(rank));
  }

  /// PEFT wraps a module once for each of its parameters that are targeted, the first one innermost:
  /// "X.base_layer" is gate_up_proj where "X" is down_proj. The parameter's whole name, where it is no
  /// module's own weight.
  std::optional<std::string> parameter_of(const std::string& module) const {
    if (parameters_.empty()) return std::nullopt;
    std::string name = module;
    size_t depth = 0;
    while (name.ends_with(kLayer)) {
      name.resize(name.size() - kLayer.size());
      ++depth;
    }
    std::vector<std::string> own;
    for (const std::string& target : parameters_) {
      const auto dot = target.rfind('.');
      const std::string holder = dot == std::string::npos ? "" : target.substr(0, dot);
      const std::string leaf = dot == std::string::npos ? target : target.substr(dot + 1);
      if (name != holder && !name.ends_with("." + holder)) continue;
      if (std::find(own.begin(), own.end(), leaf) == own.end()) own.push_back(leaf);
    }
    if (own.empty() || own == std::vector<std::string>{"weight"}) return std::nullopt;
    constexpr std::string_view order[] = {"gate_up_proj", "gate_proj", "up_proj", "down_proj"};
    const auto place = [&](const std::string& leaf) {
      return std::find(std::begin(order), std::end(order), leaf) - std::begin(order);
    };
    std::sort(own.begin(), own.end(),
              [&](const std::string& a, const std::string& b) { return place(a) > place(b); });
    if (depth >= own.size() || (own.size() > 1 && place(own.front()) == std::ssize(order)))
      fail(ErrorKind::unsupported,
           "{}: {}: target_parameters {}: which of them this pair belongs to is not known", where_, module,
           fmt::join(own, ", "));
    return name + "." + own[depth];
  }

  /// A parameter [experts, ...]: A [experts * rank, in], B [out, rank * experts].
  AdapterFiles::Pair read_bank(const std::string& name, const Halves& halves, int rank) const {
    const StoredTensor &a = tensors_.at(halves.a), &b = tensors_.at(halves.b);
    if (a.shape.size() != 2 || b.shape.size() != 2 || a.shape[0] % rank != 0 || a.shape[0] < rank ||
        b.shape[1] != a.shape[0] || a.shape[1] < 1 || b.shape[0] < 1)
      fail(ErrorKind::bad_checkpoint,
           "{}: {} {} and {} {} do not fit together as a bank of experts at the rank {} of the configuration",
           where_, halves.a, to_string(a.shape), halves.b, to_string(b.shape), rank);
    const int experts = a.shape[0] / rank;
    LowRank f{.count = experts, .rows = b.shape[0], .columns = a.shape[1], .rank = rank};
    f.right = values_of(a, halves.a);
    const auto packed = values_of(b, halves.b);  // [out, rank, experts]
    f.left.resize(packed.size());
    const auto n = static_cast<size_t>(experts), r = static_cast<size_t>(rank);
    for (size_t at = 0; at < packed.size(); ++at) {
      const size_t expert = at % n, k = at / n % r, row = at / n / r;
      f.left[(expert * static_cast<size_t>(f.rows) + row) * r + k] = packed[at];
    }
    return {name, std::move(f), AdapterFiles::Pair::Form::parameter};
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

  AdapterFiles::Pair read_pair(const std::string& module, const Halves& halves, int rank) const {
    const StoredTensor &a = tensors_.at(halves.a), &b = tensors_.at(halves.b);
    const auto misfit = [&] {
      fail(ErrorKind::bad_checkpoint,
           "{}: {} {} and {} {} do not fit together at the rank {} of the configuration", where_, halves.a,
           to_string(a.shape), halves.b, to_string(b.shape), rank);
    };
    const size_t axes = a.shape.size();
    if (axes != b.shape.size() || axes < 2 || axes > (peft_ ? 2u : 3u)) misfit();
    const bool bank = axes == 3;
    // PEFT's tables are A [rank, rows] and B [width, rank], MLX's A [rows, rank] and B [rank, width].
    const bool table = peft_ ? halves.a.find(".lora_embedding_A") != std::string::npos : is_table(module);
    const bool turned = !peft_ && !bank && !table;  // MLX's plain pairs are [in, r] and [r, out]
    const bool tall = table && !peft_;
    LowRank f{.count = bank ? a.shape[0] : 0, .rank = rank};
    const auto at = [&](const StoredTensor& t, size_t axis) { return t.shape[axes - 2 + axis]; };
    f.columns = at(a, turned || tall ? 0 : 1);
    f.rows = at(b, turned || tall ? 1 : 0);
    if (at(a, turned || tall ? 1 : 0) != rank || at(b, turned || tall ? 0 : 1) != rank ||
        (bank && a.shape[0] != b.shape[0]) || f.rows < 1 || f.columns < 1 || (bank && f.count < 1))
      misfit();
    if (tall) {  // as they are: table rows, then what they are multiplied with
      std::swap(f.rows, f.columns);
      f.left = values_of(a, halves.a);
      f.right = values_of(b, halves.b);
      return {module, std::move(f)};
    }
    f.right = values_of(a, halves.a);
    f.left = values_of(b, halves.b);
    if (turned) {  // x a b: the product's transpose, seen from the weight
      LowRank other{.count = 0, .rows = f.columns, .columns = f.rows, .rank = rank};
      other.left = std::move(f.right);
      other.right = std::move(f.left);
      f = transposed(other);
    }
    if (table) f = transposed(f);  // [width, rows] as [rows, width]
    return {module, std::move(f)};
  }

  /// MLX names a table's pair as a layer's.
  static bool is_table(const std::string& module) {
    for (const char* name : {"embed_tokens", "wte", "word_embeddings", "embeddings", "tok_embeddings"})
      if (module == name || module.ends_with(std::string(".") + name)) return true;
    return false;
  }

  AdapterFiles out_;
  std::optional<Config> config_, ranks_, alphas_;
  StoredTensors tensors_;
  std::string where_;
  std::vector<std::string> parameters_;  // PEFT's target_parameters
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

AdapterFiles AdapterFiles::read(const fs::path& folder) {
  if (folder.extension() == ".gguf") return read_gguf_adapter(folder);
  return AdapterReader(folder).take();
}

void AdapterFiles::put(const std::string& module, Pair pair, float scale, const std::string& where) {
  if (!std::isfinite(scale))
    fail(ErrorKind::bad_checkpoint, "{}: {}: the scale is not finite", where, module);
  LowRank& f = pair.factors;
  for (float& value : f.left) value *= scale;
  for (const auto* values : {&f.left, &f.right})
    if (!std::all_of(values->begin(), values->end(), [](float v) { return std::isfinite(v); }))
      fail(ErrorKind::bad_checkpoint, "{}: {}: a value of {} is not finite", where, pair.stored,
           values == &f.left ? "lora_B" : "lora_A");
  digest_ = mixed(digest_, module.data(), module.size());
  digest_ = mixed(digest_, f.left.data(), f.left.size() * sizeof(float));
  digest_ = mixed(digest_, f.right.data(), f.right.size() * sizeof(float));
  rank_ = std::max(rank_, f.rank);
  if (!pairs_.emplace(bare(module) + ".weight", std::move(pair)).second)
    fail(ErrorKind::bad_checkpoint, "{}: {}: the same module under two names", where, module);
}

namespace {

/// Rows 2i and 2i + 1 of each head as rows i and i + half.
LowRank rows_in_halves(const LowRank& whole, int heads, const std::string& what) {
  if (heads < 1 || whole.count != 0 || whole.rows % heads != 0 || whole.rows / heads % 2 != 0)
    fail(ErrorKind::bad_checkpoint, "{}: {} rows do not make {} heads of even width", what, whole.rows,
         heads);
  LowRank out = whole;
  const auto rank = static_cast<size_t>(whole.rank);
  const int width = whole.rows / heads, half = width / 2;
  for (int row = 0; row < whole.rows; ++row) {
    const int head = row / width, within = row % width;
    const auto from = static_cast<size_t>(head * width + within % half * 2 + within / half) * rank;
    std::copy_n(whole.left.begin() + static_cast<ptrdiff_t>(from), rank,
                out.left.begin() + static_cast<ptrdiff_t>(static_cast<size_t>(row) * rank));
  }
  return out;
}

}  // namespace

void AdapterFiles::settle(const Base& base) {
  for (auto& [name, pair] : pairs_) {
    if (pair.form == Pair::Form::query_pairs || pair.form == Pair::Form::key_pairs) {
      const int heads = pair.form == Pair::Form::query_pairs ? base.heads : base.kv_heads;
      pair.factors = rows_in_halves(pair.factors, heads, path_.string() + ": " + pair.stored);
    } else if (pair.form == Pair::Form::parameter && base.turned_experts) {
      pair.factors = transposed(pair.factors);
    }
    pair.form = Pair::Form::published;
  }
}

std::optional<LowRank> AdapterFiles::of_bank(const std::string& name, const Shape& shape) const {
  constexpr std::string_view bank = ".switch_mlp.";
  const auto at = name.find(bank);
  if (at == std::string::npos || shape.size() != 3) return std::nullopt;
  std::string owner = name.substr(0, at);
  const std::string leaf = name.substr(at + bank.size());
  if (const auto moe = owner.rfind("block_sparse_moe"); moe != std::string::npos)
    owner.replace(moe, 16, "mlp");
  const bool gate = leaf == "gate_proj.weight", up = leaf == "up_proj.weight";
  if (!gate && !up)
    return leaf == "down_proj.weight" ? of(owner + ".experts.down_proj.weight", shape) : std::nullopt;
  const auto both = of(owner + ".experts.gate_up_proj.weight", {shape[0], 2 * shape[1], shape[2]});
  if (!both) return std::nullopt;
  return picked(*both, 1, gate ? 0 : shape[1], 1, shape[1]);
}

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
