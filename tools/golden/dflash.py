"""Writes tests/golden/dflash/*.json: what block drafters guess behind states that follow from names. The equations are
written down here once, and checked against transformers' MuseGlimmerAssistantModel where it says the same; Laguna's and
DSpark's differ in gates, norms, masks and a correction by the token before, as mlx-vlm's drafters have them.

    python tools/golden/dflash.py
"""

import json
import pathlib

import numpy as np
import torch
import transformers

import generate
from synthetic import values

BASE = {"hidden_size": 48, "intermediate_size": 76, "num_hidden_layers": 2, "num_attention_heads": 6,
        "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 97, "max_position_embeddings": 128, "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0, "hidden_act": "silu"}
TAPS = {"mask_token_id": 90, "target_layer_ids": [0, 2]}
CASES = {
    "qwen3": {**BASE, "architectures": ["DFlashDraftModel"], "model_type": "qwen3", "block_size": 6,
              "dflash_config": {**TAPS, "num_target_layers": 3}},
    "muse": {**BASE, "architectures": ["MuseGlimmerAssistantModel"], "model_type": "muse_glimmer_assistant",
             "block_size": 6, "layer_types": ["sliding_attention", "full_attention"], "sliding_window": 9, **TAPS},
    "laguna": {**BASE, "architectures": ["DFlashDraftModel"], "model_type": "laguna", "layer_types":
               ["sliding_attention"] * 2, "sliding_window": 12, "gating": "per-head",
               "dflash_config": {**TAPS, "block_size": 6, "num_target_layers": 3, "causal": True}},
    "dspark": {**BASE, "architectures": ["DSparkDraftModel"], "model_type": "qwen3", "dflash_config":
               {**TAPS, "projector_type": "dspark", "block_size": 5, "markov_rank": 12, "num_target_layers": 3}},
}
CONTEXT = 20  # tokens


def shapes(name, c):
    h, d, q, k = c["hidden_size"], c["head_dim"], c["num_attention_heads"], c["num_key_value_heads"]
    taps = len(c.get("dflash_config", c)["target_layer_ids"])
    out = {("encoder.fc" if name == "muse" else "fc") + ".weight": [h, taps * h],
           ("encoder.output_norm_enc" if name == "muse" else "hidden_norm") + ".weight": [h], "norm.weight": [h]}
    for i in range(c["num_hidden_layers"]):
        own = {"input_layernorm": [h], "post_attention_layernorm": [h], "self_attn.o_proj": [h, q * d],
               "self_attn.q_norm": [d], "self_attn.k_norm": [d], "mlp.gate_proj": [c["intermediate_size"], h],
               "mlp.up_proj": [c["intermediate_size"], h], "mlp.down_proj": [h, c["intermediate_size"]]}
        if name == "laguna":
            out[f"aux_hidden_norms.{i}.weight"] = [h]
            own |= {"self_attn.qkv_proj": [(q + 2 * k) * d, h], "self_attn.g_proj": [q, h]}
        else:
            own |= {"self_attn.q_proj": [q * d, h], "self_attn.k_proj": [k * d, h], "self_attn.v_proj": [k * d, h]}
        out |= {f"layers.{i}.{part}.weight": shape for part, shape in own.items()}
    if name == "dspark":
        rank = c["dflash_config"]["markov_rank"]
        out |= {"markov_head.markov_w1.weight": [c["vocab_size"], rank], "markov_head.markov_w2.weight": [c["vocab_size"], rank]}
    return out


def rms(x, weight, eps):
    return weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)


