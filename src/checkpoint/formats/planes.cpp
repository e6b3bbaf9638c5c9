#include "checkpoint/formats/planes.h"

#include <limits>
#include <utility>

#include "base/error.h"

namespace mlxcel {

namespace {

constexpr std::string_view kWeight = ".weight", kScales = ".scales", kBiases = ".biases";

struct Joined {
  WeightInfo info;
  const StoredTensor* data = nullptr;
  const StoredTensor* scales = nullptr;
  const StoredTensor* biases = nullptr;
};

bool ends(const std::string& name, std::string_view suffix, std::string& module) {
  if (!name.ends_with(suffix) || name.size() == suffix.size()) return false;
  module = name.substr(0, name.size() - suffix.size());
  return true;
}

/// Every format whose codes and scales have these widths: words * 32 = columns * bits, columns = scales *
/// group.
std::vector<QuantFormat> candidates(int words, int scales, bool affine) {
  static const std::vector<QuantFormat> all = [] {
    std::vector<QuantFormat> out;
    for (const int bits : {2, 3, 4, 5, 6, 8})
      for (const int group : {32, 64, 128}) out.push_back({QuantMode::affine, bits, group});
    out.push_back({QuantMode::mxfp4, 4, 32});
    out.push_back({QuantMode::nvfp4, 4, 16});
    out.push_back({QuantMode::mxfp8, 8, 32});
    return out;
  }();
  std::vector<QuantFormat> out;
  for (const QuantFormat& format : all) {
    if ((format.mode == QuantMode::affine) != affine) continue;
    if (int64_t{words} * 32 == int64_t{scales} * format.group_size * format.bits) out.push_back(format);
  }
  return out;
}

/// The declared format where it fits, else the only one, else the one with the declared group (mixed exports
/// vary the bits under one group).
std::optional<QuantFormat> choose(const std::vector<QuantFormat>& fitting,
                                  const std::optional<QuantFormat>& declared) {
  for (const QuantFormat& format : fitting)
    if (declared && format == *declared) return format;
  if (fitting.size() == 1) return fitting[0];
  std::optional<QuantFormat> same_group;
  for (const QuantFormat& format : fitting)
    if (declared && format.group_size == declared->group_size) same_group = format;
  return same_group;
}

class PlanesSource final : public Source {
 public:
  PlanesSource(StoredTensors tensors, const QuantMap& map, std::vector<std::string>& warnings)
      : tensors_(std::move(tensors)) {
    for (const auto& [name, stored] : tensors_) add(name, stored, map, warnings);
  }

  std::vector<std::string> names() const override {
    std::vector<std::string> out;
    out.reserve(joined_.size());
    for (const auto& [name, weight] : joined_) out.push_back(name);
    return out;
  }

  std::optional<WeightInfo> find(const std::string& name) const override {
    const auto found = joined_.find(name);
    return found == joined_.end() ? std::nullopt : std::optional(found->second.info);
  }

  Weight load(const std::string& name) override {
    const auto found = joined_.find(name);
    if (found == joined_.end()) fail(ErrorKind::not_found, "{}: not in the checkpoint", name);
    const Joined& from = found->second;
    Weight out{name,         from.info.shape, load_stored(*from.data, name),
               std::nullopt, std::nullopt,    from.info.format};
    if (from.scales) out.scales = load_stored(*from.scales, name);
    if (from.biases) out.biases = load_stored(*from.biases, name);
    return out;
  }

 private:
  const StoredTensor* at(const std::string& name) const {
    const auto found = tensors_.find(name);
    return found == tensors_.end() ? nullptr : &found->second;
  }

  void add(const std::string& name, const StoredTensor& stored, const QuantMap& map,
           std::vector<std::string>& warnings) {
    std::string module;
    if (ends(name, kScales, module) || ends(name, kBiases, module)) {
      const StoredTensor* codes = at(module + std::string(kWeight));
      if (!codes || !at(module + std::string(kScales)))
        fail(ErrorKind::bad_checkpoint, "{}: belongs to quantised planes, but {} is missing", name,
             module + std::string(codes ? kScales : kWeight));
      return;
    }
    Joined joined;
    joined.data = &stored;
    joined.info.shape = stored.shape;
    joined.info.dtype = held_dtype(stored, name);
    joined.info.stored_as = stored.dtype;
    joined.info.bytes = static_cast<size_t>(stored.bytes);
    if (ends(name, kWeight, module)) {
      const StoredTensor* scales = at(module + std::string(kScales));
      if (!scales && stored.dtype == "U32")
        fail(ErrorKind::bad_checkpoint, "{}: packed codes (U32) without {}", name,
             module + std::string(kScales));
      if (scales) join(name, module, *scales, joined, map, warnings);
      if (!scales) check_dense(module, map, warnings);
    }
    joined_.emplace(name, std::move(joined));
  }

