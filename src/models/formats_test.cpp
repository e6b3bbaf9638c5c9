// Every weight format through the whole way of a checkpoint: a small model whose matrices are stored in the
// format answers as the same model with the values that those codes stand for, stored as f32.
#include <gtest/gtest.h>
#include <mlx/transforms.h>

#include <cmath>
#include <functional>
#include <map>
#include <random>

#include "checkpoint/checkpoint.h"
#include "checkpoint/foreign/small_floats.h"
#include "checkpoint/formats/test_files.h"
#include "kernels/matrix.h"
#include "models/model.h"
#include "models/synthetic.h"

namespace mlxcel {
namespace {

using namespace testing_files;

constexpr int kHidden = 128, kVocab = 96;

/// A checkpoint of one file, made tensor by tensor.
class Store {
 public:
  template <class T>
  void put(const std::string& name, const char* dtype, const Shape& shape, const std::vector<T>& values) {
    header_ += fmt::format(R"({}"{}": {{"dtype": "{}", "shape": {}, "data_offsets": [{}, {}]}})",
                           header_.empty() ? "" : ", ", name, dtype, to_string(shape), data_.size(),
                           data_.size() + values.size() * sizeof(T));
    data_.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  }
  void put(const std::string& name, const char* dtype, const array& values) {
    array whole = mx::contiguous(values);
    whole.eval();
    const auto* from = reinterpret_cast<const uint8_t*>(whole.data<char>());
    header_ += fmt::format(R"({}"{}": {{"dtype": "{}", "shape": {}, "data_offsets": [{}, {}]}})",
                           header_.empty() ? "" : ", ", name, dtype, to_string(values.shape()), data_.size(),
                           data_.size() + whole.nbytes());
    data_.append(reinterpret_cast<const char*>(from), whole.nbytes());
  }
  std::unique_ptr<Model> load(const std::string& config) const {
    const Folder folder;
    folder.put("config.json", config);
    folder.put("model.safetensors", safetensors("{" + header_ + "}", data_));
    return load_model(open_checkpoint(folder.path()));
  }

 private:
  std::string header_, data_;
};

/// Stores a matrix [out, in] under a module's name; what its codes stand for.
using Packer = std::function<std::vector<float>(Store&, const std::string& module, int out, int in)>;

std::string config_of(const std::string& quantization) {
  return fmt::format(
      R"({{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": {}, "hidden_size": {},
      "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
      "hidden_act": "silu", "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
      "tie_word_embeddings": false{}}})",
      kVocab, kHidden, quantization);
}

std::vector<std::pair<std::string, Shape>> matrices() {
  std::vector<std::pair<std::string, Shape>> all{{"lm_head", {kVocab, kHidden}}};
  for (int i = 0; i < 2; ++i) {
    const std::string layer = fmt::format("model.layers.{}.", i);
    all.push_back({layer + "self_attn.q_proj", {kHidden, kHidden}});
    all.push_back({layer + "self_attn.k_proj", {kHidden / 2, kHidden}});
    all.push_back({layer + "self_attn.v_proj", {kHidden / 2, kHidden}});
    all.push_back({layer + "self_attn.o_proj", {kHidden, kHidden}});
    all.push_back({layer + "mlp.gate_proj", {256, kHidden}});
    all.push_back({layer + "mlp.up_proj", {256, kHidden}});
    all.push_back({layer + "mlp.down_proj", {kHidden, 256}});
  }
  return all;
}

std::vector<float> logits_of(Model& model) {
  StateStore store(model.layout(), {.kv_dtype = mx::float32, .max_tokens = 64});
  RowState row = store.make_row();
  Step step;
  const std::vector<int32_t> tokens = {3, 90, 17, 17, 44, 1, 60, 8, 71, 25, 13};
  step.add(&row, tokens, Wants::all);
  step.seal();
  array out = model.logits(step);
  std::vector<array> all = step.pending();
  all.push_back(out);
  mx::eval(all);
  out = mx::contiguous(out);
  out.eval();
  return {out.data<float>(), out.data<float>() + out.size()};
}

