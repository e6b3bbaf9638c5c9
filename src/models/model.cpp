#include "models/model.h"

#include <algorithm>
#include <filesystem>
#include <optional>

#include "base/error.h"
#include "checkpoint/formats/gguf_file.h"
#include "models/arch.h"
#include "models/encoder.h"
#include "models/fitted.h"
#include "models/known_types.h"
#include "models/side_drafter.h"

namespace mlxcel {

namespace {

constexpr size_t kNamesInMessage = 8;

/// Tensors of a bare decoder ("layers.0…") under the names of one with a head.
std::vector<Rule> with_root(const Source& source) {
  if (!source.find("embed_tokens.weight")) return {};
  return {rename("embed_tokens.*", "model.embed_tokens.*"), rename("layers.*", "model.layers.*"),
          rename("norm.*", "model.norm.*")};
}

/// Whether a decoder's config says that tokens see later ones: an embedder.
bool says_two_way(const Config& config) {
  return (config.is_bool("use_bidirectional_attention") &&
          config.get("use_bidirectional_attention", false)) ||
         (config.is_bool("is_causal") && !config.get("is_causal", true)) ||
         config.get<std::string>("model_type", "") == "llama_bidirec";
}

/// A folder of sentence-transformers, or a GGUF file with a pooling.
bool is_embedder(const Checkpoint& checkpoint) {
  if (checkpoint.format == Checkpoint::Format::gguf) {
    if (!checkpoint.gguf) return false;
    for (const auto& [key, value] : *checkpoint.gguf) {
      if (!key.ends_with(".pooling_type")) continue;
      const auto type = gguf_integer(*checkpoint.gguf, key, 0, 255).value_or(0);
      return type != 0 && type != 4;  // none, a reranker's
    }
    return false;
  }
  return std::filesystem::exists(checkpoint.path / "modules.json") ||
         std::filesystem::exists(checkpoint.path / "1_Pooling" / "config.json");
}

void refuse_unasked(const std::vector<std::string>& names) {
  if (names.empty()) return;
  std::string list;
  for (size_t i = 0; i < std::min(names.size(), kNamesInMessage); ++i) list += (i ? ", " : "") + names[i];
  if (names.size() > kNamesInMessage) list += fmt::format(" and {} more", names.size() - kNamesInMessage);
  fail(ErrorKind::bad_checkpoint, "the checkpoint has {} {} that this architecture does not use: {}",
       names.size(), names.size() == 1 ? "tensor" : "tensors", list);
}

class LoadedModel : public Model {
 public:
  ModelInfo info_;
  StateLayout layout_;
  std::shared_ptr<Source> source_;  // after the rules: what adapters are fitted to
  std::shared_ptr<AdapterBook> adapters_;
  std::shared_ptr<Source> published_;
  std::optional<Config> config_;
  const MtpArch* mtp_ = nullptr;
  std::unique_ptr<PackedCache> packed_;  // while it writes
  std::unique_ptr<Skeleton> network_;

