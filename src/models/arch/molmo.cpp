// Molmo, Molmo 2 and MolmoPoint: the text side, in the layout of OLMo's trainer. Norms stand before or behind
// their parts; those of q and k go over each head or over the width; Molmo 2 may scale the rotation of some
// layers only. Reference: transformers Molmo2ForConditionalGeneration; the publisher's modeling_molmo;
// mlx-vlm molmo_point.
#include <set>

#include "models/kit.h"

namespace mlxcel {

namespace {

struct Form {
  bool norm_after = false;
  std::optional<HeadNormOptions::Over> qk_norm = {};
  int width = 0;
  Bias bias = Bias::none;
  float eps = 0.0f;
};

Form form(const Config& c, bool second) {
  Form f{.norm_after = c.get("norm_after", false),
         .eps = epsilon(c, "layer_norm_eps", second ? 1e-6f : 1e-5f)};
  if (c.has("rms_norm_eps")) f.eps = epsilon(c, "rms_norm_eps", f.eps);
  f.bias = c.get("attention_bias", c.get("qkv_bias", !second)) ? Bias::required : Bias::none;
  f.width = c.integer("intermediate_size", 2, kMaxWidth);
  if (second) {
    const auto kind = c.get<std::string>("qk_norm_type", "qwen3");
    if (kind != "qwen3" && kind != "olmo")
      fail(ErrorKind::unsupported, "{}: qk_norm_type \"{}\": expected qwen3 or olmo", c.where(), kind);
    f.qk_norm = kind == "olmo" ? HeadNormOptions::Over::width : HeadNormOptions::Over::head;
    return f;
  }
  if (c.has("moe_num_experts") || c.get<std::string>("layer_norm_type", "rms") != "rms" || c.has("clip_qkv"))
    fail(ErrorKind::unsupported, "{}: expected a dense Molmo with RMS norms and without clip_qkv", c.where());
  if (f.width % 2 != 0)
    fail(ErrorKind::bad_checkpoint, "{}: intermediate_size {}: expected an even number (gate and up)",
         c.where(), f.width);
  f.width /= 2;  // of the first Molmo both halves are counted
  if (c.get("attention_layer_norm", false)) f.qk_norm = HeadNormOptions::Over::width;
  return f;
}

/// Layers that rope_scaling_layers leaves out rotate without scaling.
std::function<Rope(int)> rotations(const Config& c, const Dims& d) {
  const auto scaled = Rope::from(c, d);
  if (!c.is_array("rope_scaling_layers")) return [scaled](int) { return scaled; };
  const auto list = c.get<std::vector<int>>("rope_scaling_layers");
  for (const int i : list)
    if (i < 0 || i >= d.layers)
      fail(ErrorKind::bad_checkpoint, "{}: rope_scaling_layers: {}: expected 0 to {}", c.where(), i,
           d.layers - 1);
  const Config parameters = c.child("rope_parameters");
  const float theta = parameters.get("rope_theta", c.get("rope_theta", 10000.0f));
  return [scaled, plain = Rope::plain(d.head_dim, theta), chosen = std::set<int>(list.begin(), list.end())](
             int i) { return chosen.contains(i) ? scaled : plain; };
}

Decoder build(const Config& whole, const Weights& w) {
  const bool second = whole.get<std::string>("model_type", "") != "molmo";
  const Config c = text_config(whole);
  const auto d = Dims::from(c);
  const Form f = form(c, second);
  const auto norm = rms_norms(d.hidden, f.eps);
  const auto rope = rotations(c, d);
  const auto activation = activation_from(c, "hidden_act", "silu");
  if (whole.has("vit_config") || whole.has("vision_config"))
    w.warn("the text side alone is served: the vision tower is left out, images are refused");
  const bool tied = whole.get("tie_word_embeddings", c.get("weight_tying", false));
  return standard_decoder(w, d, norm, {.tie = tie_if(tied)}, [&](int i, const Weights& layer) -> Block {
    std::optional<HeadNormOptions> qk_norm;
    if (f.qk_norm) qk_norm = HeadNormOptions{.eps = f.eps, .over = *f.qk_norm};
    Attention mixer(layer / "self_attn", d,
                    {.rope = rope(i), .qk_norm = qk_norm, .qkv_bias = f.bias, .out_bias = Bias::none});
    GatedMlp ffn(layer / "mlp", d.hidden, f.width, activation, Bias::none);
    auto first = norm(layer, "input_layernorm"), then = norm(layer, "post_attention_layernorm");
    if (f.norm_after) return NormAfter{.mixer = mixer, .after_mixer = first, .ffn = ffn, .after_ffn = then};
    return PreNorm{.mixer_norm = first, .mixer = mixer, .ffn_norm = then, .ffn = ffn};
  });
}

/// The trainer's names as Llama's. Rows of the table behind the vocabulary stand for images.
std::vector<Rule> weights(const Config& whole, const Source& source) {
  const Config c = text_config(whole);
  const auto d = Dims::from(c);
  const int q = d.heads * d.head_dim, kv = d.kv_heads * d.head_dim;
  const int images = c.integer("additional_vocab_size", 0, kMaxVocab, 128);
  auto rules =
      std::vector<Rule>{drop("model.vision_backbone.*"),
                        drop("vision_backbone.*"),
                        drop("vision_model.*"),
                        drop("*build_vit_embedding.*"),
                        drop("*point_predictor.*"),
                        drop("model.vit.*"),
                        drop("model.connector.*"),
                        rename("lm.model.*", "transformer.*"),
                        rename("lm.lm_head.*", "lm_head.*"),
                        rename("lm_head.output_embeddings", "lm_head.weight"),
                        drop("lm_head.new_output_embeddings"),  // answers that are places in an image
                        rename("model.transformer.*", "transformer.*"),
                        drop("transformer.wte.new_embedding"),
                        rename("transformer.wte.embedding", "model.embed_tokens.weight"),
                        rename("transformer.ln_f.*", "model.norm.*"),
                        rename("transformer.ff_out.*", "lm_head.*"),
                        rename("transformer.blocks.*", "model.layers.*"),
                        rename("model.layers.#.att_proj.*", "model.layers.#.self_attn.att_proj.*"),
                        rename("model.layers.#.attn_out.*", "model.layers.#.self_attn.attn_out.*"),
                        rename("model.layers.#.q_norm.*", "model.layers.#.self_attn.q_norm.*"),
                        rename("model.layers.#.k_norm.*", "model.layers.#.self_attn.k_norm.*"),
                        rename("model.layers.#.ff_proj.*", "model.layers.#.mlp.ff_proj.*"),
                        rename("model.layers.#.ff_out.*", "model.layers.#.mlp.ff_out.*"),
                        rename("*.self_attn.attn_out.*", "*.self_attn.o_proj.*"),
                        rename("*.mlp.ff_out.*", "*.mlp.down_proj.*"),
                        rename("model.layers.#.attn_norm.*", "model.layers.#.input_layernorm.*"),
                        rename("model.layers.#.ff_norm.*", "model.layers.#.post_attention_layernorm.*"),
                        split("*.mlp.ff_proj.weight", {"*.mlp.up_proj.weight", "*.mlp.gate_proj.weight"})};
  for (const char* kind : {"weight", "bias"}) {
    const auto part = [&](const char* name) { return fmt::format("*.self_attn.{}_proj.{}", name, kind); };
    rules.push_back(split(part("att"), {part("q"), part("k"), part("v")}, {q, kv, kv}));
  }
  rules = rules + text_side_rules();
  for (const char* name : {"model.embed_tokens.weight", "model.language_model.embed_tokens.weight"})
    if (const auto found = source.find(name);
        found && images > 0 && !found->shape.empty() && found->shape[0] == d.vocab + images) {
      rules.push_back(split("model.embed_tokens.weight",
                            {"model.embed_tokens.weight", "model.embed_images.weight"}, {d.vocab, images}));
      rules.push_back(drop("model.embed_images.weight"));
    }
  return rules;
}

}  // namespace

Arch arch_molmo() {
  return {.model_types = {"molmo2", "molmo", "molmo_point"},
          .reference = "transformers Molmo2ForConditionalGeneration, mlx-vlm molmo_point",
          .build = build,
          .weights = weights,
          .tiny = R"({"model_type": "molmo2", "tie_word_embeddings": false, "text_config": {
              "vocab_size": 256, "hidden_size": 192, "intermediate_size": 128,
              "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 32,
              "hidden_act": "silu", "max_position_embeddings": 512, "layer_norm_eps": 1e-6,
              "rope_theta": 10000.0, "rope_scaling": {"rope_type": "linear", "factor": 4.0},
              "rope_scaling_layers": [0, 2], "qk_norm_type": "olmo", "norm_after": true, "qkv_bias": true}})"};
}

}  // namespace mlxcel
