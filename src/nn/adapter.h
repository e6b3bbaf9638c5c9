// LoRA adapters beside the weights they belong to: a site is a place where parts multiply (one matrix, a
// fused one, a bank of experts), an adapter holds thin factors for some sites, and the rows of a step name
// the adapters they want. What a site adds touches those rows alone: the others keep their bits, and a step
// in which nobody wants an adapter runs as if there were none. Owner: the model owns the book, parts share
// its sites, whoever runs rows holds the adapters. Thread: make() any thread once the model is built; the
// rest belongs to the model thread. Reference: Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large Language
// Models".
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/low_rank.h"
#include "kernels/matrix.h"
#include "state/step.h"
#include "tensor/tensor.h"

namespace mlxcel {

class Adapter;
struct AdapterLevel;
struct AdapterMix;

/// The adapters of a row, in the order in which they are added. Rows point to theirs; it must outlive the
/// step.
struct AdapterSet {
  struct Use {
    std::shared_ptr<const Adapter> adapter;
    float scale;  // beside alpha / r, which the factors hold; not 0
  };
  std::vector<Use> uses;
};

class AdapterSite {
 public:
  struct Part {
    std::string weight;  // after the rules
    int out;
    std::string table = {};  // a head without a matrix of its own: the table whose rows it multiplies with
  };

  /// Whether a row of the step at hand wants something here.
  bool active() const;
  /// y [rows, out] or [rows, k, out], with what x [rows, in] or [rows, k, in] adds; experts [rows, k] of a
  /// bank. Rows are all tokens of the step, or those whose logits are wanted, or those of drafts that know
  /// what an earlier round expected (StepRow::before).
  array added(const array& y, const array& x, const std::optional<array>& experts = std::nullopt) const;
  /// The same for a site whose outputs pass through `join` (an activation) before anyone sees them: y is what
  /// `join` makes without adapters, `open` what it is made from, of some rows.
  array joined(const array& y, const array& x, const std::optional<array>& experts,
               const std::function<array(const array& x, const std::optional<array>& experts)>& open,
               const std::function<array(const array& opened)>& join) const;

  /// Of a table: y [tokens, width] with what it adds to these rows of it, [tokens] int32.
  array looked_up(const array& y, const array& rows) const;

  const std::vector<Part>& parts() const { return parts_; }
  int experts() const { return experts_; }

 private:
  friend class AdapterBook;
  using Current = std::shared_ptr<const std::unique_ptr<AdapterMix>>;
  AdapterSite(Current current, size_t index, std::vector<Part> parts, int experts)
      : current_(std::move(current)), index_(index), parts_(std::move(parts)), experts_(experts) {}
  const AdapterMix& mix() const { return **current_; }
  array add(const AdapterLevel& level, array y, const array& x, const std::optional<array>& experts,
            const std::vector<int32_t>* places) const;

  Current current_;
  size_t index_;
  std::vector<Part> parts_;
  int experts_;
};

class AdapterBook {
 public:
  AdapterBook();
  ~AdapterBook();
  AdapterBook(const AdapterBook&) = delete;
  AdapterBook& operator=(const AdapterBook&) = delete;

  /// While the model is built. `experts`: 0 for a plain matrix.
  std::shared_ptr<const AdapterSite> add_site(std::vector<AdapterSite::Part> parts, int in, int experts);
  /// A table [rows, width] whose rows are looked up.
  std::shared_ptr<const AdapterSite> add_table(const std::string& weight, int rows, int width);
  /// Packs what `of` knows of each site's weights (shapes after the rules).
  using Find = std::function<std::optional<LowRank>(const std::string& weight, const Shape& shape)>;
  /// `heads_follow_tables`: what is added to a table is added to a head that shares it.
  std::shared_ptr<const Adapter> make(const Find& of, bool heads_follow_tables = false) const;
  /// Tables that serve as heads too.
  std::vector<std::string> shared_tables() const;

  /// The step whose graph is built while this lives.
  class Use {
   public:
    Use(const AdapterBook& book, const Step& step);
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    const AdapterBook& book_;
  };

 private:
  struct Place {
    std::shared_ptr<const AdapterSite> site;
    int in;
    bool table = false;  // `in` rows are looked up, not multiplied
  };
  std::vector<Place> sites_;
  std::shared_ptr<std::unique_ptr<AdapterMix>>
      current_;  // of the step at hand; none: nobody wants an adapter
};

/// Packed factors. Immutable.
class Adapter {
 public:
  struct Factors {
    kernels::Matrix down;  // [sum of ranks, in], of the parts that have some; of tables [rows, rank]
    std::vector<std::optional<kernels::Matrix>> up;  // of each part [out, rank]
    std::vector<int> ranks;                          // of each part; 0: nothing is added to it
  };
  const Factors* at(size_t site) const { return site < by_site_.size() ? by_site_[site].get() : nullptr; }
  size_t bytes() const { return bytes_; }
  size_t sites() const;  // that it touches

 private:
  friend class AdapterBook;
  std::vector<std::unique_ptr<const Factors>> by_site_;
  size_t bytes_ = 0;
};

}  // namespace mlxcel