void expect_same_answers(
    const std::string& name, const Packer& pack, const std::string& quantization,
    const std::function<bool(const std::string&)>& packed = [](const auto&) { return true; }) {
  Store stored, plain;
  const auto both = [&](const std::string& tensor, const Shape& shape) {
    const auto values = synthetic_values(tensor, shape);
    stored.put(tensor, "F32", shape, values);
    plain.put(tensor, "F32", shape, values);
  };
  both("model.embed_tokens.weight", {kVocab, kHidden});
  both("model.norm.weight", {kHidden});
  for (int i = 0; i < 2; ++i)
    for (const char* norm : {"input_layernorm", "post_attention_layernorm"})
      both(fmt::format("model.layers.{}.{}.weight", i, norm), {kHidden});
  for (const auto& [module, shape] : matrices()) {
    if (!packed(module)) {
      both(module + ".weight", shape);
      continue;
    }
    const auto values = pack(stored, module, shape[0], shape[1]);
    ASSERT_EQ(values.size(), static_cast<size_t>(shape[0] * shape[1])) << name;
    plain.put(module + ".weight", "F32", shape, values);
  }
  for (const KernelMode mode : {KernelMode::native, KernelMode::reference}) {
    const KernelMode before = kernel_mode();
    set_kernel_mode(mode);
    const auto found = logits_of(*stored.load(config_of(quantization)));
    const auto want = logits_of(*plain.load(config_of("")));
    set_kernel_mode(before);
    ASSERT_EQ(found.size(), want.size());
    float largest = 0.0f, worst = 0.0f;
    for (size_t i = 0; i < want.size(); ++i) {
      largest = std::max(largest, std::abs(want[i]));
      worst = std::max(worst, std::isfinite(found[i]) ? std::abs(found[i] - want[i]) : INFINITY);
    }
    EXPECT_GT(largest, 0.1f) << name;
    EXPECT_LT(worst, 4e-3f * largest) << name << (mode == KernelMode::native ? ", native" : ", reference");
  }
}

array values_in(const std::string& module, int out, int in) {
  const auto values = synthetic_values(module + ".weight", {out, in});
  return array(values.begin(), {out, in}, mx::float32);
}

std::vector<float> floats(const array& values) {
  array whole = mx::contiguous(mx::astype(values, mx::float32));
  whole.eval();
  return {whole.data<float>(), whole.data<float>() + whole.size()};
}

/// As MLX stores it.
Packer mlx_planes(const std::string& mode, int bits, int group) {
  return [=](Store& store, const std::string& module, int out, int in) {
    const bool affine = mode == "affine";
    const array values = values_in(module, out, in);
    const auto planes = mx::quantize(affine ? mx::astype(values, mx::float16) : values, group, bits, mode);
    store.put(module + ".weight", "U32", planes[0]);
    store.put(module + ".scales", affine ? "F16" : "U8", planes[1]);
    if (affine) store.put(module + ".biases", "F16", planes[2]);
    std::optional<array> biases;
    if (affine) biases = mx::astype(planes[2], mx::float32);
    return floats(mx::dequantize(planes[0], affine ? mx::astype(planes[1], mx::float32) : planes[1], biases,
                                 group, bits, mode, std::nullopt, mx::float32));
  };
}

TEST(Formats, mlx_affine_of_every_width) {
  for (const int bits : {2, 3, 4, 5, 6, 8})
    for (const int group : {32, 64, 128})
      expect_same_answers(fmt::format("affine {} bits, groups of {}", bits, group),
                          mlx_planes("affine", bits, group),
                          fmt::format(R"(, "quantization": {{"group_size": {}, "bits": {}}})", group, bits));
}

TEST(Formats, mlx_small_floats) {
  for (const auto& [mode, bits, group] : {std::tuple{"mxfp4", 4, 32}, {"nvfp4", 4, 16}, {"mxfp8", 8, 32}})
    expect_same_answers(mode, mlx_planes(mode, bits, group),
                        fmt::format(R"(, "quantization": {{"group_size": {}, "bits": {}, "mode": "{}"}})",
                                    group, bits, mode));
}

TEST(Formats, modules_may_differ) {
  // 4 bits but for down_proj (8, under its name inside a wrapper) and lm_head (dense).
  const auto pack = [](Store& store, const std::string& module, int out, int in) {
    return mlx_planes("affine", module.ends_with("down_proj") ? 8 : 4, 64)(store, module, out, in);
  };
  expect_same_answers("mixed", pack,
                      R"(, "quantization": {"group_size": 64, "bits": 4, "lm_head": false,
      "language_model.model.layers.0.mlp.down_proj": {"group_size": 64, "bits": 8},
      "model.layers.1.mlp.down_proj": {"group_size": 64, "bits": 8}})",
                      [](const std::string& module) { return module != "lm_head"; });
}

