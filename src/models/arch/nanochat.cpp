// nanochat: norms without weights everywhere, of q and k after their rotation, which turns backwards; a norm
// behind the embedding, an ungated squared ReLU, capped logits. Reference: transformers NanoChatForCausalLM.
#include "models/kit.h"

namespace mlxcel {

namespace {

Decoder build(const Config& c, const Weights& w) {
  const auto d = Dims::from(c);
  const float eps = epsilon(c, "rms_norm_eps", 1e-6f);
  const NormMaker norm = [eps](const Weights&, std::string_view) {
    return Norm(RmsNorm{.weight = {}, .eps = eps});
  };
  const int width = c.integer("intermediate_size", 1, kMaxWidth);
  const auto activation = activation_from(c, "hidden_act", "relu2");
  const Bias bias = bias_if(c.get("attention_bias", false));
  const auto rope = Rope::from(c, d, {.backwards = true});
  auto model = standard_decoder(w, d, norm, {.tie = tied(c, false)}, [&](int, const Weights& layer) {
    return PreNorm{
        .mixer_norm = norm(layer, ""),
        .mixer = Attention(layer / "self_attn", d,
                           {.rope = rope,
                            .qk_norm = HeadNormOptions{.eps = eps, .weighted = false, .after_rope = true},
                            .qkv_bias = bias,
                            .out_bias = bias}),
        .ffn_norm = norm(layer, ""),
        .ffn = Mlp(layer / "mlp", "fc1", "fc2", d.hidden, width, activation, Bias::none)};
  });
  model.embedding_norm(norm(w, ""));
  model.softcap(c.is_null("final_logit_softcapping") ? 0.0f : c.get("final_logit_softcapping", 15.0f));
  return model;
}

}  // namespace

Arch arch_nanochat() {
  return {
      .model_types = {"nanochat"},
      .reference = "transformers NanoChatForCausalLM",
      .build = build,
      .weights = {rename("transformer.wte.*", "model.embed_tokens.*"),
                  rename("transformer.h.#.attn.c_q.*", "model.layers.#.self_attn.q_proj.*"),
                  rename("transformer.h.#.attn.c_k.*", "model.layers.#.self_attn.k_proj.*"),
                  rename("transformer.h.#.attn.c_v.*", "model.layers.#.self_attn.v_proj.*"),
                  rename("transformer.h.#.attn.c_proj.*", "model.layers.#.self_attn.o_proj.*"),
                  rename("transformer.h.#.mlp.c_fc.*", "model.layers.#.mlp.fc1.*"),
                  rename("transformer.h.#.mlp.c_proj.*", "model.layers.#.mlp.fc2.*")},
      .tiny = R"({"model_type": "nanochat", "vocab_size": 256, "hidden_size": 192, "intermediate_size": 128,
              "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2, "hidden_act": "relu2",
              "max_position_embeddings": 512, "rms_norm_eps": 1e-2, "rope_theta": 10000.0,
              "final_logit_softcapping": 3.0, "attention_bias": true, "tie_word_embeddings": false})"};
}

}  // namespace mlxcel
