#include "models/assistant.h"

#include <algorithm>

#include "base/error.h"
#include "checkpoint/rules.h"
#include "models/decoder.h"
#include "models/gemma4.h"
#include "nn/mlp.h"
#include "nn/rope.h"
#include "state/attend.h"

namespace mlxcel {
namespace {

/// Queries of their own over keys and values that the target wrote.
struct BorrowedAttention {
  Linear query, out;
  RmsNorm query_norm;
  Rope rope;
  int slot = 0, heads = 0, kv_heads = 0, dim = 0;

  array operator()(const array& x, Step& step) const {
    const int rows = x.shape(0);
    const array q = rope(query_norm(mx::reshape(query(x), {rows, heads, dim})), step);
    const array none = mx::zeros({rows, kv_heads, dim}, mx::float32);
    const auto [seen, level] = attend_level(q, none, none, step, slot, {.scale = 1.0f, .sinks = {}});
    // The token at hand is no key: a key and a value of zeros added e^0 to the sum and nothing to the rest.
    const array share = mx::divide(array(-1.0f), mx::expm1(mx::negative(level)));
    const array whole = mx::multiply(mx::reshape(seen, {rows, heads, dim}), mx::expand_dims(share, -1));
    return out(mx::reshape(whole, {rows, heads * dim}));
  }
};

struct AssistantLayer {
  RmsNorm norm, after_attention, ffn_norm, after_ffn;
  BorrowedAttention attention;
  GatedMlp mlp;
  array scalar;  // [1]

