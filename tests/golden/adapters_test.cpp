// Adapters against the tools that make them: PEFT over transformers, mlx-lm for its own format
// (adapters/*.json, written by tools/golden/adapters.py).
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <mlx/transforms.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "checkpoint/formats/safetensors_writer.h"
#include "golden.h"
#include "kernels/matrix.h"
#include "nn/adapter.h"

namespace mlxcel::golden {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

struct AdapterGolden {
  Golden golden;
  Json json;
};

std::vector<AdapterGolden> read_all() {
  std::vector<AdapterGolden> list;
  for (const auto& entry : fs::directory_iterator(MLXCEL_SOURCE_DIR "/tests/golden/adapters")) {
    std::ifstream file(entry.path());
    AdapterGolden one{.golden = {}, .json = Json::parse(file)};
    one.golden.name = one.json.at("name");
    one.golden.config = one.json.at("config").dump();
    for (const auto& [name, shape] : one.json.at("tensors").items()) {
      const auto sizes = shape.get<std::vector<int>>();
      one.golden.tensors.push_back({name, Shape(sizes.begin(), sizes.end())});
    }
    one.golden.tokens = one.json.at("tokens").get<std::vector<int32_t>>();
    one.golden.positions = one.json.at("positions").get<std::vector<int>>();
    one.golden.expected = one.json.at("logits").get<Rows>();
    list.push_back(std::move(one));
  }
  std::sort(list.begin(), list.end(),
            [](const auto& a, const auto& b) { return a.golden.name < b.golden.name; });
  return list;
}

const std::vector<AdapterGolden>& all_adapters() {
  static const auto list = read_all();
  return list;
}

/// The adapter as its tool writes it.
class Folder {
 public:
  explicit Folder(const Json& json)
      : path_(fs::temp_directory_path() / fmt::format("mlxcel_adapter_golden_{}", ::getpid())) {
    fs::create_directories(path_);
    const Json& adapter = json.at("adapter");
    std::ofstream(path_ / "adapter_config.json") << adapter.dump();
    std::vector<std::pair<std::string, array>> tensors;
    for (const auto& [name, sizes] : json.at("factors").items()) {
      const auto list = sizes.get<std::vector<int>>();
      const Shape shape(list.begin(), list.end());
      const bool factor = name.find("lora_") != std::string::npos;
      std::string own = name;
      if (!factor) {  // a copy of the base's own weight
        if (const auto layer = own.find(".base_layer"); layer != std::string::npos) own.erase(layer, 11);
        own.erase(0, std::string("base_model.model.").size());
      }
      auto values = synthetic_values(own, shape);
      if (factor)
        for (float& value : values) value *= json.at("half").get<float>();
      tensors.emplace_back(name, array(values.data(), shape, mx::float32));
    }
    write_safetensors(
        path_ / (adapter.contains("peft_type") ? "adapter_model.safetensors" : "adapters.safetensors"),
        tensors);
  }
  ~Folder() { fs::remove_all(path_); }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

Rows run_with(Model& model, const std::vector<int32_t>& tokens, const AdapterSet* set) {
  StateStore store(model.layout(), {.kv_dtype = mx::float32, .max_tokens = 1024});
  RowState row = store.make_row(static_cast<int>(tokens.size()));
  Step step;
  step.add(&row, tokens, Wants::all, set);
  step.seal();
  const array logits = mx::contiguous(model.logits(step));
  std::vector<array> outputs = step.pending();
  outputs.push_back(logits);
  mx::eval(std::move(outputs));
  step.commit();
  const auto width = static_cast<size_t>(logits.shape(1));
  Rows rows(tokens.size());
  for (size_t i = 0; i < rows.size(); ++i)
    rows[i].assign(logits.data<float>() + i * width, logits.data<float>() + (i + 1) * width);
  return rows;
}

class AdapterGoldenTest : public ::testing::TestWithParam<size_t> {};

TEST_P(AdapterGoldenTest, equals_its_tool) {
  const auto& [golden, json] = all_adapters()[GetParam()];
  const Folder folder(json);
  const auto mode = kernel_mode();
  const auto precision = kernels::precision();
  for (const auto& [form, used, limit] : {std::tuple{KernelMode::native, kernels::Precision::exact, 2e-3f},
                                          {KernelMode::native, kernels::Precision::high, 5e-3f},
                                          {KernelMode::reference, kernels::Precision::exact, 2e-3f}}) {
    set_kernel_mode(form);
    kernels::set_precision(used);
    const auto model = build(golden, golden.config);
    const AdapterSet set{{{model->adapter(AdapterFiles::read(folder.path())), 1.0f}}};
    EXPECT_LE(distance(golden, run_with(*model, golden.tokens, &set)), limit) << golden.name;
    EXPECT_GT(distance(golden, run_with(*model, golden.tokens, nullptr)), 0.05f) << golden.name;
    const auto baked =
        build_model(Config::parse(golden.config, golden.name), source_of(golden.tensors, golden.formats),
                    LoadOptions{.progress = {}, .fuse = {{AdapterFiles::read(folder.path()), 1.0f}}});
    EXPECT_LE(distance(golden, run_with(*baked, golden.tokens, nullptr)), limit) << golden.name << ", fused";
  }
  set_kernel_mode(mode);
  kernels::set_precision(precision);
}

INSTANTIATE_TEST_SUITE_P(All, AdapterGoldenTest, ::testing::Range(size_t{0}, all_adapters().size()),
                         [](const auto& given) { return all_adapters()[given.param].golden.name; });

}  // namespace
}  // namespace mlxcel::golden
