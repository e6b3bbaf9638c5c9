#include "checkpoint/rules.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.h"
#include "checkpoint/rules/pattern.h"
#include "checkpoint/rules/recipe.h"

namespace mlxcel {

namespace {

using Recipes = std::map<std::string, RecipePtr>;

/// Applies one rule to the table of names.
class Application {
 public:
  Application(const Rule& rule, Recipes& recipes) : rule_(rule), what_(rule.describe()), recipes_(recipes) {}

  void run() {
    std::vector<std::pair<std::string, std::vector<Capture>>> matched;
    for (const auto& [name, recipe] : recipes_)
      if (auto captures = match(rule_.from, name)) matched.emplace_back(name, std::move(*captures));
    if (rule_.kind == Rule::Kind::stack) return stack_all(matched);
    // Taken out first: a rename may produce a name that another match is about to leave.
    Recipes taken;
    for (const auto& [name, captures] : matched) taken.insert(recipes_.extract(name));
    for (const auto& [name, captures] : matched) apply(name, captures, std::move(taken.at(name)));
  }

 private:
  void apply(const std::string& name, const std::vector<Capture>& captures, RecipePtr recipe) {
    switch (rule_.kind) {
      case Rule::Kind::drop:
        return;
      case Rule::Kind::rename:
        return put(fill(rule_.to.front(), captures), std::move(recipe), name);
      case Rule::Kind::split:
      case Rule::Kind::deal:
        return split_one(name, captures, std::move(recipe));
      case Rule::Kind::unflatten:
        return unflatten_one(name, std::move(recipe));
      case Rule::Kind::transpose:
        if (recipe->info().shape.size() < 2)
          fail(ErrorKind::bad_checkpoint, "{}: {} has shape {}, expected two axes or more", what_, name,
               to_string(recipe->info().shape));
        return put(name, transposed(std::move(recipe)), name);
      case Rule::Kind::add_constant:
        require_dense(name, recipe->info(), true);
        return put(name, shifted(std::move(recipe), rule_.constant), name);
      case Rule::Kind::stack:
        break;
    }
    fail(ErrorKind::internal, "{}: no such kind of rule", what_);
  }

  void put(const std::string& name, RecipePtr recipe, const std::string& origin) {
    if (!recipes_.emplace(name, std::move(recipe)).second)
      fail(ErrorKind::bad_checkpoint, "{}: {} becomes {}, which is there already", what_, origin, name);
  }

  void require_dense(const std::string& name, const WeightInfo& info, bool floating) const {
    if (info.format)
      fail(ErrorKind::bad_checkpoint, "{}: {} is quantised ({}), expected a dense tensor", what_, name,
           info.stored_as);
    if (floating && info.dtype != mx::float32 && info.dtype != mx::float16 && info.dtype != mx::bfloat16)
      fail(ErrorKind::bad_checkpoint, "{}: {} is {}, expected F32, F16 or BF16", what_, name, info.stored_as);
  }

  void split_one(const std::string& name, const std::vector<Capture>& captures, RecipePtr recipe) {
    const WeightInfo info = recipe->info();
    const int axes = static_cast<int>(info.shape.size()),
              axis = rule_.axis < 0 ? rule_.axis + axes : rule_.axis;
    if (axis < 0 || axis >= axes)
      fail(ErrorKind::bad_checkpoint, "{}: {} has shape {}, without axis {}", what_, name,
           to_string(info.shape), rule_.axis);
    if (info.format && axis + 1 == axes)
      fail(ErrorKind::bad_checkpoint, "{}: {} is quantised ({}) along that axis", what_, name,
           info.stored_as);
    const int rows = info.shape[static_cast<size_t>(axis)], count = static_cast<int>(rule_.to.size());
    std::vector<int> sizes = rule_.sizes;
    if (sizes.empty() && rows % count == 0) sizes.assign(rule_.to.size(), rows / count);
    int64_t total = 0;
    for (const int size : sizes) total += size;
    if (sizes.empty() || total != rows)
      fail(ErrorKind::bad_checkpoint, "{}: {} has shape {}, expected {} rows", what_, name,
           to_string(info.shape),
           sizes.empty() ? fmt::format("a multiple of {}", count) : std::to_string(total));
    const auto parts = rule_.kind == Rule::Kind::deal ? dealt(std::move(recipe), axis, count)
                       : axis == 0                    ? pieces(std::move(recipe), sizes, rule_.groups)
                                                      : pieces_along(std::move(recipe), axis, sizes);
    for (size_t i = 0; i < parts.size(); ++i) put(fill(rule_.to[i], captures), parts[i], name);
  }

