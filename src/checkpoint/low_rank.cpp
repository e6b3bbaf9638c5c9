#include "checkpoint/low_rank.h"

#include <algorithm>

#include "base/error.h"

namespace mlxcel {

namespace {

size_t at(int n) { return static_cast<size_t>(n); }

/// Rows of each member, in the order of `kept`.
LowRank with_rows(const LowRank& whole, const std::vector<int>& kept) {
  LowRank out = whole;
  out.rows = static_cast<int>(kept.size());
  out.left.clear();
  out.left.reserve(whole.members() * kept.size() * at(whole.rank));
  for (size_t m = 0; m < whole.members(); ++m)
    for (const int row : kept) {
      const float* from = whole.left.data() + (m * at(whole.rows) + at(row)) * at(whole.rank);
      out.left.insert(out.left.end(), from, from + whole.rank);
    }
  return out;
}

LowRank with_members(const LowRank& whole, const std::vector<int>& kept) {
  LowRank out = whole;
  out.count = static_cast<int>(kept.size());
  const size_t left = at(whole.rows) * at(whole.rank), right = at(whole.rank) * at(whole.columns);
  out.left.clear();
  out.right.clear();
  for (const int m : kept) {
    const auto l = whole.left.begin() + static_cast<ptrdiff_t>(at(m) * left);
    const auto r = whole.right.begin() + static_cast<ptrdiff_t>(at(m) * right);
    out.left.insert(out.left.end(), l, l + static_cast<ptrdiff_t>(left));
    out.right.insert(out.right.end(), r, r + static_cast<ptrdiff_t>(right));
  }
  return out;
}

void transpose(const float* from, float* to, int rows, int columns) {
  for (int r = 0; r < rows; ++r)
    for (int c = 0; c < columns; ++c) to[at(c) * at(rows) + at(r)] = from[at(r) * at(columns) + at(c)];
}

}  // namespace

std::vector<float> LowRank::product() const {
  const size_t all_rows = members() * at(rows);
  std::vector<float> out(all_rows * at(columns), 0.0f);
  for (size_t row = 0; row < all_rows; ++row) {
    const float* thin = right.data() + row / at(rows) * at(rank) * at(columns);
    float* to = out.data() + row * at(columns);
    for (int k = 0; k < rank; ++k) {
      const float factor = left[row * at(rank) + at(k)];
      if (factor == 0.0f) continue;
      for (int c = 0; c < columns; ++c) to[c] += factor * thin[at(k) * at(columns) + at(c)];
    }
  }
  return out;
}

LowRank picked(const LowRank& whole, int axis, int first, int step, int entries) {
  std::vector<int> kept(at(entries));
  for (int i = 0; i < entries; ++i) kept[at(i)] = first + i * step;
  const int own = whole.count == 0 ? axis + 1 : axis;  // of [count, rows, columns]
  if (own == 0) return with_members(whole, kept);
  if (own == 1) return with_rows(whole, kept);
  return transposed(with_rows(transposed(whole), kept));
}

LowRank picked_in_groups(const LowRank& whole, int begin, int taken, int groups) {
  std::vector<int> kept;
  const int run = (whole.count == 0 ? whole.rows : whole.count) / groups;
  for (int g = 0; g < groups; ++g)
    for (int i = 0; i < taken; ++i) kept.push_back(g * run + begin + i);
  return whole.count == 0 ? with_rows(whole, kept) : with_members(whole, kept);
}

LowRank unflattened(const LowRank& whole, int count, const std::string& what) {
  if (whole.count != 0)
    fail(ErrorKind::unsupported, "{}: an adapter on {} cannot follow its rule", what,
         to_string(whole.shape()));
  LowRank out = whole;
  out.count = count;
  out.rows = whole.rows / count;
  out.right.clear();
  for (int m = 0; m < count; ++m) out.right.insert(out.right.end(), whole.right.begin(), whole.right.end());
  return out;
}

LowRank transposed(const LowRank& whole) {
  LowRank out{.count = whole.count, .rows = whole.columns, .columns = whole.rows, .rank = whole.rank};
  out.left.resize(whole.right.size());
  out.right.resize(whole.left.size());
  for (size_t m = 0; m < whole.members(); ++m) {
    const size_t right = m * at(whole.rank) * at(whole.columns), left = m * at(whole.rows) * at(whole.rank);
    transpose(whole.right.data() + right, out.left.data() + right, whole.rank, whole.columns);
    transpose(whole.left.data() + left, out.right.data() + left, whole.rows, whole.rank);
  }
  return out;
}

std::optional<LowRank> stacked(const std::vector<std::optional<LowRank>>& parts, const std::string& what) {
  LowRank out{.count = static_cast<int>(parts.size())};
  for (const auto& part : parts) {
    if (!part) continue;
    if (part->count != 0)
      fail(ErrorKind::unsupported, "{}: an adapter on {} cannot follow its rule", what,
           to_string(part->shape()));
    out.rows = part->rows;
    out.columns = part->columns;
    out.rank = std::max(out.rank, part->rank);
  }
  if (out.rank == 0) return std::nullopt;
  // Members of a smaller rank, or untouched, are filled up with zeros.
  out.left.assign(parts.size() * at(out.rows) * at(out.rank), 0.0f);
  out.right.assign(parts.size() * at(out.rank) * at(out.columns), 0.0f);
  for (size_t m = 0; m < parts.size(); ++m) {
    if (!parts[m]) continue;
    const LowRank& part = *parts[m];
    for (int row = 0; row < part.rows; ++row)
      std::copy_n(part.left.begin() + static_cast<ptrdiff_t>(at(row) * at(part.rank)), part.rank,
                  out.left.begin() + static_cast<ptrdiff_t>((m * at(out.rows) + at(row)) * at(out.rank)));
    std::copy(part.right.begin(), part.right.end(),
              out.right.begin() + static_cast<ptrdiff_t>(m * at(out.rank) * at(out.columns)));
  }
  return out;
}

}  // namespace mlxcel
