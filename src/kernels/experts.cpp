#include "kernels/experts.h"

namespace mlxcel::kernels {

void ExpertDeal::deal(const int* chosen, int count, int per_token, int experts) {
  begin_.assign(static_cast<size_t>(experts) + 1, 0);
  for (int i = 0; i < count; ++i) ++begin_[static_cast<size_t>(chosen[i]) + 1];
  jobs.clear();
  for (size_t e = 0; e < static_cast<size_t>(experts); ++e) {
    const int rows = begin_[e + 1];
    begin_[e + 1] += begin_[e];
    if (rows > 0) jobs.push_back({static_cast<int>(e), begin_[e], rows});
  }
  choices.resize(static_cast<size_t>(count));
  tokens.resize(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) {
    const auto at = static_cast<size_t>(begin_[static_cast<size_t>(chosen[i])]++);
    choices[at] = i;
    tokens[at] = i / per_token;
  }
}

}  // namespace mlxcel::kernels
