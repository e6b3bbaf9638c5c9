#include "kernels/isa/dispatch.h"

#include <gtest/gtest.h>

#include <string>

#include "base/error.h"

namespace mlxcel::kernels {
namespace {

TEST(Isa, ParsesAgainstWhatIsThere) {
  const std::vector<Isa> here{Isa::generic, Isa::avx2};
  EXPECT_EQ(parse_isa("auto", here), Isa::avx2);
  EXPECT_EQ(parse_isa("", here), Isa::avx2);
  EXPECT_EQ(parse_isa("generic", here), Isa::generic);
  for (const char* bad : {"avx512", "sse9", "AVX2"}) {
    try {
      parse_isa(bad, here);
      FAIL() << bad;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::invalid_request);
      EXPECT_NE(std::string(error.what()).find("generic, avx2"), std::string::npos);
    }
  }
}

TEST(Isa, OnlyAvailableOnesCanBeSet) {
  const Isa before = isa();
  for (const Isa one : available_isas()) {
    set_isa(one);
    EXPECT_EQ(isa(), one);
  }
  if (available_isas().back() != Isa::avx512) {
    EXPECT_THROW(set_isa(Isa::avx512), Error);
  }
  set_isa(before);
}

}  // namespace
}  // namespace mlxcel::kernels
