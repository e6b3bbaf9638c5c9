#include "checkpoint/rules.h"

#include <gtest/gtest.h>

#include <map>

#include "checkpoint/formats/test_files.h"
#include "checkpoint/rules/pattern.h"

namespace mlxcel {
namespace {

using namespace testing_files;

class Memory final : public Source {
 public:
  std::map<std::string, Weight> weights;
  int loads = 0;

  void dense(const std::string& name, const array& data) {
    weights.insert_or_assign(name,
                             Weight{name, data.shape(), data, std::nullopt, std::nullopt, std::nullopt});
  }
  /// Codes, scales and biases that tell rows apart.
  void quantised(const std::string& name, int rows, float first, int bits = 4) {
    array codes = allocated({rows, bits}, mx::uint32);
    for (size_t i = 0; i < codes.size(); ++i)
      codes.data<uint32_t>()[i] = static_cast<uint32_t>(first) + static_cast<uint32_t>(i);
    weights.insert_or_assign(name, Weight{name,
                                          {rows, 32},
                                          codes,
                                          numbers({rows, 1}, first),
                                          numbers({rows, 1}, -first),
                                          QuantFormat{QuantMode::affine, bits, 32}});
  }
  std::vector<std::string> names() const override {
    std::vector<std::string> out;
    for (const auto& [name, weight] : weights) out.push_back(name);
    return out;
  }
  std::optional<WeightInfo> find(const std::string& name) const override {
    const auto found = weights.find(name);
    if (found == weights.end()) return std::nullopt;
    const Weight& w = found->second;
    return WeightInfo{w.shape, w.scales ? w.scales->dtype() : w.data.dtype(), w.format,
                      w.format ? "Q" : "F32", w.data.nbytes() + (w.scales ? 2 * w.scales->nbytes() : 0)};
  }
  Weight load(const std::string& name) override {
    ++loads;
    return weights.at(name);
  }
};

std::shared_ptr<Memory> memory() { return std::make_shared<Memory>(); }

TEST(Pattern, MatchesWholeNames) {
  const auto text = [](std::string_view pattern, std::string_view name) {
    const auto captures = match(pattern, name);
    if (!captures) return std::string("no");
    std::string out;
    for (const Capture& c : *captures) out += "(" + c.text + ")";
    return out;
  };
  EXPECT_EQ(text("a.b", "a.b"), "");
  EXPECT_EQ(text("a.b", "a.bc"), "no");
  EXPECT_EQ(text("*.mlp.experts.#.*", "model.layers.3.mlp.experts.12.up_proj.weight"),
            "(model.layers.3)(12)(up_proj.weight)");
  EXPECT_EQ(text("blk.#.attn_q.weight", "blk.12.attn_q.weight"), "(12)");
  EXPECT_EQ(text("blk.#.x", "blk.012.x"), "no");
  EXPECT_EQ(text("blk.#.x", "blk.0.x"), "(0)");
  EXPECT_EQ(text("blk.#.x", "blk..x"), "no");
  EXPECT_EQ(text("blk.#", "blk.99999999999"), "no");
  EXPECT_EQ(text("#", "12a"), "no");
  EXPECT_EQ(text("*", ""), "()");
  EXPECT_EQ(text("*.weight", "a.weight.weight"), "(a.weight)");
  const std::string long_name(900, 'a');
  EXPECT_EQ(text("*a*a*a*a*a*a*a*b", long_name), "no");  // in polynomial time
}

TEST(Pattern, FillKeepsKindsInOrder) {
  const auto captures = *match("*.h.#.x.#.*", "m.h.3.x.5.w");
  EXPECT_EQ(fill("*.#.y.#.*", captures), "m.3.y.5.w");
  EXPECT_EQ(fill("*.#.*", captures), "m.3.w");
  EXPECT_EQ(fill("plain", captures), "plain");
}

TEST(Rules, RenameAndDrop) {
  auto source = memory();
  source->dense("bert.a.gamma", numbers({2}));
  source->dense("bert.pooler.x", numbers({2}));
  source->dense("b", numbers({3}));
  const auto ruled =
      apply_rules(source, {rename("bert.*", "*"), rename("*.gamma", "*.weight"), drop("pooler.*")});
  EXPECT_EQ(ruled->names(), (std::vector<std::string>{"a.weight", "b"}));
  EXPECT_EQ(source->loads, 0);
  EXPECT_EQ(ruled->load("a.weight").name, "a.weight");
  EXPECT_EQ(source->loads, 1);
  EXPECT_FALSE(ruled->find("bert.a.gamma"));
  expect_error([&] { ruled->load("bert.a.gamma"); }, ErrorKind::not_found, {"bert.a.gamma"});
}

TEST(Rules, RenameMayShiftNamesButNotCollide) {
  auto source = memory();
  source->dense("x.a", numbers({1}, 1));
  source->dense("x.x.a", numbers({1}, 2));
  const auto shifted = apply_rules(source, {rename("x.*", "*")});
  EXPECT_EQ(shifted->load("a").data.data<float>()[0], 1);
  EXPECT_EQ(shifted->load("x.a").data.data<float>()[0], 2);
  source->dense("a", numbers({1}));
  expect_error([&] { apply_rules(source, {rename("x.*", "*")}); }, ErrorKind::bad_checkpoint,
               {"rename x.* -> *", "x.a becomes a", "there already"});
}

TEST(Rules, StackPlanes) {
  auto source = memory();
  for (int layer = 0; layer < 2; ++layer)
    for (int expert = 0; expert < 11; ++expert)  // 10 sorts before 2 as text
      source->quantised(fmt::format("l.{}.mlp.experts.{}.up_proj.weight", layer, expert), 2,
                        static_cast<float>(100 * layer + expert));
  const auto ruled = apply_rules(source, {stack("l.#.mlp.experts.#.*", "l.#.mlp.switch_mlp.*")});
  EXPECT_EQ(ruled->names(), (std::vector<std::string>{"l.0.mlp.switch_mlp.up_proj.weight",
                                                      "l.1.mlp.switch_mlp.up_proj.weight"}));
  const auto info = ruled->find("l.1.mlp.switch_mlp.up_proj.weight");
  EXPECT_EQ(info->shape, Shape({11, 2, 32}));
  EXPECT_EQ(info->bytes, 11 * source->find("l.1.mlp.experts.0.up_proj.weight")->bytes);
  const Weight w = ruled->load("l.1.mlp.switch_mlp.up_proj.weight");
  EXPECT_EQ(w.data.shape(), Shape({11, 2, 4}));
  EXPECT_EQ(w.scales->shape(), Shape({11, 2, 1}));
  EXPECT_EQ(w.scales->data<float>()[2 * 10], 110);
  EXPECT_EQ(w.biases->data<float>()[2 * 2 + 1], -101);
  EXPECT_EQ(w.data.data<uint32_t>()[8 * 10 + 7], 117u);
}

TEST(Rules, StackNeedsEveryNumberAndOneForm) {
  auto source = memory();
  for (const int expert : {0, 1, 3}) source->quantised(fmt::format("e.{}.w", expert), 2, 0);
  const auto rule = stack("e.#.w", "s.w");
  expect_error([&] { apply_rules(source, {rule}); }, ErrorKind::bad_checkpoint,
               {"stack e.#.w -> s.w", "number 2 is missing", "e.3.w"});
  source->quantised("e.2.w", 2, 0, 8);
  expect_error([&] { apply_rules(source, {rule}); }, ErrorKind::bad_checkpoint, {"e.0.w", "e.2.w"});
  source->quantised("e.2.w", 3, 0);
  expect_error([&] { apply_rules(source, {rule}); }, ErrorKind::bad_checkpoint, {"[2, 32]", "[3, 32]"});
}

TEST(Rules, SplitRowsOfPlanes) {
  auto source = memory();
  source->quantised("a.qkv.weight", 6, 10);
  source->dense("a.qkv.bias", numbers({6}));
  const auto ruled = apply_rules(source, {split("*.qkv.*", {"*.q.*", "*.k.*", "*.v.*"}, {4, 1, 1})});
  EXPECT_EQ(ruled->names().size(), 6u);
  EXPECT_EQ(ruled->find("a.q.weight")->shape, Shape({4, 32}));
  const Weight v = ruled->load("a.v.weight");
  EXPECT_EQ(v.shape, Shape({1, 32}));
  EXPECT_EQ(v.data.data<uint32_t>()[0], 10u + 20u);
  EXPECT_EQ(v.scales->data<float>()[0], 15);
  EXPECT_EQ(ruled->load("a.k.bias").data.data<float>()[0], 4);
  const auto equal = apply_rules(source, {split("a.qkv.bias", {"x", "y"})});
  EXPECT_EQ(equal->load("y").data.data<float>()[0], 3);
  expect_error([&] { apply_rules(source, {split("a.qkv.bias", {"x", "y"}, {4, 4})}); },
               ErrorKind::bad_checkpoint, {"a.qkv.bias", "[6]", "8 rows"});
  expect_error([&] { apply_rules(source, {split("a.qkv.bias", {"w", "x", "y", "z"})}); },
               ErrorKind::bad_checkpoint, {"multiple of 4"});
}

TEST(Rules, SplitHeadByHead) {
  auto source = memory();
  source->quantised("a.qkv.weight", 8, 10);  // two groups of two q rows, one k and one v row
  source->dense("a.qkv.bias", numbers({8}));
  const auto ruled = apply_rules(source, {split("*.qkv.*", {"*.q.*", "*.k.*", "*.v.*"}, {4, 2, 2}, 2)});
  EXPECT_EQ(ruled->find("a.q.weight")->shape, Shape({4, 32}));
  const auto values = [&](const char* name) {
    const Weight w = ruled->load(name);
    return std::vector<float>(w.data.data<float>(), w.data.data<float>() + w.data.size());
  };
  EXPECT_EQ(values("a.q.bias"), (std::vector<float>{0, 1, 4, 5}));
  EXPECT_EQ(values("a.k.bias"), (std::vector<float>{2, 6}));
  EXPECT_EQ(values("a.v.bias"), (std::vector<float>{3, 7}));
  const Weight whole = source->load("a.qkv.weight"), k = ruled->load("a.k.weight");
  EXPECT_EQ(k.shape, Shape({2, 32}));
  EXPECT_EQ(k.scales->data<float>()[0], whole.scales->data<float>()[2]);
  EXPECT_EQ(k.scales->data<float>()[1], whole.scales->data<float>()[6]);
  EXPECT_EQ(k.data.data<uint32_t>()[4], whole.data.data<uint32_t>()[6 * 4]);
  expect_error([&] { apply_rules(source, {split("a.qkv.bias", {"x", "y"}, {4, 6}, 2)}); },
               ErrorKind::bad_checkpoint, {"a.qkv.bias", "[8]", "10 rows"});
  EXPECT_THROW((void)split("a", {"x", "y"}, {3, 3}, 2), Error);  // a group's share would be half a row
}

TEST(Rules, TransposeGivesDenseValues) {
  auto source = memory();
  source->dense("a", numbers({2, 70, 33}));
  source->dense("v", numbers({3}));
  source->quantised("q", 2, 0);
  const auto ruled = apply_rules(source, {transpose("a")});
  EXPECT_EQ(ruled->find("a")->shape, Shape({2, 33, 70}));
  const Weight w = ruled->load("a");
  EXPECT_EQ(w.shape, Shape({2, 33, 70}));
  for (int b = 0; b < 2; ++b)
    for (int r = 0; r < 70; ++r)
      for (int c = 0; c < 33; ++c)
        ASSERT_EQ(w.data.data<float>()[b * 2310 + c * 70 + r], static_cast<float>(b * 2310 + r * 33 + c));
  const auto turned = apply_rules(source, {transpose("q")});
  EXPECT_EQ(turned->find("q")->shape, Shape({32, 2}));
  EXPECT_FALSE(turned->find("q")->format);
  array want = mx::contiguous(mx::transpose(dequantized(source->weights.at("q"), mx::float32)));
  want.eval();
  const Weight dense = turned->load("q");
  EXPECT_EQ(dense.shape, Shape({32, 2}));
  for (size_t i = 0; i < want.size(); ++i) ASSERT_EQ(dense.data.data<float>()[i], want.data<float>()[i]);
  expect_error([&] { apply_rules(source, {transpose("v")}); }, ErrorKind::bad_checkpoint,
               {"[3]", "two axes"});
}

TEST(Rules, SplitsAndDealsAnyAxis) {
  auto source = memory();
  source->dense("e.gate_up", numbers({2, 6, 3}));
  source->dense("e.bias", numbers({2, 6}));
  const auto cut =
      apply_rules(source, {split_axis(-2, "e.gate_up", {"a", "b"}, {2, 4}), deal(-1, "e.bias", {"x", "y"})});
  EXPECT_EQ(cut->find("a")->shape, Shape({2, 2, 3}));
  EXPECT_EQ(cut->find("b")->shape, Shape({2, 4, 3}));
  const Weight b = cut->load("b"), y = cut->load("y");
  for (int e = 0; e < 2; ++e)
    for (int r = 0; r < 4; ++r)
      for (int c = 0; c < 3; ++c)
        EXPECT_EQ(b.data.data<float>()[e * 12 + r * 3 + c], static_cast<float>(e * 18 + (r + 2) * 3 + c));
  EXPECT_EQ(y.shape, Shape({2, 3}));
  for (int i = 0; i < 6; ++i)
    EXPECT_EQ(y.data.data<float>()[i], static_cast<float>(i / 3 * 6 + i % 3 * 2 + 1));
  const auto rows = apply_rules(source, {deal(-2, "e.gate_up", {"even", "odd"})});
  EXPECT_EQ(rows->load("odd").data.data<float>()[0], 3.0f);
  expect_error([&] { apply_rules(source, {split_axis(-2, "e.gate_up", {"a", "b"}, {2, 3})}); },
               ErrorKind::bad_checkpoint, {"axis -2", "5 rows", "[2, 6, 3]"});
  expect_error([&] { apply_rules(source, {split_axis(-4, "e.gate_up", {"a", "b"})}); },
               ErrorKind::bad_checkpoint, {"without axis -4"});
}

TEST(Rules, HeadsOfKvB) {
  auto source = memory();
  source->dense("l.kv_b_proj.weight", numbers({2 * 5, 3}));  // 2 heads of 2 key rows and 3 value rows
  source->quantised("q.kv_b_proj.weight", 2 * 5, 10);
  const auto heads = apply_rules(source, heads_of_kv_b(2, 2, 3));
  EXPECT_EQ(heads->find("l.embed_q.weight")->shape, Shape({2, 3, 2}));
  EXPECT_EQ(heads->find("l.unembed_out.weight")->shape, Shape({2, 3, 3}));
  const Weight keys = heads->load("l.embed_q.weight"), values = heads->load("l.unembed_out.weight");
  for (int h = 0; h < 2; ++h)
    for (int c = 0; c < 3; ++c) {
      for (int r = 0; r < 2; ++r)
        EXPECT_EQ(keys.data.data<float>()[h * 6 + c * 2 + r], static_cast<float>((h * 5 + r) * 3 + c));
      for (int r = 0; r < 3; ++r)
        EXPECT_EQ(values.data.data<float>()[h * 9 + r * 3 + c], static_cast<float>((h * 5 + 2 + r) * 3 + c));
    }
  // Values keep their planes; keys are turned and become dense.
  EXPECT_TRUE(heads->find("q.unembed_out.weight")->format);
  EXPECT_FALSE(heads->find("q.embed_q.weight")->format);
  const Weight planes = heads->load("q.unembed_out.weight");
  EXPECT_EQ(planes.shape, Shape({2, 3, 32}));
  EXPECT_EQ(planes.scales->data<float>()[3], 10.0f + 5 + 2);
  expect_error([&] { apply_rules(source, heads_of_kv_b(3, 2, 3)); }, ErrorKind::bad_checkpoint,
               {"unflatten", "multiple of 3"});
}

TEST(Rules, AddConstant) {
  auto source = memory();
  const mx::bfloat16_t brains[2] = {mx::bfloat16_t(0.5f), mx::bfloat16_t(0.0078125f)};
  source->dense("n", filled({2}, mx::bfloat16, brains));
  source->dense("f", numbers({2}));
  const int32_t whole[1] = {1};
  source->dense("i", filled({1}, mx::int32, whole));
  const auto ruled = apply_rules(source, {add_constant("n", 1), add_constant("f", -0.5f)});
  EXPECT_EQ(ruled->find("n")->dtype, mx::float32);
  EXPECT_EQ(ruled->load("n").data.data<float>()[1], 1.0078125f);
  EXPECT_EQ(ruled->load("f").data.data<float>()[1], 0.5f);
  expect_error([&] { apply_rules(source, {add_constant("i", 1)}); }, ErrorKind::bad_checkpoint,
               {"add 1 to i"});
}

TEST(Rules, Compose) {
  auto source = memory();
  for (int expert = 0; expert < 2; ++expert)
    source->dense(fmt::format("t.e.{}.gate_up", expert), numbers({4, 2}, static_cast<float>(10 * expert)));
  const auto ruled = apply_rules(source, {rename("t.*", "*"), split("e.#.gate_up", {"e.#.gate", "e.#.up"}),
                                          stack("e.#.*", "s.*"), transpose("s.up")});
  EXPECT_EQ(ruled->names(), (std::vector<std::string>{"s.gate", "s.up"}));
  const Weight up = ruled->load("s.up");
  EXPECT_EQ(up.shape, Shape({2, 2, 2}));
  EXPECT_EQ(up.data.data<float>()[4 + 1], 16);  // expert 1, transposed: second row's first column
}

TEST(Rules, DescribeAndMistakes) {
  EXPECT_EQ(stack("*.experts.#.up", "*.s.up").describe(), "stack *.experts.#.up -> *.s.up");
  EXPECT_EQ(split("a", {"b", "c"}, {1, 2}).describe(), "split a -> b, c by 1, 2");
  EXPECT_EQ(drop("*.x").describe(), "drop *.x");
  expect_error([] { rename("a.*", "*.*"); }, ErrorKind::internal, {"more wildcards"});
  expect_error([] { stack("a.*", "b.*"); }, ErrorKind::internal, {"nothing numbers"});
  expect_error([] { stack("a.#.x", "b.#.x"); }, ErrorKind::internal, {"stacked away"});
  expect_error([] { split("a", {"b", "c"}, {1}); }, ErrorKind::internal, {"as many sizes"});
}

}  // namespace
}  // namespace mlxcel