  const ModelInfo& info() const override { return info_; }
  const StateLayout& layout() const override { return layout_; }
  array logits(Step& step) override {
    const AdapterBook::Use use(*adapters_, step);
    return network_->logits(step);
  }
  array hidden(Step& step) override {
    const AdapterBook::Use use(*adapters_, step);
    return network_->hidden(step);
  }
  array scores(Step& step) override {
    const AdapterBook::Use use(*adapters_, step);
    return score_ ? (*score_)(last_of_rows(network_->hidden(step), step)) : network_->scores(step);
  }
  std::optional<Linear> score_;  // a decoder's classifier, over each row's last token
  std::pair<array, array> logits_and_hidden(Step& step) override {
    const AdapterBook::Use use(*adapters_, step);
    return network_->logits_and_hidden(step);
  }
  std::pair<array, array> logits_and_layers(Step& step, std::span<const int> layers) override {
    const AdapterBook::Use use(*adapters_, step);
    return network_->logits_and_layers(step, layers);
  }
  const Embedding* table() const override { return network_->table(); }
  const Linear* head() const override { return network_->head(); }
  std::shared_ptr<const MtpHead> mtp() const override {
    if (!mtp_->build || network_->table() == nullptr || network_->head() == nullptr) return nullptr;
    const auto ruled = apply_rules(published_, mtp_->weights(*config_, *published_));
    if (ruled->names().empty()) return nullptr;
    StateLayout layout;
    const auto weights = Weights::load(ruled, layout);
    MtpBlock block = mtp_->build(*config_, weights);
    auto shared = own_or({*network_->table(), *network_->head()}, weights);
    refuse_unasked(weights.report().unasked);
    return std::make_shared<const MtpHead>(layout, std::move(block), std::move(shared));
  }
  std::shared_ptr<const Adapter> adapter(const AdapterFiles& files) const override {
    const AdapterFiles own = settled(*config_, files);
    check_copies(*source_, own);
    auto made = adapters_->make(
        [&](const std::string& weight, const Shape& shape) { return fitted(*source_, own, weight, shape); },
        own.heads_follow_tables());
    refuse_unused(own);
    return made;
  }
};

ModelInfo info_of(const Config& config, const NamedArch& found, const NetworkFacts& facts,
                  const WeightReport& report) {
  return {.model_type = config.get<std::string>("model_type"),
          .family = found.family,
          .weights_label = report.label,
          .vocab_size = facts.vocab,
          .hidden = facts.hidden,
          .layers = facts.layers,
          .max_positions = facts.max_positions,
          .encoder = facts.encoder,
          .labels = facts.labels,
          .checkpoint_dtype = report.dtype,
          .weight_bytes = report.bytes_held,
          .parameters = report.parameters,
          .warnings = report.warnings,
          .diffusion = facts.diffusion};
}

/// Heads other than a language model's (rerankers) and drafters are named before their tensors confuse.
void refuse_other_uses(const Config& config) {
  if (const DrafterKind kind = drafter_kind(config); kind != DrafterKind::model)
    fail(ErrorKind::unsupported,
         "{}: this is {} drafter; give it as --draft-model beside the model it was made for", config.where(),
         kind == DrafterKind::dflash ? "a DFlash" : "an MTP");
  for (const auto& name : config.get<std::vector<std::string>>("architectures", {}))
    if (name.ends_with("ForTokenClassification") || name.ends_with("ForQuestionAnswering"))
      fail(ErrorKind::unsupported, "{}: architecture {} is known but not supported yet", config.where(),
           name);
}

/// Matrices of a cache that lives as long as the model.
Weights::Shelf shelf_of(PackedCache* cache) {
  if (!cache) return {};
  return {.find = [cache](auto forms, bool gated) { return cache->find(forms, gated); },
          .keep = [cache](const kernels::Matrix& matrix) { cache->keep(matrix); }};
}

std::unique_ptr<LoadedModel> build(const Config& config, std::shared_ptr<Source> source,
                                   const LoadOptions& options,
                                   std::unique_ptr<PackedCache> packed = nullptr) {
  refuse_other_uses(config);
  const NamedArch& found = detect_arch(config);
  auto model = std::make_unique<LoadedModel>();
  const bool decoder = found.arch.kind == "decoder", classifies = decoder && is_classifier(config);
  const bool two_way = decoder && says_two_way(config);
  const bool keeps_nothing = decoder && (options.keeps_nothing || classifies || two_way);
  auto rules = keeps_nothing ? with_root(*source) : std::vector<Rule>{};
  for (Rule& rule : found.arch.weights(config, *source)) rules.push_back(std::move(rule));
  model->published_ = source;
  model->config_ = config;
  model->mtp_ = &found.arch.mtp;
  model->source_ = apply_rules(std::move(source), rules);
  std::vector<FusedAdapter> fuse = options.fuse;  // outlives the weights' source
  for (FusedAdapter& one : fuse) one.files = settled(config, one.files);
  model->packed_ = std::move(packed);
  const auto weights = Weights::load(fused(model->source_, fuse), model->layout_, options.progress,
                                     shelf_of(model->packed_.get()));
  model->adapters_ = weights.adapters();
  if (keeps_nothing) weights.keep_nothing(two_way);
  model->network_ = found.arch.build(config, weights);
  if (classifies)
    model->score_ = weights.linear("score", label_count(config), model->network_->facts().hidden, Bias::none);
  const WeightReport report = weights.report();
  refuse_unasked(report.unasked);
  for (const FusedAdapter& one : fuse) {
    refuse_unused(one.files);
    refuse_shared_tables(*model->adapters_, one.files);
    check_copies(*model->source_, one.files);
  }
  model->info_ = info_of(config, found, model->network_->facts(), report);
  if (keeps_nothing) {
    model->info_.encoder = true;
    if (classifies) model->info_.labels = label_count(config);
    if (!model->layout_.kv().empty() || !model->layout_.recurrent().empty())
      fail(ErrorKind::unsupported,
           "{}: models of the family {} give no embeddings or scores: their layers remember", config.where(),
           found.family);
  }
  if (model->packed_) model->packed_->store();
  return model;
}

}  // namespace

std::pair<array, array> Model::logits_and_hidden(Step&) {
  fail(ErrorKind::unsupported, "this model gives no hidden states beside its logits");
}

std::pair<array, array> Model::logits_and_layers(Step&, std::span<const int>) {
  fail(ErrorKind::unsupported, "this model does not show what its layers give");
}

std::shared_ptr<const Adapter> Model::adapter(const AdapterFiles& files) const {
  fail(ErrorKind::unsupported, "{}: this model takes no adapters", files.path().string());
}

array Model::scores(Step&) {
  fail(ErrorKind::unsupported, "{} has no classifier: it gives no scores", info().model_type);
}

const NamedArch& detect_arch(const Config& config) {
  auto type = config.get<std::string>("model_type");
  if (type == "phi" && config.has("num_local_experts")) type = "phixtral";
  for (const NamedArch& entry : arch_table())
    for (const auto& name : entry.arch.model_types)
      if (name == type) return entry;
  if (is_known_model_type(type)) {
    const std::string_view part = missing_part(type);
    fail(ErrorKind::unsupported, "model_type {} is known but not supported yet{}{}", type,
         part.empty() ? "" : ": ", part);
  }
  fail(ErrorKind::unsupported, "unknown model_type {}; `mlxcel arch` lists what is supported", type);
}

std::unique_ptr<Model> load_model(const Checkpoint& checkpoint, const LoadOptions& options) {
  LoadOptions own = options;
  own.keeps_nothing = own.keeps_nothing || is_embedder(checkpoint);
  // Adapters baked into the weights change them.
  std::unique_ptr<PackedCache> packed;
  if (!own.packed.folder.empty() && own.fuse.empty() && kernel_mode() == KernelMode::native)
    packed = std::make_unique<PackedCache>(own.packed, checkpoint.path, checkpoint.config.dump());
  const std::string trouble = packed ? packed->trouble() : std::string();
  auto model = build(checkpoint.config, checkpoint.source, own, std::move(packed));
  // GGUF files keep 16-bit values as f16 whatever the weights' own type.
  if (checkpoint.format == Checkpoint::Format::gguf) model->info_.checkpoint_dtype = mx::float16;
  model->info_.warnings.insert(model->info_.warnings.begin(), checkpoint.warnings.begin(),
                               checkpoint.warnings.end());
  if (!trouble.empty()) model->info_.warnings.push_back(trouble);
  return model;
}

std::unique_ptr<Model> build_model(const Config& config, std::shared_ptr<Source> source,
                                   const LoadOptions& options) {
  return build(config, std::move(source), options);
}

ModelPlan plan_model(const Config& config, std::shared_ptr<Source> source) {
  refuse_other_uses(config);
  const NamedArch& found = detect_arch(config);
  ModelPlan plan;
  const bool decoder = found.arch.kind == "decoder", classifies = decoder && is_classifier(config);
  const bool two_way = decoder && says_two_way(config);
  auto rules = with_root(*source);
  for (Rule& rule : found.arch.weights(config, *source)) rules.push_back(std::move(rule));
  for (const Rule& rule : rules) plan.rules.push_back(rule.describe());
  const auto weights = Weights::plan(apply_rules(std::move(source), rules), plan.layout);
  if (classifies || two_way) weights.keep_nothing(two_way);
  const auto network = found.arch.build(config, weights);
  if (classifies) weights.linear("score", label_count(config), network->facts().hidden, Bias::none);
  const WeightReport report = weights.report();
  refuse_unasked(report.unasked);
  plan.info = info_of(config, found, network->facts(), report);
  plan.tensors = report.asked;
  return plan;
}

std::vector<ArchEntry> architectures() {
  std::vector<ArchEntry> entries;
  for (const NamedArch& entry : arch_table())
    entries.push_back({.family = entry.family,
                       .model_types = entry.arch.model_types,
                       .gguf = entry.arch.gguf,
                       .kind = entry.arch.kind,
                       .reference = entry.arch.reference,
                       .tiny = entry.arch.tiny});
  return entries;
}

}  // namespace mlxcel
