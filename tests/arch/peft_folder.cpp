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
  std::vector<TensorShape> left;
  for (const TensorShape& tensor : published(entry))
    if (tensor.shape.size() == 2 && tensor.name.ends_with(".weight")) left.push_back(tensor);
  // What is added to a table leaves a head that shares it as it is: no weights say that.
  if (const Linear* head = model.head(); head && head->site && !head->site->parts().front().table.empty()) {
    const std::string table = AdapterFiles::bare(head->site->parts().front().table);
    std::erase_if(left, [&](const TensorShape& tensor) { return AdapterFiles::bare(tensor.name) == table; });
  }
  while (!left.empty()) {
    try {
      (void)model.adapter(PeftFolder(left, 1).files());
      return left;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::bad_checkpoint) << error.what();
      // It names what fits nowhere: all the rest must.
      const std::string message = std::string(error.what()) + ",";
      const size_t gone = std::erase_if(left, [&](const TensorShape& tensor) {
        const std::string module = "base_model.model." + tensor.name.substr(0, tensor.name.rfind('.'));
        for (const char* end : {",", ":", " "})
          if (message.find(module + end) != std::string::npos) return true;
        return false;
      });
      if (gone > 0) continue;
      ADD_FAILURE() << "no module is named: " << error.what();
      return {};
    }
  }
  return left;
}

}  // namespace mlxcel::archtest
