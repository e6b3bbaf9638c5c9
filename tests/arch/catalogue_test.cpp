// The committed list of supported models is the one that the table gives.
#include "models/catalogue.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "models/arch.h"

namespace mlxcel {
namespace {

TEST(Catalogue, the_committed_document_is_the_generated_one) {
  std::ifstream file(MLXCEL_SOURCE_DIR "/docs/supported-models.md");
  std::stringstream committed;
  committed << file.rdbuf();
  EXPECT_EQ(committed.str(), supported_models())
      << "write it anew: mlxcel arch --markdown > docs/supported-models.md";
}

TEST(Catalogue, names_every_family_with_its_goldens) {
  const std::string text = supported_models();
  for (const NamedArch& entry : arch_table())
    EXPECT_NE(text.find("| " + entry.family + " |"), std::string::npos);
  EXPECT_EQ(text.find("| 0 |"), std::string::npos) << "a family without goldens";
  EXPECT_FALSE(golden_names().empty());
}

/// A name is either supported or known for later.
TEST(Catalogue, no_supported_type_is_still_on_the_list_of_later_ones) {
  for (const NamedArch& entry : arch_table())
    for (const auto& type : entry.arch.model_types) EXPECT_FALSE(is_known_model_type(type)) << type;
}

}  // namespace
}  // namespace mlxcel