/// Codes, zero points and scales that follow from a name.
struct Codes {
  int out, in, group;
  unsigned most;
  std::vector<unsigned> codes, zeros;
  std::vector<mx::float16_t> scales;  // [out][groups]
  Codes(const std::string& module, int rows, int columns, int g, unsigned top)
      : out(rows), in(columns), group(g), most(top) {
    std::mt19937 random(static_cast<unsigned>(std::hash<std::string>()(module)));
    for (int i = 0; i < out * in; ++i) codes.push_back(random() % (most + 1));
    for (int i = 0; i < out * groups(); ++i) {
      zeros.push_back(1 + random() % (most - 1));
      scales.push_back(
          mx::float16_t(static_cast<float>(16 + random() % 16) / 256.0f / static_cast<float>(most + 1)));
    }
  }
  int groups() const { return in / group; }
  unsigned code(int r, int c) const { return codes[static_cast<size_t>(r * in + c)]; }
  unsigned zero(int r, int g) const { return zeros[static_cast<size_t>(r * groups() + g)]; }
  float scale(int r, int g) const {
    return static_cast<float>(scales[static_cast<size_t>(r * groups() + g)]);
  }
  std::vector<float> values(const std::function<float(int, int)>& zero_of) const {
    std::vector<float> all;
    for (int r = 0; r < out; ++r)
      for (int c = 0; c < in; ++c)
        all.push_back((static_cast<float>(code(r, c)) - zero_of(r, c / group)) * scale(r, c / group));
    return all;
  }
  std::vector<float> values() const {
    return values([this](int r, int g) { return static_cast<float>(zero(r, g)); });
  }
  std::vector<mx::float16_t> by_group() const {
    std::vector<mx::float16_t> all;
    for (int g = 0; g < groups(); ++g)
      for (int r = 0; r < out; ++r) all.push_back(mx::float16_t(scale(r, g)));
    return all;
  }
};

/// `count` codes of 4 bits a word; at(i) is the i-th.
int32_t word_of(const std::function<unsigned(int)>& at) {
  uint32_t word = 0;
  for (int i = 0; i < 8; ++i) word |= at(i) << (4 * i);
  return static_cast<int32_t>(word);
}

TEST(Formats, awq) {
  const auto pack = [](Store& store, const std::string& module, int out, int in) {
    constexpr int order[] = {0, 2, 4, 6, 1, 3, 5, 7};
    const Codes m(module, out, in, 32, 15);
    std::vector<int32_t> codes, zeros;
    for (int c = 0; c < in; ++c)
      for (int r = 0; r < out; r += 8)
        codes.push_back(word_of([&](int i) { return m.code(r + order[i], c); }));
    for (int g = 0; g < m.groups(); ++g)
      for (int r = 0; r < out; r += 8)
        zeros.push_back(word_of([&](int i) { return m.zero(r + order[i], g); }));
    store.put(module + ".qweight", "I32", {in, out / 8}, codes);
    store.put(module + ".qzeros", "I32", {m.groups(), out / 8}, zeros);
    store.put(module + ".scales", "F16", {m.groups(), out}, m.by_group());
    return m.values();
  };
  expect_same_answers("AWQ", pack,
                      R"(, "quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 32,
                          "zero_point": true, "version": "gemm"})");
}

TEST(Formats, gptq) {
  const auto pack = [](Store& store, const std::string& module, int out, int in) {
    const Codes m(module, out, in, 64, 15);
    std::vector<int32_t> codes, zeros, order;
    for (int c = 0; c < in; c += 8)
      for (int r = 0; r < out; ++r) codes.push_back(word_of([&](int i) { return m.code(r, c + i); }));
    for (int g = 0; g < m.groups(); ++g)
      for (int r = 0; r < out; r += 8) zeros.push_back(word_of([&](int i) { return m.zero(r + i, g) - 1; }));
    for (int c = 0; c < in; ++c) order.push_back(c / m.group);
    store.put(module + ".qweight", "I32", {in / 8, out}, codes);
    store.put(module + ".qzeros", "I32", {m.groups(), out / 8}, zeros);
    store.put(module + ".scales", "F16", {m.groups(), out}, m.by_group());
    store.put(module + ".g_idx", "I32", {in}, order);
    return m.values();
  };
  expect_same_answers("GPTQ", pack,
                      R"(, "quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 64})");
}

constexpr const char* kCompressed = R"(, "quantization_config": {"quant_method": "compressed-tensors",
    "format": "pack-quantized", "config_groups": {"group_0": {"weights": {"num_bits": 4}}}})";