  static void check_dense(const std::string& module, const QuantMap& map,
                          std::vector<std::string>& warnings) {
    const auto entry = map.find(module);
    if (entry && entry->explicitly && entry->format)
      warnings.push_back(fmt::format("{}: the quantisation map says {}, the files hold it dense", module,
                                     to_string(*entry->format)));
  }

  void join(const std::string& name, const std::string& module, const StoredTensor& scales, Joined& joined,
            const QuantMap& map, std::vector<std::string>& warnings) const {
    const StoredTensor& codes = *joined.data;
    const std::string scales_name = module + std::string(kScales),
                      biases_name = module + std::string(kBiases);
    const StoredTensor* biases = at(biases_name);
    if (codes.dtype != "U32")
      fail(ErrorKind::bad_checkpoint, "{}: expected packed codes (U32) beside {}, found {}", name,
           scales_name, codes.dtype);
    const bool affine = biases != nullptr;
    const bool float_scales = scales.dtype == "F16" || scales.dtype == "BF16" || scales.dtype == "F32";
    if (affine && !float_scales)
      fail(ErrorKind::bad_checkpoint, "{}: expected F16, BF16 or F32 beside {}, found {}", scales_name,
           biases_name, scales.dtype);
    if (!affine && scales.dtype != "U8")
      fail(ErrorKind::bad_checkpoint, "{}: scales of type {} need {}, which is missing", scales_name,
           scales.dtype, biases_name);
    if (affine && (biases->dtype != scales.dtype || biases->shape != scales.shape))
      fail(ErrorKind::bad_checkpoint, "{}: expected {} {} as the scales have, found {} {}", biases_name,
           scales.dtype, to_string(scales.shape), biases->dtype, to_string(biases->shape));

    const size_t axes = codes.shape.size();
    bool same_rows = axes >= 2 && scales.shape.size() == axes;
    for (size_t i = 0; same_rows && i + 1 < axes; ++i) same_rows = codes.shape[i] == scales.shape[i];
    if (!same_rows || codes.shape[axes - 1] <= 0 || scales.shape[axes - 1] <= 0)
      fail(ErrorKind::bad_checkpoint, "{}: codes {} and scales {} do not belong together", name,
           to_string(codes.shape), to_string(scales.shape));
    const int words = codes.shape[axes - 1], groups = scales.shape[axes - 1];

    const auto entry = map.find(module);
    const auto declared = entry ? entry->format : std::nullopt;
    const auto fitting = candidates(words, groups, affine);
    if (fitting.empty())
      fail(ErrorKind::bad_checkpoint,
           "{}: codes {} with scales {} fit no bits and group size that exist (packed width = columns * bits "
           "/ 32)",
           name, to_string(codes.shape), to_string(scales.shape));
    const auto format = choose(fitting, declared ? declared : map.fallback());
    if (!format)
      fail(ErrorKind::bad_checkpoint,
           "{}: codes {} with scales {} fit several formats ({} among them) and config.json does not say "
           "which",
           name, to_string(codes.shape), to_string(scales.shape), to_string(fitting[0]));
    if (entry && declared != format)
      warnings.push_back(fmt::format("{}: the quantisation map says {}, the shapes say {}; the shapes win",
                                     module, declared ? to_string(*declared) : "dense", to_string(*format)));
    if (int64_t{groups} * format->group_size > std::numeric_limits<int>::max())
      fail(ErrorKind::bad_checkpoint, "{}: {} columns are beyond 2^31 - 1", name,
           int64_t{groups} * format->group_size);

    joined.scales = &scales;
    joined.biases = biases;
    joined.info.shape[axes - 1] = groups * format->group_size;
    joined.info.dtype = held_dtype(scales, scales_name);
    joined.info.format = format;
    joined.info.stored_as = to_string(*format);
    joined.info.bytes += static_cast<size_t>(scales.bytes + (biases ? biases->bytes : 0));
  }

  StoredTensors tensors_;
  std::map<std::string, Joined> joined_;
};

}  // namespace

std::shared_ptr<Source> join_planes(StoredTensors tensors, const QuantMap& map,
                                    std::vector<std::string>& warnings) {
  return std::make_shared<PlanesSource>(std::move(tensors), map, warnings);
}

}  // namespace mlxcel
