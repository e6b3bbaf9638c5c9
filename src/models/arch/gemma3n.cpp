// Gemma 3n, text side: four streams of which one is computed and the others predicted and corrected (AltUp),
// a low-rank branch (LAuReL), inputs per layer, sparse early MLPs, late layers that read earlier keys.
// Reference: transformers Gemma3nForCausalLM.
#include <cmath>

#include "models/kit.h"
#include "nn/altup.h"
#include "nn/per_layer.h"
#include "nn/shared_attention.h"

namespace mlxcel {

namespace {

struct Layer {
  AltUpShape shape;
  AltUp altup;
  RmsNorm norm, after_attention, ffn_norm, after_ffn, after_laurel;
  Linear left, right;
  SharedAttention attention;
  SparseGatedMlp mlp;
  PerLayerInputs inputs;
  PerLayerGate gate;
  bool scales;
  int index;
  std::optional<StreamEnds> unfold, fold;  // of the first layer, of the last

  array operator()(const array& in, Step& step) const {
    if (unfold) inputs.begin(in, step);
    const int n = shape.streams, tokens = in.shape(0);
    const array predicted =
        altup.predict(unfold ? unfold->unfold(in) : mx::reshape(in, {tokens, n, shape.hidden}));
    const array active = stream_of(predicted, shape.active);
    const array x = norm(active);
    const array laurel = mx::add(x, after_laurel(right(left(x))));
    const array seen = mx::add(active, after_attention(attention(x, step)));
    const array h = mx::multiply(mx::add(seen, laurel), array(1.0f / std::sqrt(2.0f)));
    const array corrected = altup.correct(predicted, mx::add(h, after_ffn(mlp(ffn_norm(h)))));
    const array first = stream_of(corrected, shape.active);
    const array own = gate(scales ? mx::multiply(first, altup.scale()) : first, inputs.layer(index));
    // Every stream but the first takes it in.
    const array rest = mx::slice(corrected, {0, 1, 0}, {tokens, n, shape.hidden});
    const array out = mx::concatenate(
        {mx::slice(corrected, {0, 0, 0}, {tokens, 1, shape.hidden}), mx::add(rest, mx::expand_dims(own, 1))},
        1);
    return fold ? fold->fold(out)
                : mx::reshape(out, {tokens, n * shape.hidden});  // between layers: side by side
  }
};

/// One number for all layers, or a list.
std::vector<int> widths(const Config& c, int layers) {
  std::vector<int> list = c.is_array("intermediate_size")
                              ? c.get<std::vector<int>>("intermediate_size")
                              : std::vector<int>(static_cast<size_t>(layers),
                                                 c.integer("intermediate_size", 1, kMaxWidth, 16384));
  bool good = static_cast<int>(list.size()) == layers;
  for (const int n : list) good = good && n >= 1 && n <= kMaxWidth;
  if (!good)
    fail(ErrorKind::bad_checkpoint, "{}: intermediate_size: expected {} widths from 1 to {}", c.where(),
         layers, kMaxWidth);
  return list;
}

std::vector<float> sparsity(const Config& c, int layers) {
  std::vector<float> list(static_cast<size_t>(layers), 0.0f);
  if (!c.has("activation_sparsity_pattern")) {
    for (int i = 0; layers > 10 && i < 10; ++i) list[static_cast<size_t>(i)] = 0.95f;
    return list;
  }
  list = c.get<std::vector<float>>("activation_sparsity_pattern");
  bool good = static_cast<int>(list.size()) == layers;
  for (const float share : list) good = good && share >= 0.0f && share < 1.0f;
  if (!good)
    fail(ErrorKind::bad_checkpoint,
         "{}: activation_sparsity_pattern: expected {} numbers from 0 to less than 1", c.where(), layers);
  return list;
}

std::vector<bool> sliding_layers(const Config& c, int layers) {
  const auto kinds = listed_kinds(c, "layer_types", layers, {"sliding_attention", "full_attention"});
  std::vector<bool> sliding;
  for (int i = 0; i < layers; ++i)
    sliding.push_back(kinds.empty() ? (i + 1) % 5 != 0
                                    : kinds[static_cast<size_t>(i)] == "sliding_attention");
  return sliding;
}

Decoder build(const Config& whole, const Weights& w) {
  const Config c = text_config(whole);
  const auto d = Dims::from(c, {.kv_heads = 2, .head_dim = 256});
  const float eps = epsilon(c, "rms_norm_eps", 1e-6f);
  const auto activation = activation_from(c.get<std::string>("hidden_activation", "gelu_pytorch_tanh"));
  const AltUpShape shape{.hidden = d.hidden,
                         .streams = c.integer("altup_num_inputs", 2, 16, 4),
                         .active = c.integer("altup_active_idx", 0, 15, 0),
                         .eps = eps};
  if (shape.active >= shape.streams)
    fail(ErrorKind::bad_checkpoint, "{}: altup_active_idx {}: expected less than altup_num_inputs {}",
         c.where(), shape.active, shape.streams);
  const bool new_style = !c.child("rope_parameters").empty();
  const auto full = Rope::from(c, d, {.theta = 1000000.0f, .layer_type = "full_attention"});
  const auto local = new_style ? Rope::from(c, d, {.theta = 10000.0f, .layer_type = "sliding_attention"})
                               : Rope::plain(d.head_dim, c.get("rope_local_base_freq", 10000.0f));
  const auto sliding = sliding_layers(c, d.layers);
  const int window = c.integer("sliding_window", 1, kMaxPositions, 512);
  const int owners =
      d.layers - c.integer("num_kv_shared_layers", 0, d.layers - 1, std::min(15, d.layers - 1));
  const auto readers = sharing(c, sliding, owners);
  const auto mlp_widths = widths(c, d.layers);
  const auto sparse = sparsity(c, d.layers);
  const int input_width = c.integer("hidden_size_per_layer_input", 1, kMaxWidth, 256);
  const int rank = c.integer("laurel_rank", 1, kMaxWidth, 64);
  const PerLayerInputs inputs(w / "model",
                              {.hidden = d.hidden,
                               .layers = d.layers,
                               .width = input_width,
                               .vocab = c.integer("vocab_size_per_layer_input", 1, kMaxVocab, 262144),
                               .eps = eps});

  const auto ends = [&](const char* name) { return std::optional(StreamEnds(w / "model", name, shape)); };

  Decoder model(d, w.embedding("model.embed_tokens", d.vocab, d.hidden,
                               root_in_type(w, "model.embed_tokens.weight", d.hidden)));
  for (const auto& [i, layer] : w.layers("model.layers", d.layers)) {
    const bool slides = sliding[static_cast<size_t>(i)];
    const int width = mlp_widths[static_cast<size_t>(i)];
    const float share = sparse[static_cast<size_t>(i)];
    const auto norm = [&, &scope = layer](const char* name) { return scope.rms_norm(name, d.hidden, eps); };
    const Weights laurel = layer / "laurel";
    model.add(Layer{.shape = shape,
                    .altup = AltUp(layer / "altup", shape),
                    .norm = norm("input_layernorm"),
                    .after_attention = norm("post_attention_layernorm"),
                    .ffn_norm = norm("pre_feedforward_layernorm"),
                    .after_ffn = norm("post_feedforward_layernorm"),
                    .after_laurel = laurel.rms_norm("post_laurel_norm", d.hidden, eps),
                    .left = laurel.linear("linear_left", rank, d.hidden, Bias::none),
                    .right = laurel.linear("linear_right", d.hidden, rank, Bias::none),
                    .attention = SharedAttention(layer / "self_attn", d,
                                                 {.rope = slides ? local : full,
                                                  .eps = eps,
                                                  .window = slides ? window : 0,
                                                  .owner = i < owners,
                                                  .keys = readers.of(i),
                                                  .bias = bias_if(c.get("attention_bias", false))}),
                    .mlp = SparseGatedMlp(layer / "mlp", d.hidden, width, activation, share),
                    .inputs = inputs,
                    .gate = PerLayerGate(layer, d.hidden, input_width, activation, eps),
                    .scales = c.get("altup_correct_scale", true),
                    .index = i,
                    .unfold = i == 0 ? ends("altup_projections") : std::nullopt,
                    .fold = i + 1 == d.layers ? ends("altup_unembed_projections") : std::nullopt});
  }
  model.finish(w.rms_norm("model.norm", d.hidden, eps),
               make_head(w, "lm_head", "model.embed_tokens", model.embedding(),
                         tie_if(c.get("tie_word_embeddings", true))));
  model.softcap(c.get("final_logit_softcapping", 30.0f));
  return model;
}

std::vector<Rule> weights(const Config& whole, const Source&) {
  auto rules = text_side_rules();
  // GGUF files hold the streams' projections as one.
  const int others = text_config(whole).integer("altup_num_inputs", 2, 16, 4) - 1;
  for (const char* name : {"model.altup_projections", "model.altup_unembed_projections"}) {
    std::vector<std::string> parts;
    for (int i = 0; i < others; ++i) parts.push_back(fmt::format("{}.{}.weight", name, i));
    rules.push_back(split(fmt::format("{}.weight", name), parts));
  }
  return rules;
}

}  // namespace

Arch arch_gemma3n() {
  return {
      .model_types = {"gemma3n_text", "gemma3n"},
      .gguf = {"gemma3n"},
      .reference = "transformers Gemma3nForCausalLM",
      .build = build,
      .weights = weights,
      .tiny =
          R"({"model_type": "gemma3n_text", "vocab_size": 256, "hidden_size": 64, "intermediate_size": [128, 64, 128, 64],
              "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
              "hidden_activation": "gelu_pytorch_tanh", "max_position_embeddings": 512, "rms_norm_eps": 1e-6,
              "rope_theta": 10000.0, "rope_local_base_freq": 1000.0, "attention_bias": true, "sliding_window": 8,
              "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
              "num_kv_shared_layers": 2, "hidden_size_per_layer_input": 64, "vocab_size_per_layer_input": 240,
              "altup_num_inputs": 3, "altup_active_idx": 1, "altup_correct_scale": true, "laurel_rank": 64,
              "activation_sparsity_pattern": [0.8, 0.0, 0.6, 0.0], "final_logit_softcapping": 5.0,
              "tie_word_embeddings": true})"};
}

}  // namespace mlxcel
