// Attentions over two sets of keys as one. Thread: model thread (graph building). Source: online softmax,
// Milakov and Gimelshein 2018.
#pragma once

#include <optional>

#include "tensor/tensor.h"

namespace mlxcel {

/// What attend_level() gives: out [tokens, heads * dim], level [tokens, heads].
struct Leveled {
  array out, level;
};

/// Their sum by the shares of one softmax over both sets. `sinks` [heads]: a score per head that takes part
/// and brings nothing. Either set may be empty for a query, not both. A token's result depends on the token
/// alone.
array joined(const Leveled& near, const Leveled& far, const std::optional<array>& sinks);
/// The level of both.
array joined_level(const Leveled& near, const Leveled& far);

}  // namespace mlxcel
