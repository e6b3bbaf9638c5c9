#include "models/dflash.h"

#include <mlx/transforms.h>

#include <algorithm>

#include "base/error.h"
#include "checkpoint/rules.h"
#include "nn/attention.h"
#include "nn/mlp.h"
#include "nn/rope.h"

namespace mlxcel {
namespace {

constexpr const char* kMuse = "muse_glimmer_assistant";
constexpr int kWholeBlock = 1 << 20;  // all tokens of a step see each other

std::vector<std::string> architectures_of(const Config& c) {
  return c.get<std::vector<std::string>>("architectures", {});
}

bool names_one(const Config& c, std::string_view part) {
  const auto names = architectures_of(c);
  return std::any_of(names.begin(), names.end(),
                     [&](const auto& name) { return name.find(part) != std::string::npos; });
}

/// "dflash_config", whose keys may stand outside too.
Config inner(const Config& c) {
  if (c.child("dflash_config").empty()) return c;
  return c.child("dflash_config",
                 {"target_layer_ids", "mask_token_id", "block_size", "num_target_layers", "markov_rank",
                  "causal", "projector_type", "markov_head_type", "dspark_bonus_anchor", "sliding_window"});
}

DflashHead::Form read_form(const Config& c, const Config& d, const Model& target) {
  const ModelInfo& info = target.info();
  DflashHead::Form form;
  form.layers = d.get<std::vector<int>>("target_layer_ids");
  if (form.layers.empty() || !std::is_sorted(form.layers.begin(), form.layers.end(), std::less_equal<>()) ||
      form.layers.back() >= info.layers)
    fail(ErrorKind::bad_checkpoint,
         "{}: target_layer_ids: expected some of the target's layers 0 to {}, ascending", c.where(),
         info.layers - 1);
  if (const int layers = d.integer("num_target_layers", 1, kMaxLayers, info.layers); layers != info.layers)
    fail(ErrorKind::unsupported, "{}: num_target_layers: drafts for {} layers, the target has {}", c.where(),
         layers, info.layers);
  if (const int hidden = c.integer("hidden_size", 1, kMaxWidth); hidden != info.hidden)
    fail(ErrorKind::unsupported, "{}: hidden_size: drafts for a width of {}, the target has {}", c.where(),
         hidden, info.hidden);
  if (const int vocab = c.integer("vocab_size", 1, kMaxVocab, info.vocab_size); vocab != info.vocab_size)
    fail(ErrorKind::unsupported, "{}: vocab_size: drafts for {} tokens, the target has {}", c.where(), vocab,
         info.vocab_size);
  form.mask = d.integer("mask_token_id", 0, info.vocab_size - 1);
  const bool dspark = d.get<std::string>("projector_type", "") == "dspark" || names_one(c, "DSpark");
  form.in_place = !dspark;
  const int block = d.integer("block_size", dspark ? 1 : 2, DflashHead::kMostProposals + 1, 16);
  form.proposals = dspark && !d.get("dspark_bonus_anchor", false) ? block : block - 1;
  if (form.proposals < 1 || form.proposals > DflashHead::kMostProposals)
    fail(ErrorKind::bad_checkpoint, "{}: block_size {}: expected drafts of 1 to {} tokens", c.where(), block,
         DflashHead::kMostProposals);
  return form;
}

std::vector<Rule> rules() {
  return {rename("model.*", "*"), rename("encoder.fc.*", "fc.*"),
          rename("encoder.output_norm_enc.*", "hidden_norm.*"),
          // The target's are used; how sure the drafter is shows in the target's own answer.
          drop("embed_tokens.*"), drop("lm_head.*"), drop("confidence_head.*"),
          drop("*.rotary_emb.inv_freq")};
}

/// How far back a layer sees; 0: everything.
int window_of(const Config& c, const Config& d, int layer, int layers, bool muse) {
  const auto types = c.get<std::vector<std::string>>("layer_types", {});
  if (!types.empty() && static_cast<int>(types.size()) != layers)
    fail(ErrorKind::bad_checkpoint, "{}: layer_types: expected one for each of {} layers, found {}",
         c.where(), layers, types.size());
  const bool sliding = types.empty() ? muse : types[static_cast<size_t>(layer)] == "sliding_attention";
  if (!sliding) return 0;
  const int window = d.integer("sliding_window", 1, kMaxPositions);
  return muse ? window + 1 : window;  // Muse's sees keys exactly so far away
}

}  // namespace

bool is_dflash(const Config& config) {
  return !config.child("dflash_config").empty() || names_one(config, "DFlash") ||
         names_one(config, "DSpark") || config.get<std::string>("model_type", "") == kMuse;
}

std::shared_ptr<const DflashHead> DflashHead::load(const Config& c, std::shared_ptr<Source> source,
                                                   const Model& target) {
  if (target.table() == nullptr || target.head() == nullptr)
    fail(ErrorKind::unsupported, "{}: {} has no embedding and head that a drafter could use", c.where(),
         target.info().model_type);
  if (names_one(c, "DFlash2"))
    fail(ErrorKind::unsupported, "{}: drafters of the second DFlash form are not supported", c.where());
  const Config d = inner(c);
  if (const auto kind = d.get<std::string>("markov_head_type", "vanilla"); kind != "vanilla")
    fail(ErrorKind::unsupported, "{}: markov_head_type: expected vanilla, found {}", c.where(), kind);
  std::shared_ptr<DflashHead> head(new DflashHead);
  head->form_ = read_form(c, d, target);
  head->embedding_ = *target.table();
  head->head_ = *target.head();
  const bool muse = c.get<std::string>("model_type", "") == kMuse;
  const bool laguna = c.get<std::string>("model_type", "") == "laguna";
  const bool causal = d.get("causal", laguna);

  const auto w = Weights::load(apply_rules(std::move(source), rules()), head->layout_);
  const Dims dims = Dims::from(c);
  const float eps = epsilon(c, "rms_norm_eps", 1e-6f);
  const auto rope = Rope::from(c, dims);
  if (w.has("aux_hidden_norms.0.weight"))
    for (size_t i = 0; i < head->form_.layers.size(); ++i)
      head->tap_norms_.emplace_back(w.rms_norm(fmt::format("aux_hidden_norms.{}", i), dims.hidden, eps));
  head->join_ = w.linear("fc", dims.hidden, head->width(), Bias::none);
  head->joined_norm_.emplace(w.rms_norm("hidden_norm", dims.hidden, eps));
  for (const auto& [i, layer] : w.layers("layers", dims.layers)) {
    AttentionOptions attention{.rope = rope,
                               .qk_norm = HeadNormOptions{.eps = eps},
                               .window = window_of(c, d, i, dims.layers, muse),
                               .block = causal ? 0 : kWholeBlock};
    if (layer.has("self_attn.g_proj.weight"))
      attention.gate = OutputGate{.name = "g_proj", .per_head = true, .softplus = true};
    if (layer.has("self_attn.qkv_proj.weight")) attention.fused = "qkv_proj";
    head->layers_.push_back(PreNorm{.mixer_norm = layer.rms_norm("input_layernorm", dims.hidden, eps),
                                    .mixer = Attention(layer / "self_attn", dims, attention),
                                    .ffn_norm = layer.rms_norm("post_attention_layernorm", dims.hidden, eps),
                                    .ffn = GatedMlp::from(c, layer / "mlp", dims.hidden)});
  }
  head->norm_.emplace(w.rms_norm("norm", dims.hidden, eps));
  if (const int rank = d.integer("markov_rank", 0, kMaxWidth, 0); rank > 0)
    head->markov_.emplace(Markov{w.embedding("markov_head.markov_w1", dims.vocab, rank),
                                 w.linear("markov_head.markov_w2", dims.vocab, rank, Bias::none)});
  const auto unasked = w.report().unasked;
  if (!unasked.empty())
    fail(ErrorKind::bad_checkpoint, "{}: {}: a tensor that such a drafter does not have", c.where(),
         unasked.front());
  return head;
}

array DflashHead::remember(Step& step, const array& states) const {
  array taps = states;
  if (!tap_norms_.empty()) {
    auto parts = mx::split(states, static_cast<int>(tap_norms_.size()), 1);
    for (size_t i = 0; i < parts.size(); ++i) parts[i] = tap_norms_[i](parts[i]);
    taps = mx::concatenate(parts, 1);
  }
  const array context = (*joined_norm_)(join_(taps));
  // The layers' keys and values of these tokens follow from the context alone; what attention makes of them
  // is nobody's input, and a row of it pulls the append.
  std::vector<array> pulled;
  for (const PreNorm& layer : layers_)
    pulled.push_back(mx::slice(layer.mixer(context, step), {0, 0}, {1, context.shape(1)}));
  return mx::concatenate(pulled, 0);
}

array DflashHead::guess(Step& step) const {
  array h = embedding_(step);
  for (const PreNorm& layer : layers_) h = layer(h, step);
  return head_((*norm_)(h));
}

std::span<const float> DflashHead::corrected(std::span<const float> logits, int32_t before) const {
  if (!markov_) return {};
  const array seen = markov_->out(kernels::take_rows(markov_->in.table, array({before}, mx::int32)));
  const array own(logits.data(), {1, static_cast<int>(logits.size())}, mx::float32);
  corrected_.emplace(mx::contiguous(mx::add(own, mx::astype(seen, mx::float32))));
  corrected_->eval();
  return {corrected_->data<float>(), corrected_->size()};
}

}  // namespace mlxcel