  void unflatten_one(const std::string& name, RecipePtr recipe) {
    const WeightInfo info = recipe->info();
    const int count = rule_.sizes.front();
    if (info.shape.size() < (info.format ? 2u : 1u) || info.shape[0] % count != 0)
      fail(ErrorKind::bad_checkpoint, "{}: {} has shape {}, expected a multiple of {} rows", what_, name,
           to_string(info.shape), count);
    put(name, unflattened(std::move(recipe), count), name);
  }

  void stack_all(const std::vector<std::pair<std::string, std::vector<Capture>>>& matched) {
    struct Member {
      std::string name;
      RecipePtr recipe;
    };
    std::map<std::string, std::map<long, Member>> groups;
    for (const auto& [name, captures] : matched) {
      const auto index =
          std::find_if(captures.rbegin(), captures.rend(), [](const Capture& c) { return c.kind == '#'; });
      const std::string target = fill(rule_.to.front(), captures);
      groups[target].emplace(std::stol(index->text), Member{name, recipes_.at(name)});
      recipes_.erase(name);
    }
    for (auto& [target, members] : groups) {
      std::vector<RecipePtr> parts;
      std::vector<std::string> names;
      for (auto& [index, member] : members) {
        if (index != static_cast<long>(parts.size()))
          fail(ErrorKind::bad_checkpoint, "{}: number {} is missing before {}", what_, parts.size(),
               member.name);
        parts.push_back(std::move(member.recipe));
        names.push_back(member.name);
      }
      put(target, stacked(std::move(parts), names, what_), names.front());
    }
  }

  const Rule& rule_;
  std::string what_;
  Recipes& recipes_;
};

class RuledSource final : public Source {
 public:
  explicit RuledSource(Recipes recipes) : recipes_(std::move(recipes)) {}

  std::vector<std::string> names() const override {
    std::vector<std::string> out;
    out.reserve(recipes_.size());
    for (const auto& [name, recipe] : recipes_) out.push_back(name);
    return out;
  }
  std::optional<WeightInfo> find(const std::string& name) const override {
    const auto found = recipes_.find(name);
    return found == recipes_.end() ? std::nullopt : std::optional(found->second->info());
  }
  Weight load(const std::string& name) override {
    const auto found = recipes_.find(name);
    if (found == recipes_.end()) fail(ErrorKind::not_found, "{}: not in the checkpoint", name);
    Weight out = found->second->load();
    out.name = name;
    return out;
  }
  std::optional<LowRank> low_rank(const std::string& name, const LowRankOf& of) const override {
    const auto found = recipes_.find(name);
    return found == recipes_.end() ? std::nullopt : found->second->low_rank(of);
  }

