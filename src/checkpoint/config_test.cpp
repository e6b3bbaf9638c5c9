#include "checkpoint/config.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "base/error.h"

namespace mlxcel {
namespace {

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::bad_checkpoint);
    return error.what();
  }
  return "no error";
}

TEST(Config, ReadsTypedValues) {
  const Config c = Config::parse(R"({"a": 3, "b": 1e5, "c": true, "d": "x", "e": [1, 2.0], "f": [0.5, 1],
                                     "g": ["u", "v"], "n": null})",
                                 "config.json");
  EXPECT_EQ(c.get<int>("a"), 3);
  EXPECT_EQ(c.get<int>("b"), 100000);
  EXPECT_EQ(c.get<float>("b"), 1e5f);
  EXPECT_EQ(c.get<float>("a"), 3.0f);
  EXPECT_TRUE(c.get<bool>("c"));
  EXPECT_EQ(c.get<std::string>("d"), "x");
  EXPECT_EQ(c.get<std::vector<int>>("e"), (std::vector<int>{1, 2}));
  EXPECT_EQ(c.get<std::vector<float>>("f"), (std::vector<float>{0.5f, 1}));
  EXPECT_EQ(c.get<std::vector<std::string>>("g"), (std::vector<std::string>{"u", "v"}));
  EXPECT_FALSE(c.has("n"));
  EXPECT_EQ(c.get<int>("n", 7), 7);
  EXPECT_EQ(c.get("absent", "silu"), "silu");
  EXPECT_EQ(c.integer("a", -5, 5), 3);
  EXPECT_TRUE(c.is_array("e") && c.is_string("d") && c.is_bool("c") && !c.is_object("a"));
}

TEST(Config, MessagesSayKeyExpectedFoundAndWhere) {
  const Config c = Config::parse(R"({"text": {"layers": "many", "neg": -1, "big": 4294967296, "half": 2.5,
                                     "flag": true, "huge": 1e300, "list": [1, "x"]}})",
                                 "config.json");
  const Config t = c.child("text");
  EXPECT_EQ(message_of([&] { t.get<int>("layers"); }),
            "config.json: text.layers: expected an integer from 0 to 2147483647, found \"many\"");
  EXPECT_EQ(message_of([&] { t.get<int>("gone"); }),
            "config.json: text.gone: expected an integer from 0 to 2147483647, found nothing");
  for (const char* key : {"neg", "big", "half", "flag", "huge", "list"})
    EXPECT_NE(message_of([&] { t.get<int>(key); }), "no error") << key;
  EXPECT_NE(message_of([&] { t.get<float>("huge"); }), "no error");
  EXPECT_NE(message_of([&] { t.get<bool>("neg"); }), "no error");
  EXPECT_NE(message_of([&] { t.get<std::vector<int>>("list"); }), "no error");
  EXPECT_EQ(message_of([&] { t.integer("neg", 0, 9); }),
            "config.json: text.neg: expected an integer from 0 to 9, found -1");
  EXPECT_NE(message_of([&] { t.child("flag"); }), "no error");
  EXPECT_NE(message_of([&] { Config().get<int>("x"); }), "no error");
}

TEST(Config, NullAbsentAndEmptyAreTheSame) {
  for (const char* text : {R"({"rope_scaling": null})", R"({})", R"({"rope_scaling": {}})"}) {
    const Config c = Config::parse(text, "config.json");
    EXPECT_TRUE(c.child("rope_scaling").empty()) << text;
    EXPECT_FALSE(c.child("rope_scaling").has("type"));
  }
}

TEST(Config, TellsNullFromAbsentWhereThatMatters) {
  const Config c = Config::parse(R"({"cap": null, "zero": 0})", "config.json");
  EXPECT_TRUE(c.is_null("cap"));
  EXPECT_FALSE(c.is_null("zero"));
  EXPECT_FALSE(c.is_null("absent"));
}