TEST(Formats, compressed_tensors) {
  const auto packed = [](Store& store, const std::string& module, int out, int in) {
    const Codes m(module, out, in, 32, 15);
    std::vector<int32_t> words;
    for (int r = 0; r < out; ++r)
      for (int c = 0; c < in; c += 8) words.push_back(word_of([&](int i) { return m.code(r, c + i); }));
    store.put(module + ".weight_packed", "I32", {out, in / 8}, words);
    store.put(module + ".weight_scale", "F16", {out, m.groups()}, m.scales);
    store.put<int64_t>(module + ".weight_shape", "I64", {2}, {out, in});
    return m.values([](int, int) { return 8.0f; });
  };
  expect_same_answers("packed integers", packed, kCompressed);
  const auto bytes = [](Store& store, const std::string& module, int out, int in) {
    const Codes m(module, out, in, in, 255);
    std::vector<int8_t> codes;
    std::vector<float> scales;
    for (const unsigned code : m.codes) codes.push_back(static_cast<int8_t>(static_cast<int>(code) - 128));
    for (int r = 0; r < out; ++r) scales.push_back(m.scale(r, 0));
    store.put(module + ".weight", "I8", {out, in}, codes);
    store.put(module + ".weight_scale", "F32", {out, 1}, scales);
    return m.values([](int, int) { return 128.0f; });
  };
  expect_same_answers("bytes", bytes, kCompressed);
}

/// Finite codes of E4M3, small ones.
std::vector<uint8_t> float_codes(const std::string& module, int count) {
  std::mt19937 random(static_cast<unsigned>(std::hash<std::string>()(module)));
  std::vector<uint8_t> codes;
  for (int i = 0; i < count; ++i) codes.push_back(static_cast<uint8_t>(random() % 64 + (random() % 2) * 128));
  return codes;
}

TEST(Formats, fp8_blocks) {
  for (const bool exponents : {false, true}) {
    const auto pack = [&](Store& store, const std::string& module, int out, int in) {
      const auto codes = float_codes(module, out * in);
      const int rows = (out + 31) / 32, columns = in / 64;
      std::vector<float> scales, values;
      std::vector<uint8_t> powers;
      for (int i = 0; i < rows * columns; ++i) {
        powers.push_back(static_cast<uint8_t>(123 + i % 3));
        scales.push_back(exponents ? from_e8m0(powers.back()) : 0.05f + 0.01f * static_cast<float>(i % 5));
      }
      for (int r = 0; r < out; ++r)
        for (int c = 0; c < in; ++c)
          values.push_back(e4m3_values()[codes[static_cast<size_t>(r * in + c)]] *
                           scales[static_cast<size_t>(r / 32 * columns + c / 64)]);
      store.put(module + ".weight", "F8_E4M3", {out, in}, codes);
      if (exponents)
        store.put(module + ".scale", "F8_E8M0", {rows, columns}, powers);
      else
        store.put(module + ".weight_scale_inv", "F32", {rows, columns}, scales);
      return values;
    };
    expect_same_answers(exponents ? "fp8, exponents" : "fp8", pack,
                        R"(, "quantization_config": {"quant_method": "fp8", "weight_block_size": [32, 64]})");
  }
}

/// Two codes of four bits a byte; their values by scale(row, group of `group`).
std::vector<float> pairs_of(const std::vector<uint8_t>& pairs, int out, int in, int group,
                            const std::function<float(int, int)>& scale) {
  std::vector<float> values;
  for (int r = 0; r < out; ++r)
    for (int c = 0; c < in; ++c) {
      const uint8_t pair = pairs[static_cast<size_t>((r * in + c) / 2)];
      values.push_back(from_e2m1(c % 2 == 0 ? pair & 15u : pair >> 4) * scale(r, c / group));
    }
  return values;
}

std::vector<uint8_t> bytes_from(const std::string& module, int count) {
  std::mt19937 random(static_cast<unsigned>(std::hash<std::string>()(module)));
  std::vector<uint8_t> bytes;
  for (int i = 0; i < count; ++i) bytes.push_back(static_cast<uint8_t>(random()));
  return bytes;
}

