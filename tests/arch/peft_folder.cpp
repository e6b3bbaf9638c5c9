#include "peft_folder.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <fstream>

#include "base/error.h"
#include "checkpoint/formats/safetensors_writer.h"
#include "network.h"

namespace mlxcel::archtest {

namespace fs = std::filesystem;

PeftFolder::PeftFolder(const std::vector<TensorShape>& matrices, int seed) {
  static std::atomic<int> serial{0};
  path_ = fs::temp_directory_path() / fmt::format("mlxcel_peft_{}_{}", ::getpid(), serial++);
  fs::create_directories(path_);
  std::ofstream(path_ / "adapter_config.json") << R"({"peft_type": "LORA", "r": 3, "lora_alpha": 6})";
  std::vector<std::pair<std::string, array>> tensors;
  for (const TensorShape& m : matrices) {
    const std::string module = "base_model.model." + m.name.substr(0, m.name.rfind(".weight"));
    for (const auto& [half, shape] : {std::pair{".lora_A.weight", Shape{kRank, m.shape[1]}},
                                      {".lora_B.weight", Shape{m.shape[0], kRank}}}) {
      auto values = synthetic_values(std::to_string(seed) + module + half, shape);
      for (float& value : values) value *= 0.4f;
      tensors.emplace_back(module + half, array(values.data(), shape, mx::float32));
    }
  }
  write_safetensors(path_ / "adapter_model.safetensors", tensors);
}

PeftFolder::~PeftFolder() { fs::remove_all(path_); }

std::vector<TensorShape> adaptable(const NamedArch& entry, const Model& model) {
  std::vector<TensorShape> found;
  for (const TensorShape& tensor : published(entry)) {
    if (tensor.shape.size() != 2 || !tensor.name.ends_with(".weight")) continue;
    try {
      (void)model.adapter(PeftFolder({tensor}, 1).files());
      found.push_back(tensor);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::bad_checkpoint) << error.what();
      EXPECT_NE(std::string(error.what()).find(tensor.name.substr(0, tensor.name.rfind('.'))),
                std::string::npos)
          << error.what();
    }
  }
  return found;
}

}  // namespace mlxcel::archtest
