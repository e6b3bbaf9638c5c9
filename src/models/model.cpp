#include "models/model.h"

#include <algorithm>

#include "base/error.h"
#include "models/arch.h"

namespace mlxcel {

namespace {

constexpr size_t kNamesInMessage = 8;

class LoadedModel : public Model {
 public:
  ModelInfo info_;
  StateLayout layout_;
  std::unique_ptr<Skeleton> network_;

  const ModelInfo& info() const override { return info_; }
  const StateLayout& layout() const override { return layout_; }
  array logits(Step& step) override { return network_->logits(step); }
  array hidden(Step& step) override { return network_->hidden(step); }
};

void refuse_unasked(const std::vector<std::string>& names) {
  if (names.empty()) return;
  std::string list;
  for (size_t i = 0; i < std::min(names.size(), kNamesInMessage); ++i) list += (i ? ", " : "") + names[i];
  if (names.size() > kNamesInMessage) list += fmt::format(" and {} more", names.size() - kNamesInMessage);
  fail(ErrorKind::bad_checkpoint, "the checkpoint has {} {} that this architecture does not use: {}",
       names.size(), names.size() == 1 ? "tensor" : "tensors", list);
}

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
          .checkpoint_dtype = report.dtype,
          .weight_bytes = report.bytes_held,
          .parameters = report.parameters,
          .warnings = report.warnings,
          .diffusion = facts.diffusion};
}

/// Heads other than a language model's (rerankers) and drafters are named before their tensors confuse.
void refuse_other_uses(const Config& config) {
  for (const auto& name : config.get<std::vector<std::string>>("architectures", {})) {
    if (name == "DFlashDraftModel")
      fail(ErrorKind::unsupported, "{}: this is a DFlash drafter; it runs beside a target model, not alone",
           config.where());
    if (name.ends_with("ForSequenceClassification"))
      fail(ErrorKind::unsupported, "{}: architecture {} is known but not supported yet", config.where(),
           name);
  }
  if (!config.child("dflash_config").empty())
    fail(ErrorKind::unsupported, "{}: this is a DFlash drafter; it runs beside a target model, not alone",
         config.where());
}

std::unique_ptr<LoadedModel> build(const Config& config, std::shared_ptr<Source> source,
                                   const LoadOptions& options) {
  refuse_other_uses(config);
  const NamedArch& found = detect_arch(config);
  auto model = std::make_unique<LoadedModel>();
  const auto rules = found.arch.weights(config, *source);
  const auto weights = Weights::load(apply_rules(std::move(source), rules), model->layout_, options.progress);
  model->network_ = found.arch.build(config, weights);
  const WeightReport report = weights.report();
  refuse_unasked(report.unasked);
  model->info_ = info_of(config, found, model->network_->facts(), report);
  return model;
}

}  // namespace

const NamedArch& detect_arch(const Config& config) {
  const auto type = config.get<std::string>("model_type");
  for (const NamedArch& entry : arch_table())
    for (const auto& name : entry.arch.model_types)
      if (name == type) return entry;
  if (is_known_model_type(type))
    fail(ErrorKind::unsupported, "model_type {} is known but not supported yet", type);
  fail(ErrorKind::unsupported, "unknown model_type {}; `mlxcel arch` lists what is supported", type);
}

std::unique_ptr<Model> load_model(const Checkpoint& checkpoint, const LoadOptions& options) {
  auto model = build(checkpoint.config, checkpoint.source, options);
  // GGUF files keep 16-bit values as f16 whatever the weights' own type.
  if (checkpoint.format == Checkpoint::Format::gguf) model->info_.checkpoint_dtype = mx::float16;
  model->info_.warnings.insert(model->info_.warnings.begin(), checkpoint.warnings.begin(),
                               checkpoint.warnings.end());
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
  const auto rules = found.arch.weights(config, *source);
  for (const Rule& rule : rules) plan.rules.push_back(rule.describe());
  const auto weights = Weights::plan(apply_rules(std::move(source), rules), plan.layout);
  const auto network = found.arch.build(config, weights);
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
