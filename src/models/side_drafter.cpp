#include "models/side_drafter.h"

#include <algorithm>

#include "base/error.h"
#include "checkpoint/rules.h"
#include "models/arch.h"
#include "models/dflash.h"
#include "nn/dims.h"

namespace mlxcel {
namespace {

const NamedArch* arch_of_drafter(const Config& config) {
  const auto type = config.get<std::string>("model_type", "");
  for (const NamedArch& entry : arch_table())
    if (const auto& known = entry.arch.mtp.drafters;
        std::find(known.begin(), known.end(), type) != known.end())
      return &entry;
  return nullptr;
}

}  // namespace

const char* to_string(DrafterKind kind) {
  switch (kind) {
    case DrafterKind::model:
      return "draft";
    case DrafterKind::mtp:
      return "mtp";
    case DrafterKind::dflash:
      return "dflash";
  }
  return "";
}

DrafterKind drafter_kind(const Config& config) {
  if (is_dflash(config)) return DrafterKind::dflash;
  return is_assistant(config) || arch_of_drafter(config) != nullptr ? DrafterKind::mtp : DrafterKind::model;
}

MtpHead::Shared own_or(MtpHead::Shared target, const Weights& weights) {
  const Weights own = weights / "mtp";
  const int vocab = target.embedding.rows, hidden = target.embedding.width;
  if (own.has("embed_tokens.weight"))
    target.embedding = own.embedding("embed_tokens", vocab, hidden, target.embedding.scale);
  if (own.has("shared_head.head.weight"))
    target.head = own.linear("shared_head.head", vocab, hidden, Bias::none);
  return target;
}

SideMtp load_mtp(const Config& config, std::shared_ptr<Source> source, const Model& target) {
  if (is_assistant(config))
    return {.block = nullptr, .assistant = AssistantHead::load(config, std::move(source), target)};
  const NamedArch* found = arch_of_drafter(config);
  if (found == nullptr)
    fail(ErrorKind::unsupported, "{}: model_type {} is no drafter of the kind mtp that is known here",
         config.where(), config.get<std::string>("model_type", "?"));
  const ModelInfo& info = target.info();
  if (target.table() == nullptr || target.head() == nullptr)
    fail(ErrorKind::unsupported, "{}: {} has no embedding and head that a drafter could use", config.where(),
         info.model_type);
  const MtpArch& arch = found->arch.mtp;
  const Config inside = config.child("text_config");
  const Config& sizes = inside.empty() ? config : inside;
  if (const int hidden = sizes.integer("hidden_size", 1, kMaxWidth); hidden != info.hidden)
    fail(ErrorKind::unsupported, "{}: hidden_size: drafts for a width of {}, the target has {}",
         config.where(), hidden, info.hidden);
  if (const int vocab = sizes.integer("vocab_size", 1, kMaxVocab); vocab != info.vocab_size)
    fail(ErrorKind::unsupported, "{}: vocab_size: drafts for {} tokens, the target has {}", config.where(),
         vocab, info.vocab_size);
  StateLayout layout;
  const auto rules = arch.drafter_weights(sizes, *source);
  const auto weights = Weights::load(apply_rules(std::move(source), rules), layout);
  MtpBlock block = arch.build(sizes, weights);
  MtpHead::Shared shared = own_or({*target.table(), *target.head()}, weights);
  const auto unasked = weights.report().unasked;
  if (!unasked.empty())
    fail(ErrorKind::bad_checkpoint, "{}: {}: a tensor that such a drafter does not have", config.where(),
         unasked.front());
  return {.block = std::make_shared<const MtpHead>(std::move(layout), std::move(block), std::move(shared)),
          .assistant = nullptr};
}

}  // namespace mlxcel