TEST(Formats, nvfp4_of_modelopt_and_compressed_tensors) {
  for (const bool modelopt : {true, false}) {
    const auto pack = [&](Store& store, const std::string& module, int out, int in) {
      const auto pairs = bytes_from(module, out * in / 2), scales = float_codes(module + "s", out * in / 16);
      std::vector<uint8_t> positive;
      for (const uint8_t code : scales) positive.push_back(static_cast<uint8_t>((code & 31) + 24));
      store.put(module + (modelopt ? ".weight" : ".weight_packed"), "U8", {out, in / 2}, pairs);
      store.put(module + ".weight_scale", "F8_E4M3", {out, in / 16}, positive);
      if (modelopt)
        store.put<float>(module + ".weight_scale_2", "F32", {}, {0.0625f});
      else
        store.put<float>(module + ".weight_global_scale", "F32", {1}, {16.0f});
      store.put<float>(module + ".input_scale", "F32", {}, {1.0f});
      return pairs_of(pairs, out, in, 16, [&](int r, int g) {
        return e4m3_values()[positive[static_cast<size_t>(r * (in / 16) + g)]] * 0.0625f;
      });
    };
    expect_same_answers(modelopt ? "ModelOpt NVFP4" : "compressed NVFP4", pack,
                        fmt::format(R"(, "quantization_config": {{"quant_method": "{}"}})",
                                    modelopt ? "modelopt" : "compressed-tensors"));
  }
}

TEST(Formats, mxfp4_of_others) {
  for (const bool signed_pairs : {false, true}) {
    const auto pack = [&](Store& store, const std::string& module, int out, int in) {
      const auto pairs = bytes_from(module, out * in / 2);
      std::vector<uint8_t> exponents;
      for (int i = 0; i < out * in / 32; ++i) exponents.push_back(static_cast<uint8_t>(121 + i % 4));
      if (signed_pairs) {  // DeepSeek-V4's experts
        store.put(module + ".weight", "I8", {out, in / 2}, std::vector<int8_t>(pairs.begin(), pairs.end()));
        store.put(module + ".scale", "F8_E8M0", {out, in / 32}, exponents);
      } else {
        store.put(module + ".weight_packed", "U8", {out, in / 2}, pairs);
        store.put(module + ".weight_scale", "U8", {out, in / 32}, exponents);
      }
      return pairs_of(pairs, out, in, 32, [&](int r, int g) {
        return from_e8m0(exponents[static_cast<size_t>(r * (in / 32) + g)]);
      });
    };
    expect_same_answers(signed_pairs ? "pairs with exponents" : "compressed mxfp4", pack,
                        fmt::format(R"(, "quantization_config": {{"quant_method": "{}"}})",
                                    signed_pairs ? "fp8" : "compressed-tensors"));
  }
}

TEST(Formats, bitnet) {
  const auto pack = [](Store& store, const std::string& module, int out, int in) {
    const auto bytes = bytes_from(module, out * in);
    std::vector<uint8_t> packed(static_cast<size_t>(out / 4 * in), 0);
    std::vector<float> values;
    for (int r = 0; r < out; ++r)
      for (int c = 0; c < in; ++c) {
        const int code = bytes[static_cast<size_t>(r * in + c)] % 3;
        packed[static_cast<size_t>(r % (out / 4) * in + c)] |=
            static_cast<uint8_t>(code << (2 * (r / (out / 4))));
        values.push_back(static_cast<float>(code - 1) / 16.0f);
      }
    store.put(module + ".weight", "U8", {out / 4, in}, packed);
    store.put<float>(module + ".weight_scale", "F32", {1}, {16.0f});  // divides
    return values;
  };
  expect_same_answers("BitNet", pack, R"(, "quantization_config": {"quant_method": "bitnet"})");
}

TEST(Formats, a_wrong_plane_is_named) {
  Store store;
  const auto both = [&](const std::string& tensor, const Shape& shape) {
    store.put(tensor, "F32", shape, synthetic_values(tensor, shape));
  };
  both("model.embed_tokens.weight", {kVocab, kHidden});
  both("model.norm.weight", {kHidden});
  for (int i = 0; i < 2; ++i)
    for (const char* norm : {"input_layernorm", "post_attention_layernorm"})
      both(fmt::format("model.layers.{}.{}.weight", i, norm), {kHidden});
  for (const auto& [module, shape] : matrices()) {
    const bool torn = module == "model.layers.1.mlp.up_proj";
    (void)mlx_planes("affine", 4, 64)(store, module, torn ? shape[0] - 8 : shape[0], shape[1]);
  }
  const Caught error =
      caught([&] { (void)store.load(config_of(R"(, "quantization": {"group_size": 64, "bits": 4})")); });
  EXPECT_EQ(error.kind, ErrorKind::bad_checkpoint);
  EXPECT_NE(
      error.message.find("model.layers.1.mlp.up_proj.weight: expected [256, 128], checkpoint has [248, 128]"),
      std::string::npos)
      << error.message;
}

}  // namespace
}  // namespace mlxcel