TEST(Config, AChildReadsSomeKeysFromAbove) {
  const Config c =
      Config::parse(R"({"tie": true, "other": 1, "text": {"a": 1}, "own": {"tie": false}})", "config.json");
  EXPECT_TRUE(c.child("text", {"tie"}).get<bool>("tie"));
  EXPECT_FALSE(c.child("text", {"tie"}).has("other"));
  EXPECT_FALSE(c.child("own", {"tie"}).get<bool>("tie"));
  EXPECT_TRUE(c.child("absent", {"tie"}).empty());
}

TEST(Config, ReadsAListOfObjects) {
  const Config c =
      Config::parse(R"({"blocks": [{"a": 1}, {"a": "x"}], "bad": [1], "one": {}})", "config.json");
  const auto blocks = c.children("blocks");
  ASSERT_EQ(blocks.size(), 2u);
  EXPECT_EQ(blocks[0].get<int>("a"), 1);
  EXPECT_NE(message_of([&] { (void)blocks[1].get<int>("a"); }).find("blocks[1].a"), std::string::npos);
  EXPECT_TRUE(c.children("absent").empty());
  EXPECT_NE(message_of([&] { (void)c.children("bad"); }).find("a list of objects"), std::string::npos);
  EXPECT_NE(message_of([&] { (void)c.children("one"); }).find("a list of objects"), std::string::npos);
}

TEST(Config, ReadsPythonsSpecialNumbers) {
  const Config c = Config::parse(
      R"({"limit": [0.0, Infinity], "low": -Infinity, "odd": NaN, "s": "NaN, Infinity"})", "config.json");
  EXPECT_TRUE(std::isinf(c.get<std::vector<float>>("limit")[1]));
  EXPECT_EQ(c.get<float>("low"), -INFINITY);
  EXPECT_EQ(c.get<std::string>("s"), "NaN, Infinity");
  EXPECT_EQ(message_of([&] { c.get<float>("odd"); }),
            "config.json: odd: expected a number within the range of float32, found NaN");
  EXPECT_EQ(c.dump(), R"({"limit":[0.0,Infinity],"low":-Infinity,"odd":NaN,"s":"NaN, Infinity"})");
  EXPECT_EQ(Config::parse(c.dump(), "again").dump(), c.dump());
  const Config tagged =
      Config::parse(R"({"limit": [0, {"__float__": "Infinity"}], "o": {"__float__": "x"}})", "c");
  EXPECT_TRUE(std::isinf(tagged.get<std::vector<float>>("limit")[1]));
  EXPECT_TRUE(tagged.is_object("o"));
}

TEST(Config, RemembersWhatWasRead) {
  const Config c =
      Config::parse(R"({"a": 1, "b": 2, "text": {"x": 1, "y": 2}, "vision": {"z": 1}})", "config.json");
  EXPECT_EQ(c.get<int>("a"), 1);
  EXPECT_EQ(c.child("text").get<int>("y"), 2);
  EXPECT_EQ(c.unread(), (std::vector<std::string>{"b", "text.x", "vision"}));
  const Config copy = c;
  EXPECT_TRUE(copy.has("vision"));
  EXPECT_EQ(c.unread(), (std::vector<std::string>{"b", "text.x"}));
}

TEST(Config, RefusesHostileText) {
  EXPECT_NE(message_of([] { Config::parse("", "c"); }), "no error");
  EXPECT_NE(message_of([] { Config::parse("[1]", "c"); }), "no error");
  EXPECT_NE(message_of([] { Config::parse("{\"a\": 1e999}", "c"); }), "no error");
  EXPECT_NE(message_of([] { Config::parse("{\"a\": \"\xff\"}", "c"); }), "no error");
  EXPECT_NE(message_of([] { Config::parse("{\"a\": \"", "c"); }), "no error");
  EXPECT_NE(message_of([] { Config::parse("{\"a\": \"\\", "c"); }), "no error");
  const std::string deep = "{\"a\":" + std::string(100000, '[');
  EXPECT_EQ(message_of([&] { Config::parse(deep, "c"); }), "c: JSON nested more than 64 deep");
}

}  // namespace
}  // namespace mlxcel