  array operator()(const array& in, Step& step) const {
    const array seen = mx::add(in, after_attention(attention(norm(in), step)));
    return mx::multiply(mx::add(seen, after_ffn(mlp(ffn_norm(seen)))), scalar);
  }
};

/// The target's last slot of a kind, whose heads must be those that the layer asks for.
int slot_of(const Config& c, const Model& target, bool sliding, const Dims& dims) {
  const auto& specs = target.layout().kv();
  int slot = -1;
  for (size_t i = 0; i < specs.size(); ++i)
    if ((specs[i].window > 0) == sliding) slot = static_cast<int>(i);
  const char* const kind = sliding ? "sliding" : "full";
  if (slot < 0)
    fail(ErrorKind::unsupported, "{}: it reads the keys of {} layers, of which the target has none",
         c.where(), kind);
  const KvSpec& spec = specs[static_cast<size_t>(slot)];
  if (spec.key_dim != dims.head_dim || spec.value_dim != dims.head_dim || dims.heads % spec.kv_heads != 0)
    fail(ErrorKind::unsupported,
         "{}: {} layers: {} heads of {} do not fit the target's {} heads of {} and {} of keys and values",
         c.where(), kind, dims.heads, dims.head_dim, spec.kv_heads, spec.key_dim, spec.value_dim);
  return slot;
}

BorrowedAttention attention_of(const Config& c, const Weights& w, const Model& target, bool sliding,
                               const Gemma4Heads& kinds, float eps) {
  const Dims& d = kinds.dims(sliding);
  const Bias bias = c.get("attention_bias", false) ? Bias::required : Bias::none;
  for (const char* unused : {"k_proj.weight", "v_proj.weight", "k_norm.weight", "v_norm.weight"})
    if (w.has(unused)) w.leave_out(unused);
  const int slot = slot_of(c, target, sliding, d);
  return {.query = w.linear("q_proj", d.heads * d.head_dim, d.hidden, bias),
          .out = w.linear("o_proj", d.hidden, d.heads * d.head_dim, bias),
          .query_norm = w.rms_norm("q_norm", d.head_dim, eps),
          .rope = kinds.rope(sliding),
          .slot = slot,
          .heads = d.heads,
          .kv_heads = target.layout().kv()[static_cast<size_t>(slot)].kv_heads,
          .dim = d.head_dim};
}

}  // namespace

bool is_assistant(const Config& config) {
  const auto type = config.get<std::string>("model_type", "");
  return type == "gemma4_assistant" || type == "gemma4_unified_assistant";
}

std::shared_ptr<const AssistantHead> AssistantHead::load(const Config& config, std::shared_ptr<Source> source,
                                                         const Model& target) {
  const ModelInfo& info = target.info();
  if (target.table() == nullptr)
    fail(ErrorKind::unsupported, "{}: {} has no embedding that a drafter could use", config.where(),
         info.model_type);
  const Config c = config.child("text_config");
  if (c.empty())
    fail(ErrorKind::bad_checkpoint, "{}: text_config: expected the assistant's own sizes", config.where());
  if (const int width = config.integer("backbone_hidden_size", 1, kMaxWidth, 1536); width != info.hidden)
    fail(ErrorKind::unsupported, "{}: backbone_hidden_size: drafts for a width of {}, the target has {}",
         config.where(), width, info.hidden);
  const auto kinds = gemma4_heads(c, c.get("attention_k_eq_v", false));
  const Dims& d = kinds.sliding;
  if (d.vocab != info.vocab_size)
    fail(ErrorKind::unsupported, "{}: vocab_size: drafts for {} tokens, the target has {}", config.where(),
         d.vocab, info.vocab_size);
  for (const char* key : {"enable_moe_block", "use_double_wide_mlp"})
    if (c.get(key, false))
      fail(ErrorKind::unsupported, "{}: {}: expected false in an assistant", c.where(), key);
  if (const int inputs = c.integer("hidden_size_per_layer_input", 0, kMaxWidth, 0); inputs > 0)
    fail(ErrorKind::unsupported, "{}: hidden_size_per_layer_input: expected 0 in an assistant, found {}",
         c.where(), inputs);

  const float eps = epsilon(c, "rms_norm_eps", 1e-6f);
  const int inner = c.integer("intermediate_size", 1, kMaxWidth);
  const auto activation = activation_from(c.get<std::string>("hidden_activation", "gelu_pytorch_tanh"));
  const auto sliding = gemma4_sliding(c, d.layers);
  StateLayout nothing;
  const auto w = Weights::load(std::move(source), nothing);
  std::shared_ptr<AssistantHead> head(new AssistantHead);
  head->table_ = *target.table();
  head->before_ = w.linear("pre_projection", d.hidden, 2 * info.hidden, Bias::none);
  head->after_ = w.linear("post_projection", info.hidden, d.hidden, Bias::none);
  for (const auto& [i, layer] : w.layers("model.layers", d.layers)) {
    const auto norm = [&, &scope = layer](const char* name) { return scope.rms_norm(name, d.hidden, eps); };
    head->layers_.emplace_back(AssistantLayer{
        .norm = norm("input_layernorm"),
        .after_attention = norm("post_attention_layernorm"),
        .ffn_norm = norm("pre_feedforward_layernorm"),
        .after_ffn = norm("post_feedforward_layernorm"),
        .attention =
            attention_of(c, layer / "self_attn", target, sliding[static_cast<size_t>(i)], kinds, eps),
        .mlp = GatedMlp(layer / "mlp", d.hidden, inner, activation, Bias::none),
        .scalar = layer.tensor("layer_scalar", {1})});
  }
  head->norm_.emplace(w.rms_norm("model.norm", d.hidden, eps));
  head->own_table_ = w.embedding("model.embed_tokens", d.vocab, d.hidden);
  head->head_ = make_head(w, "lm_head", "model.embed_tokens", head->own_table_,
                          config.get("tie_word_embeddings", true) ? Tie::yes : Tie::no);
  if (config.get("use_ordered_embeddings", false)) {
    const int groups = config.integer("num_centroids", 1, d.vocab, 2048);
    if (d.vocab % groups != 0)
      fail(ErrorKind::bad_checkpoint, "{}: num_centroids {}: expected a divisor of {} tokens", config.where(),
           groups, d.vocab);
    const array order = w.integers("masked_embedding.token_ordering", {d.vocab}, d.vocab);
    head->groups_.emplace(
        Groups{.centres = w.linear("masked_embedding.centroids", groups, d.hidden, Bias::none),
               .order = mx::reshape(order, {groups, d.vocab / groups}),
               .looked_at = config.integer("centroid_intermediate_top_k", 1, groups, std::min(32, groups))});
  }
  const auto unasked = w.report().unasked;
  if (!unasked.empty())
    fail(ErrorKind::bad_checkpoint, "{}: {}: a tensor that such a drafter does not have", config.where(),
         unasked.front());
  return head;
}

array AssistantHead::logits(const array& x) const {
  if (!groups_) return head_(x);
  // Tokens of the groups at hand; all others are less likely than any of these.
  const int rows = x.shape(0), hidden = x.shape(1), groups = groups_->order.shape(0);
  const array ranked = mx::argpartition(groups_->centres(x), groups - groups_->looked_at, -1);
  const array best = mx::slice(ranked, {0, groups - groups_->looked_at}, {rows, groups});
  const array tokens = mx::reshape(mx::take(groups_->order, best, 0), {rows, -1});
  const array table = kernels::take_rows(own_table_.table, mx::reshape(tokens, {-1}));
  const array scores =
      mx::sum(mx::multiply(mx::reshape(table, {rows, tokens.shape(1), hidden}), mx::expand_dims(x, 1)), -1);
  const array less = mx::subtract(mx::min(scores, -1, true), array(1.0f));
  return mx::put_along_axis(mx::contiguous(mx::broadcast_to(less, {rows, vocab()})), tokens, scores, 1);
}

std::pair<array, array> AssistantHead::operator()(Step& step, const array& states) const {
  array h = before_(mx::concatenate({table_(step), states}, 1));
  for (const Block& layer : layers_) h = layer(h, step);
  const array normed = (*norm_)(h);
  return {logits(normed), after_(normed)};
}

}  // namespace mlxcel