def rotated(x, first, theta):
    half = x.shape[-1] // 2
    angles = (first + torch.arange(x.shape[0]))[:, None] / theta ** (torch.arange(half) / half)[None]
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def guesses(name, c, w, embedded, states):
    """[block, hidden] behind the final norm."""
    d, q, k, eps = c["head_dim"], c["num_attention_heads"], c["num_key_value_heads"], c["rms_norm_eps"]
    get = lambda part: w[part + ".weight"]
    taps = list(states.chunk(len(c.get("dflash_config", c)["target_layer_ids"]), -1))
    if name == "laguna":
        taps = [rms(x, get(f"aux_hidden_norms.{i}"), eps) for i, x in enumerate(taps)]
    join, norm = ("encoder.fc", "encoder.output_norm_enc") if name == "muse" else ("fc", "hidden_norm")
    context = rms(torch.cat(taps, -1) @ get(join).T, get(norm), eps)
    n, block, h = context.shape[0], embedded.shape[0], embedded
    for i in range(c["num_hidden_layers"]):
        own = lambda part: get(f"layers.{i}.{part}")
        x = rms(h, own("input_layernorm"), eps)
        if name == "laguna":
            wq, wk, wv = own("self_attn.qkv_proj").split([q * d, k * d, k * d])
        else:
            wq, wk, wv = (own(f"self_attn.{p}_proj") for p in "qkv")
        both = torch.cat([context, x])
        heads = lambda y, count: y.view(y.shape[0], count, d)
        queries = rotated(rms(heads(x @ wq.T, q), own("self_attn.q_norm"), eps), n, c["rope_theta"])
        keys = rotated(rms(heads(both @ wk.T, k), own("self_attn.k_norm"), eps), 0, c["rope_theta"])
        vals = heads(both @ wv.T, k)
        away = (n + torch.arange(block))[:, None] - torch.arange(n + block)[None]
        seen = torch.ones_like(away, dtype=torch.bool)
        if c.get("layer_types", ["full_attention"] * 9)[i] == "sliding_attention":
            seen = away <= c["sliding_window"] - (0 if name == "muse" else 1)
        if name == "laguna":
            seen = seen & (away >= 0)
        scores = torch.einsum("qhd,khd->hqk", queries, keys.repeat_interleave(q // k, 1)) * d ** -0.5
        weights = scores.masked_fill(~seen[None], float("-inf")).softmax(-1)
        out = torch.einsum("hqk,khd->qhd", weights, vals.repeat_interleave(q // k, 1))
        if name == "laguna":
            out = out * torch.nn.functional.softplus(x @ own("self_attn.g_proj").T)[..., None]
        h = h + out.reshape(block, -1) @ own("self_attn.o_proj").T
        x = rms(h, own("post_attention_layernorm"), eps)
        h = h + (torch.nn.functional.silu(x @ own("mlp.gate_proj").T) * (x @ own("mlp.up_proj").T)) @ own("mlp.down_proj").T
    return rms(h, get("norm"), eps)


def by_transformers(c, w, embedded, states):
    config = transformers.MuseGlimmerAssistantConfig(
        **{key: value for key, value in c.items() if key not in ("model_type", "architectures", "rope_theta")},
        rope_parameters={"rope_type": "default", "rope_theta": c["rope_theta"]})
    config._attn_implementation = "eager"
    model = transformers.MuseGlimmerAssistantModel(config).eval().float()
    model.load_state_dict(w)
    cache = transformers.cache_utils.DFlashCache(config=config)
    cache.set_previous_accepted_tokens(len(states))
    return model(noise_embeds=embedded[None], context_hidden_states=states[None], cache=cache).last_hidden_state[0]


def main():
    out = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden" / "dflash"
    out.mkdir(exist_ok=True)
    for name, c in CASES.items():
        tensors = shapes(name, c)
        tensor = lambda part, shape: torch.from_numpy(values(part, shape))
        w = {part: tensor(part, shape) for part, shape in tensors.items()}
        table = tensor("model.embed_tokens.weight", [c["vocab_size"], c["hidden_size"]])
        head = tensor("lm_head.weight", [c["vocab_size"], c["hidden_size"]])
        states = tensor("states", [CONTEXT, len(TAPS["target_layer_ids"]) * c["hidden_size"]])
        block = [17] + [TAPS["mask_token_id"]] * (4 if name == "dspark" else 5)
        with torch.no_grad():
            hidden = guesses(name, c, w, table[block], states)
            if name == "muse":
                off = (hidden - by_transformers(c, w, table[block], states)).abs().max().item()
                print(f"transformers differs by {off:.1e}")
                assert off < 1e-4
            logits = hidden @ head.T
            body = {"name": name, "config": c, "tensors": tensors, "block": block, "context": CONTEXT,
                    "logits": generate.rounded(logits.numpy())}
            if name == "dspark":  # of the first place, behind the block's own first token
                seen = w["markov_head.markov_w2.weight"] @ w["markov_head.markov_w1.weight"][block[0]]
                body["corrected"] = generate.rounded((logits[0] + seen)[None].numpy())[0]
        (out / f"{name}.json").write_text(generate.lines(body))
        print(f"{name}: logits up to {logits.abs().max():.2f}")


if __name__ == "__main__":
    main()
