// Configs that lie, for every architecture: each number of its tiny config in turn as zero, less than zero,
// as large as an integer goes, and as another type; each list and word as another kind or length. Each is an
// error that names what is wrong, or a model; never another exception, a crash or an allocation of what the
// number says.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "network.h"

namespace mlxcel::archtest {
namespace {

using Json = nlohmann::json;

/// Every number of a config, lists and nested objects included.
std::vector<Json::json_pointer> numbers_of(const Json& config) {
  std::vector<Json::json_pointer> found;
  const Json flat = config.flatten();
  for (const auto& [path, value] : flat.items())
    if (value.is_number()) found.emplace_back(path);
  return found;
}

class HostileTest : public ::testing::TestWithParam<size_t> {};

TEST_P(HostileTest, a_lying_number_is_an_error_or_a_model) {
  const NamedArch& entry = arch_table()[GetParam()];
  const Json honest = Json::parse(entry.arch.tiny);
  const auto source = tiny_source(entry);
  int refused = 0;
  for (const auto& path : numbers_of(honest))
    for (const Json& lie : {Json(0), Json(-1), Json(2147483647), Json(1e30), Json("a word")}) {
      Json config = honest;
      config[path] = lie;
      const std::string what = fmt::format("{} {} = {}", entry.family, path.to_string(), lie.dump());
      try {
        const auto model = build_model(Config::parse(config.dump(), "config.json"), source);
        if (lie.is_string()) {
          ADD_FAILURE() << what << ": a word was taken for a number";
        }
        (void)run(*model, some_tokens(model->info().vocab_size, 5));
      } catch (const Error& error) {
        ++refused;
        EXPECT_NE(error.kind(), ErrorKind::internal) << what << ": " << error.what();
        EXPECT_FALSE(std::string(error.what()).empty()) << what;
      } catch (const std::exception& error) {
        ADD_FAILURE() << what << ": " << error.what();
      }
    }
  EXPECT_GT(refused, 20) << entry.family;
}

/// Families whose layers past the last are those that predict further, which are left out.
bool may_predict_further(const std::string& family) {
  static const std::set<std::string> families = {"deepseek_v3", "deepseek_v32", "glm4_moe", "kimi_k25"};
  return families.contains(family);
}

TEST_P(HostileTest, a_layer_more_or_fewer_is_an_error) {
  const NamedArch& entry = arch_table()[GetParam()];
  const Json honest = Json::parse(entry.arch.tiny);
  static const std::set<std::string> keys = {"num_hidden_layers", "n_layer", "n_layers", "num_layers",
                                             "num_transformer_layers"};
  for (const auto& path : numbers_of(honest))
    for (const int more : {-1, 1}) {
      if (!keys.contains(path.back()) || (more < 0 && may_predict_further(entry.family))) continue;
      Json config = honest;
      config[path] = honest[path].get<int>() + more;
      try {
        (void)build_model(Config::parse(config.dump(), "config.json"), tiny_source(entry));
        ADD_FAILURE() << entry.family << ": " << more << " layers more were taken";
      } catch (const Error& error) {
        EXPECT_TRUE(error.kind() == ErrorKind::bad_checkpoint || error.kind() == ErrorKind::unsupported)
            << entry.family << ": " << error.what();
      }
    }
}

/// Every list, and every word and switch that stands in none.
std::vector<Json::json_pointer> others_of(const Json& config,
                                          const Json::json_pointer& at = Json::json_pointer()) {
  std::vector<Json::json_pointer> found;
  for (const auto& [key, value] : config.items()) {
    const auto path = at / key;
    if (value.is_object()) {
      for (auto& inner : others_of(value, path)) found.push_back(std::move(inner));
    } else if (value.is_array() || value.is_string() || value.is_boolean()) {
      found.push_back(path);
    }
  }
  return found;
}

TEST_P(HostileTest, a_list_or_a_word_of_another_kind_is_an_error_or_a_model) {
  const NamedArch& entry = arch_table()[GetParam()];
  const Json honest = Json::parse(entry.arch.tiny);
  const auto source = tiny_source(entry);
  for (const auto& path : others_of(honest)) {
    std::vector<Json> lies = {
        Json(nullptr),  Json("no such word"), Json(7),          Json(true),
        Json::object(), Json::array(),        Json::array({7}), Json::array({"no such word"})};
    const Json& right = honest[path];
    if (right.is_array() && !right.empty()) {
      Json shorter = right, longer = right;
      shorter.erase(shorter.size() - 1);
      longer.push_back(right.front());
      lies.push_back(shorter);
      lies.push_back(longer);
    }
    for (const Json& lie : lies) {
      Json config = honest;
      config[path] = lie;
      const std::string what = fmt::format("{} {} = {}", entry.family, path.to_string(), lie.dump());
      try {
        (void)build_model(Config::parse(config.dump(), "config.json"), source);
      } catch (const Error& error) {
        EXPECT_NE(error.kind(), ErrorKind::internal) << what << ": " << error.what();
        EXPECT_FALSE(std::string(error.what()).empty()) << what;
      } catch (const std::exception& error) {
        ADD_FAILURE() << what << ": " << error.what();
      }
    }
  }
}

TEST_P(HostileTest, a_weight_that_is_no_number_is_an_error) {
  const NamedArch& entry = arch_table()[GetParam()];
  const auto tensors = published(entry);
  for (const auto& tensor : {tensors.front(), tensors.back(), tensors[tensors.size() / 2]}) {
    const auto source = changed(tiny_source(entry), [&](const std::string& name, std::vector<float>& values) {
      if (name == tensor.name) values.back() = std::nanf("");
    });
    try {
      (void)build_model(tiny_config(entry), source);
      ADD_FAILURE() << entry.family << ": a NaN in " << tensor.name << " was taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::bad_checkpoint);
      EXPECT_NE(std::string(error.what()).find("NaN"), std::string::npos) << error.what();
    }
  }
}

std::vector<size_t> indices() {
  std::vector<size_t> list;
  for (size_t i = 0; i < arch_table().size(); ++i) list.push_back(i);
  return list;
}

INSTANTIATE_TEST_SUITE_P(Every, HostileTest, ::testing::ValuesIn(indices()),
                         [](const auto& parameter) { return arch_table()[parameter.param].family; });

}  // namespace
}  // namespace mlxcel::archtest