 private:
  Recipes recipes_;
};

/// Mistakes in a rule itself, found before any checkpoint sees it.
Rule checked(Rule rule) {
  const auto bad = [&](const char* why) { fail(ErrorKind::internal, "rule {}: {}", rule.describe(), why); };
  const size_t stars = count_wildcards(rule.from, '*'), indices = count_wildcards(rule.from, '#');
  for (const std::string& target : rule.to)
    if (count_wildcards(target, '*') > stars || count_wildcards(target, '#') > indices)
      bad("the target has more wildcards than the pattern");
  if (rule.kind == Rule::Kind::stack) {
    if (indices == 0) bad("nothing numbers the tensors to stack");
    if (count_wildcards(rule.to.front(), '#') >= indices)
      bad("the target keeps the number that is stacked away");
  }
  if (rule.kind == Rule::Kind::unflatten && rule.sizes.front() < 1) bad("no rows");
  if (rule.kind == Rule::Kind::split || rule.kind == Rule::Kind::deal) {
    if (rule.to.empty()) bad("no pieces");
    if (!rule.sizes.empty() && rule.sizes.size() != rule.to.size()) bad("as many sizes as pieces are needed");
    for (const int size : rule.sizes)
      if (size < 1) bad("a piece without rows");
    if (rule.groups < 1) bad("no groups");
    for (const int size : rule.sizes)
      if (size % rule.groups != 0) bad("a piece that its groups do not share evenly");
    if (rule.groups > 1 && rule.sizes.empty()) bad("groups without sizes");
  }
  return rule;
}

}  // namespace

std::string Rule::describe() const {
  switch (kind) {
    case Kind::rename:
      return fmt::format("rename {} -> {}", from, fmt::join(to, ", "));
    case Kind::stack:
      return fmt::format("stack {} -> {}", from, fmt::join(to, ", "));
    case Kind::split:
      return fmt::format("split {}{} -> {}{}{}", from, axis == 0 ? "" : fmt::format(" axis {}", axis),
                         fmt::join(to, ", "),
                         sizes.empty() ? "" : fmt::format(" by {}", fmt::join(sizes, ", ")),
                         groups == 1 ? "" : fmt::format(" in {} groups", groups));
    case Kind::deal:
      return fmt::format("deal {} axis {} -> {}", from, axis, fmt::join(to, ", "));
    case Kind::unflatten:
      return fmt::format("unflatten {} by {}", from, fmt::join(sizes, ", "));
    case Kind::transpose:
      return fmt::format("transpose {}", from);
    case Kind::drop:
      return fmt::format("drop {}", from);
    case Kind::add_constant:
      return fmt::format("add {} to {}", constant, from);
  }
  return from;
}

Rule rename(std::string from, std::string to) {
  return checked({Rule::Kind::rename, std::move(from), {std::move(to)}, {}});
}
Rule stack(std::string from, std::string to) {
  return checked({Rule::Kind::stack, std::move(from), {std::move(to)}, {}});
}
Rule split(std::string from, std::vector<std::string> to, std::vector<int> sizes, int groups) {
  return checked({Rule::Kind::split, std::move(from), std::move(to), std::move(sizes), groups});
}
Rule split_axis(int axis, std::string from, std::vector<std::string> to, std::vector<int> sizes) {
  return checked({Rule::Kind::split, std::move(from), std::move(to), std::move(sizes), 1, 0.0f, axis});
}
Rule deal(int axis, std::string from, std::vector<std::string> to) {
  return checked({Rule::Kind::deal, std::move(from), std::move(to), {}, 1, 0.0f, axis});
}
Rule unflatten(std::string pattern, int count) {
  return checked({Rule::Kind::unflatten, std::move(pattern), {}, {count}});
}
std::vector<Rule> heads_of_kv_b(int heads, int key_rows, int value_rows) {
  return {unflatten("*.kv_b_proj.weight", heads),
          split_axis(-2, "*.kv_b_proj.weight", {"*.key_rows.weight", "*.unembed_out.weight"},
                     {key_rows, value_rows}),
          transpose("*.key_rows.weight"), rename("*.key_rows.weight", "*.embed_q.weight")};
}
Rule transpose(std::string pattern) { return {Rule::Kind::transpose, std::move(pattern), {}, {}}; }
Rule drop(std::string pattern) { return {Rule::Kind::drop, std::move(pattern), {}, {}}; }
std::vector<Rule> drop_layers(const std::string& stem, int first, int count) {
  std::vector<Rule> rules;
  for (int i = 0; i < count; ++i) rules.push_back(drop(fmt::format("{}.{}.*", stem, first + i)));
  return rules;
}
std::vector<Rule> operator+(std::vector<Rule> a, std::vector<Rule> b) {
  a.insert(a.end(), std::make_move_iterator(b.begin()), std::make_move_iterator(b.end()));
  return a;
}
Rule add_constant(std::string pattern, float constant) {
  return {Rule::Kind::add_constant, std::move(pattern), {}, {}, 1, constant};
}

std::shared_ptr<Source> apply_rules(std::shared_ptr<Source> source, std::vector<Rule> rules) {
  if (rules.empty()) return source;
  Recipes recipes;
  for (const std::string& name : source->names()) recipes.emplace(name, leaf(source, name));
  for (const Rule& rule : rules) Application(rule, recipes).run();
  return std::make_shared<RuledSource>(std::move(recipes));
}

}  // namespace mlxcel
