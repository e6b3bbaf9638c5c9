#include "nn/ngram.h"

#include <string>

#include "base/error.h"
#include "kernels/matrix.h"
#include "nn/dims.h"
#include "nn/fault.h"

namespace mlxcel {

NgramOptions NgramOptions::from(const Config& c, int vocab, int hidden) {
  NgramOptions o;
  o.vocab = vocab;
  o.hidden = hidden;
  o.longest = c.integer("emb_neighbor_num", 2, 16, 4);
  o.tables = c.integer("emb_split_num", 1, 64, 4);
  o.buckets = static_cast<long long>(vocab) * c.integer("ngram_vocab_size_ratio", 1, 1 << 16, 78);
  const int count = o.tables * (o.longest - 1);
  if (o.hidden < count || o.buckets > (1LL << 30))
    fail(ErrorKind::bad_checkpoint,
         "{}: {} n-gram tables of {} buckets for {} features: the numbers are out of bounds", c.where(),
         count, o.buckets, hidden);
  return o;
}

NgramMix::NgramMix(const Weights& w, const NgramOptions& options)
    : o_(options), slot_(w.layout().add_recurrent({.name = "ngram", .shape = {options.longest - 1}})) {
  const int width = o_.hidden / (o_.tables * (o_.longest - 1));
  for (int tokens = 2; tokens <= o_.longest; ++tokens)
    for (int j = 0; j < o_.tables; ++j) {
      const auto index = static_cast<long long>(tables_.size());
      const int64_t buckets = o_.buckets + 2 * index + 1;
      std::vector<int64_t> factors;
      int64_t power = 1;
      for (int s = 1; s < tokens; ++s) factors.push_back(power = power * o_.vocab % buckets);
      const std::string number = std::to_string(index);
      tables_.push_back({tokens, buckets, std::move(factors),
                         (w / "embedders").embedding(number, static_cast<int>(buckets), width),
                         (w / "post_projs").linear(number, o_.hidden, width, Bias::none)});
    }
}

std::vector<array> NgramMix::with_predecessors(Step& step) const {
  const int back = o_.longest - 1;
  const array kept = mx::astype(step.recurrent(slot_), mx::int64);  // [rows, back]: ids, oldest first
  const array tokens = mx::astype(step.tokens(), mx::int64);
  std::vector<std::vector<array>> shifted(static_cast<size_t>(back + 1));
  std::vector<array> next;
  for (size_t r = 0; r < step.rows().size(); ++r) {
    const StepRow& row = step.rows()[r];
    const int at = static_cast<int>(r);
    const array before = mx::reshape(mx::slice(kept, {at, 0}, {at + 1, back}), {back});
    const array all = mx::concatenate({before, mx::slice(tokens, {row.first}, {row.first + row.count})});
    for (int s = 0; s <= back; ++s)
      shifted[static_cast<size_t>(s)].push_back(mx::slice(all, {back - s}, {back - s + row.count}));
    next.push_back(mx::reshape(mx::slice(all, {row.count}, {row.count + back}), {1, back}));
  }
  step.set_recurrent(slot_, mx::astype(mx::concatenate(next, 0), mx::float32));
  std::vector<array> result;
  for (const auto& parts : shifted) result.push_back(mx::concatenate(parts));
  return result;
}

array NgramMix::operator()(const array& x, Step& step) const {
  const auto ids = with_predecessors(step);
  array sum = x;
  for (const Table& t : tables_) {
    array hash = ids[0];
    for (int s = 1; s < t.tokens; ++s)
      if (!fault("earlier tokens ignored"))
        hash = mx::add(hash, mx::multiply(ids[static_cast<size_t>(s)],
                                          array(t.factors[static_cast<size_t>(s - 1)], mx::int64)));
    const array buckets = mx::astype(mx::remainder(hash, array(t.buckets, mx::int64)), mx::int32);
    sum = t.projection(kernels::take_rows(t.table.table, buckets), sum);
  }
  return mx::multiply(sum, array(1.0f / static_cast<float>(1 + tables_.size())));
}

}  // namespace mlxcel
