#include "engine/loop/pattern.h"

#include <gtest/gtest.h>

namespace mlxcel {
namespace {

std::vector<int> numbers(const LoopDetection& loops) {
  return {loops.min_pattern, loops.max_pattern, loops.min_count};
}

TEST(LoopDetectionText, WordsAndNumbers) {
  for (const char* off : {"off", "0", "False", "NO"})
    EXPECT_EQ(parse_loop_detection(off).max_pattern, 0) << off;
  for (const char* on : {"on", "1", "True", "YES"})
    EXPECT_EQ(numbers(parse_loop_detection(on)), (std::vector{1, 20, 12})) << on;
  EXPECT_EQ(numbers(parse_loop_detection("2,9,3")), (std::vector{2, 9, 3}));
  for (const char* bad : {"maybe", "2,9", "2,9,3,4", "2,9,3,", ",2,9", "2,,3", "a,b,c", "9,2,3", "0,9,3",
                          "1,9,1", "1,0,3", "1,5000,3", "99999999999,1,1", "1 ,2,3", "-1,2,3"})
    EXPECT_THROW(parse_loop_detection(bad), Error) << bad;
}

TEST(LoopDetectionText, TheRequestComesFirst) {
  Request silent, off, own;
  off.loops.given = true;
  own.loops = {.max_pattern = 5, .min_pattern = 2, .min_count = 3};
  const LoopDetection environment{.max_pattern = 7, .min_pattern = 1, .min_count = 4};
  EXPECT_EQ(loops_in_force(silent, environment, "llama").max_pattern, 7);
  EXPECT_EQ(loops_in_force(off, environment, "llama").max_pattern, 0);
  EXPECT_EQ(loops_in_force(own, environment, "llama").max_pattern, 5);
  EXPECT_EQ(loops_in_force(silent, std::nullopt, "gemma4").max_pattern,
            0);  // only where the answer is constrained
}

}  // namespace
}  // namespace mlxcel
