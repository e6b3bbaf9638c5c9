#include "nn/adapter.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "base/error.h"
#include "tensor/external.h"

namespace mlxcel {

/// Who wants what among the rows that a product sees.
struct AdapterLevel {
  struct Group {
    const Adapter* adapter;
    std::vector<int32_t> rows;
    std::vector<float> scales;
  };
  int count = 0;
  std::vector<Group> groups;  // in the order in which they are added
};

struct AdapterMix {
  AdapterLevel tokens, wanted;
  AdapterLevel drafts;  // tokens of drafts that know what an earlier round expected

  const AdapterLevel& level(int rows) const {
    if (rows == tokens.count) return tokens;
    if (rows == wanted.count) return wanted;
    if (rows == drafts.count) return drafts;
    fail(ErrorKind::internal,
         "adapters: a product of {} rows in a step of {} tokens, {} of them wanted and {} of drafts", rows,
         tokens.count, wanted.count, drafts.count);
  }
  bool touches(size_t site) const {
    return std::any_of(tokens.groups.begin(), tokens.groups.end(),
                       [&](const AdapterLevel::Group& g) { return g.adapter->at(site) != nullptr; });
  }
};

namespace {

array ids(const std::vector<int32_t>& values) {
  return array(values.data(), {static_cast<int>(values.size())}, mx::int32);
}

array some_rows(const array& x, const std::vector<int32_t>& rows) {
  return static_cast<int>(rows.size()) == x.shape(0) ? x : mx::take(x, ids(rows), 0);
}

/// Per-row factors over x [rows, …].
array by_rows(const array& x, const std::vector<float>& factors) {
  if (std::all_of(factors.begin(), factors.end(), [](float f) { return f == 1.0f; })) return x;
  Shape shape(x.ndim(), 1);
  shape[0] = static_cast<int>(factors.size());
  return mx::multiply(x, array(factors.data(), shape, mx::float32));
}

array columns(const array& x, int from, int count) {
  Shape start(x.ndim(), 0), stop = x.shape();
  start.back() = from;
  stop.back() = from + count;
  return mx::slice(x, start, stop);
}

/// One update for each of `rows`, as scatters want it.
array as_updates(const array& values) { return mx::expand_dims(values, 1); }

kernels::Matrix packed(const std::string& name, int count, int rows, int width,
                       const std::vector<float>& values) {
  const Shape shape = count == 0 ? Shape{rows, width} : Shape{count, rows, width};
  array data = allocated(shape, mx::float32);
  std::memcpy(mutable_bytes(data), values.data(), values.size() * sizeof(float));
  const Weight weight{name, shape, data, std::nullopt, std::nullopt, std::nullopt};
  return kernels::Matrix::concatenated({&weight, 1});
}

/// Of a table [rows, width]: its thin rows, looked up as the table's own are, and what they are multiplied
/// with.
std::unique_ptr<Adapter::Factors> table_factors(const AdapterBook::Find& of, const AdapterSite::Part& part,
                                                int rows) {
  const auto own = of(part.weight, {rows, part.out});
  if (!own) return nullptr;
  auto factors = std::make_unique<Adapter::Factors>();
  factors->ranks = {own->rank};
  factors->down = packed(part.weight, 0, rows, own->rank, own->left);
  const LowRank turned = transposed(*own);  // [width, rows]
  factors->up = {packed(part.weight, 0, part.out, own->rank, turned.left)};
  return factors;
}

size_t bytes_of(const Adapter::Factors& factors) {
  size_t bytes = factors.down.bytes();
  for (const auto& up : factors.up) bytes += up ? up->bytes() : 0;
  return bytes;
}

/// A row adds its adapters in the order of its set whatever its neighbours do: groups are made place by
/// place.
AdapterLevel level_of(const std::vector<const AdapterSet*>& rows) {
  AdapterLevel level{.count = static_cast<int>(rows.size()), .groups = {}};
  size_t most = 0;
  for (const AdapterSet* set : rows)
    if (set) most = std::max(most, set->uses.size());
  for (size_t place = 0; place < most; ++place) {
    const auto first = static_cast<ptrdiff_t>(level.groups.size());
    for (size_t r = 0; r < rows.size(); ++r) {
      if (!rows[r] || rows[r]->uses.size() <= place) continue;
      const AdapterSet::Use& use = rows[r]->uses[place];
      auto group = std::find_if(level.groups.begin() + first, level.groups.end(),
                                [&](const AdapterLevel::Group& g) { return g.adapter == use.adapter.get(); });
      if (group == level.groups.end())
        group = level.groups.insert(group, {.adapter = use.adapter.get(), .rows = {}, .scales = {}});
      group->rows.push_back(static_cast<int32_t>(r));
      group->scales.push_back(use.scale);
    }
  }
  return level;
}

}  // namespace

AdapterBook::AdapterBook() : current_(std::make_shared<std::unique_ptr<AdapterMix>>()) {}
AdapterBook::~AdapterBook() = default;

std::shared_ptr<const AdapterSite> AdapterBook::add_site(std::vector<AdapterSite::Part> parts, int in,
                                                         int experts) {
  std::shared_ptr<const AdapterSite> site(
      new AdapterSite(current_, sites_.size(), std::move(parts), experts));
  sites_.push_back({site, in});
  return site;
}

std::shared_ptr<const AdapterSite> AdapterBook::add_table(const std::string& weight, int rows, int width) {
  std::shared_ptr<const AdapterSite> site(new AdapterSite(current_, sites_.size(), {{weight, width}}, 0));
  sites_.push_back({site, rows, true});
  return site;
}

std::vector<std::string> AdapterBook::shared_tables() const {
  std::vector<std::string> tables;
  for (const Place& place : sites_)
    for (const auto& part : place.site->parts())
      if (!part.table.empty()) tables.push_back(part.table);
  return tables;
}

std::shared_ptr<const Adapter> AdapterBook::make(const Find& of, bool heads_follow_tables) const {
  auto adapter = std::make_shared<Adapter>();
  adapter->by_site_.resize(sites_.size());
  for (size_t i = 0; i < sites_.size(); ++i) {
    const auto& [site, in, table] = sites_[i];
    if (table) {
      adapter->by_site_[i] = table_factors(of, site->parts().front(), in);
      if (adapter->by_site_[i]) adapter->bytes_ += bytes_of(*adapter->by_site_[i]);
      continue;
    }
    const int experts = site->experts();
    auto factors = std::make_unique<Adapter::Factors>();
    std::vector<LowRank> found;
    int total = 0;
    for (const auto& part : site->parts()) {
      const Shape shape = experts == 0 ? Shape{part.out, in} : Shape{experts, part.out, in};
      auto own = of(part.weight, shape);
      if (!own && heads_follow_tables && !part.table.empty()) own = of(part.table, shape);
      if (own && own->shape() != shape)
        fail(ErrorKind::internal, "{}: an adapter of {} for a weight of {}", part.weight,
             to_string(own->shape()), to_string(shape));
      factors->ranks.push_back(own ? own->rank : 0);
      factors->up.emplace_back();
      if (!own) continue;
      factors->up.back() = packed(part.weight, experts, part.out, own->rank, own->left);
      adapter->bytes_ += factors->up.back()->bytes();
      total += own->rank;
      found.push_back(std::move(*own));
    }
    if (found.empty()) continue;
    std::vector<float> down;  // of each expert, the parts' factors one after another
    for (int e = 0; e < std::max(experts, 1); ++e)
      for (const LowRank& own : found) {
        const size_t size = static_cast<size_t>(own.rank) * static_cast<size_t>(in);
        const auto from = own.right.begin() + static_cast<ptrdiff_t>(static_cast<size_t>(e) * size);
        down.insert(down.end(), from, from + static_cast<ptrdiff_t>(size));
      }
    factors->down = packed(site->parts().front().weight, experts, total, in, down);
    adapter->bytes_ += factors->down.bytes();
    adapter->by_site_[i] = std::move(factors);
  }
  return adapter;
}

size_t Adapter::sites() const {
  return static_cast<size_t>(
      std::count_if(by_site_.begin(), by_site_.end(), [](const auto& f) { return f != nullptr; }));
}

AdapterBook::Use::Use(const AdapterBook& book, const Step& step) : book_(book) {
  const auto& rows = step.rows();
  if (std::none_of(rows.begin(), rows.end(),
                   [](const StepRow& row) { return row.adapters && !row.adapters->uses.empty(); }))
    return;
  std::vector<const AdapterSet*> tokens, wanted, drafts;
  std::vector<int> places;
  for (const StepRow& row : rows) {
    tokens.insert(tokens.end(), static_cast<size_t>(row.count), row.adapters);
    if (!row.before) continue;
    drafts.insert(drafts.end(), static_cast<size_t>(row.open), row.adapters);
    for (int i = row.count - row.open; i < row.count; ++i) places.push_back(row.first + i);
  }
  for (const int token : step.wanted()) wanted.push_back(tokens[static_cast<size_t>(token)]);
  if (places.size() == step.wanted().size() && places != step.wanted())
    fail(ErrorKind::internal, "adapters: {} tokens of drafts, and as many others wanted", places.size());
  *book_.current_ =
      std::make_unique<AdapterMix>(AdapterMix{level_of(tokens), level_of(wanted), level_of(drafts)});
}

AdapterBook::Use::~Use() { book_.current_->reset(); }

bool AdapterSite::active() const { return *current_ && mix().touches(index_); }

array AdapterSite::add(const AdapterLevel& level, array y, const array& x,
                       const std::optional<array>& experts, const std::vector<int32_t>* places) const {
  for (const AdapterLevel::Group& group : level.groups) {
    const Adapter::Factors* own = group.adapter->at(index_);
    if (!own) continue;
    std::vector<int32_t> rows = group.rows;
    if (places)
      for (int32_t& row : rows) row = (*places)[static_cast<size_t>(row)];
    const array in = some_rows(x, rows);
    std::optional<array> chosen;
    if (experts) chosen = some_rows(*experts, rows);
    const auto product = [&](const array& a, const kernels::Matrix& b) {
      return chosen ? kernels::gather_matmul(a, b, *chosen) : kernels::matmul(a, b);
    };
    const array low = by_rows(product(in, own->down), group.scales);
    std::vector<array> outs;
    int from = 0;
    for (size_t p = 0; p < parts_.size(); ++p) {
      if (!own->up[p]) {
        Shape shape = low.shape();
        shape.back() = parts_[p].out;
        outs.push_back(mx::zeros(shape, mx::float32));
        continue;
      }
      outs.push_back(
          product(own->ranks[p] == low.shape(-1) ? low : columns(low, from, own->ranks[p]), *own->up[p]));
      from += own->ranks[p];
    }
    const array sum = outs.size() == 1 ? outs[0] : mx::concatenate(outs, -1);
    y = static_cast<int>(rows.size()) == y.shape(0) ? mx::add(y, sum)
                                                    : mx::scatter_add(y, {ids(rows)}, as_updates(sum), {0});
  }
  return y;
}

array AdapterSite::added(const array& y, const array& x, const std::optional<array>& experts) const {
  return add(mix().level(x.shape(0)), y, x, experts, nullptr);
}

array AdapterSite::looked_up(const array& y, const array& rows) const {
  array sum = y;
  for (const AdapterLevel::Group& group : mix().level(y.shape(0)).groups) {
    const Adapter::Factors* own = group.adapter->at(index_);
    if (!own) continue;
    const array low = by_rows(kernels::take_rows(own->down, some_rows(rows, group.rows)), group.scales);
    const array added = kernels::matmul(low, *own->up.front());
    sum = static_cast<int>(group.rows.size()) == y.shape(0)
              ? mx::add(sum, added)
              : mx::scatter_add(sum, {ids(group.rows)}, as_updates(added), {0});
  }
  return sum;
}

array AdapterSite::joined(const array& y, const array& x, const std::optional<array>& experts,
                          const std::function<array(const array&, const std::optional<array>&)>& open,
                          const std::function<array(const array&)>& join) const {
  const AdapterLevel& level = mix().level(x.shape(0));
  std::vector<int32_t> places(static_cast<size_t>(level.count), -1), rows;
  for (const AdapterLevel::Group& group : level.groups)
    if (group.adapter->at(index_))
      for (const int32_t row : group.rows) places[static_cast<size_t>(row)] = 0;
  for (size_t r = 0; r < places.size(); ++r) {
    if (places[r] < 0) continue;
    places[r] = static_cast<int32_t>(rows.size());
    rows.push_back(static_cast<int32_t>(r));
  }
  if (rows.empty()) return y;  // wanted rows may be others than those with adapters
  const array some = some_rows(x, rows);
  std::optional<array> chosen;
  if (experts) chosen = some_rows(*experts, rows);
  const array own = join(add(level, open(some, chosen), some, chosen, &places));
  return static_cast<int>(rows.size()) == level.count ? own
                                                      : mx::scatter(y, {ids(rows)}, as_updates(own), {0});
}

}  // namespace mlxcel
