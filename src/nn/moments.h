// A row's mean, standard deviation (over all its entries) and root mean square, summed in one order whatever
// stands beside it. Thread: model thread.
#pragma once

#include "tensor/tensor.h"

namespace mlxcel {

struct Moments {
  array mean, deviation, magnitude;  // [tokens, 1] each
};

/// x [tokens, width]
Moments row_moments(const array& x);

/// Sums over the last axis, kept: [..., 1].
array row_sums(const array& x);

/// The value below which a standard normal variable falls with this probability (between 0 and 1).
double normal_quantile(double probability);

}  // namespace mlxcel
