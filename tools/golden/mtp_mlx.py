"""The same as mtp.py for families that transformers lacks: their blocks are put together from mlx-lm's layers, after
the servers that run them (sglang's bailing_moe_nextn, vLLM's longcat_flash_mtp and step3p5_mtp).

    python tools/golden/mtp_mlx.py [name...]
"""

import re
import sys

import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten
from mlx_lm.models.base import create_causal_mask

import generate
import mlx_oracle
import mtp
from configs_late import PUBLISHED_STEP, STEP3P5
from configs_moe import BAILING, LONGCAT


class Bailing:
    """One sparse layer behind the others; the head is the model's."""

    count, norms, added, window = "num_hidden_layers", ("enorm", "hnorm", "final_layernorm"), 0.0, None
    embedding, head = "word_embeddings", None

    def __init__(self, config):
        self.config, self.layers = config, config[self.count]
        self.stem = f"model.layers.{self.layers}."

    def longer(self):
        return {**self.config, self.count: self.layers + 1}

    def own(self, part):
        return f"{self.stem}{part}.weight"

    def published(self, name):
        """A tensor's name in the checkpoint; none: the checkpoint has no such tensor."""
        return name

    def run(self, layer, x, mask):
        return layer(x, mask)


class Longcat(Bailing):
    """The first half of a layer, without experts, under "mtp"."""

    count, norms, embedding = "num_layers", ("enorm.m", "hnorm.m", "norm"), "embed_tokens"

    def own(self, part):
        return "model.mtp.norm.weight" if part == "norm" else f"model.mtp.layers.0.{part}.weight"

    def published(self, name):
        if not name.startswith(self.stem):
            return name
        found = re.fullmatch(r"(self_attn|input_layernorm|post_attention_layernorm|mlps)\.0\.(.*)", name[len(self.stem):])
        if not found:
            return None
        part = "transformer_layer.mlp" if found[1] == "mlps" else found[1]
        return f"model.mtp.layers.0.{part}.{found[2]}"

    def run(self, layer, x, mask):
        x = x + layer.self_attn[0](layer.input_layernorm[0](x), mask=mask)
        return x + layer.mlps[0](layer.post_attention_layernorm[0](x))


class Step(Bailing):
    """A sliding dense layer with a head of its own; norms are stored around zero."""

    norms, added, embedding, head = ("enorm", "hnorm", "shared_head.norm"), 1.0, "embed_tokens", "shared_head.output"

    def __init__(self, config):
        super().__init__(config)
        self.window = config["sliding_window"]

    def own(self, part):
        return f"{self.stem}{'transformer.' if part.startswith('shared_head') else ''}{part}.weight"

    def published(self, name):
        for pattern, replacement in PUBLISHED_STEP:
            name = re.sub(pattern, replacement, name)
        return name


def latents(family, name, shape, fill, tensors):
    """mlx-lm keeps the two halves of kv_b_proj apart: both come from the published one."""
    config = family.config
    heads, keys, values = config["num_attention_heads"], config["qk_nope_head_dim"], config["v_head_dim"]
    rank = shape[1] if name.endswith("embed_q.weight") else shape[2]
    own = re.sub(r"(embed_q|unembed_out)\.weight$", "kv_b_proj.weight", family.published(name))
    tensors[own] = [heads * (keys + values), rank]
    both = fill(own, tensors[own]).reshape(heads, keys + values, rank)
    if name.endswith("embed_q.weight"):
        both = both[:, :keys].transpose(0, 2, 1)
        rank = both.shape[2]
        return both
    return both[:, keys:]


def guesses(family, tokens, variant=None):
    """Tensors, and the guesses behind each token but the last."""
    fill = lambda name, shape: generate.filled({}, name, shape, variant)
    model = mlx_oracle.build({}, family.longer())
    tensors, weights = {}, {}
    for name, value in tree_flatten(model.parameters()):
        own, shape = family.published(name), list(value.shape)
        if own is None:
            weights[name] = mx.zeros(shape)
            continue
        if re.search(r"\.(embed_q|unembed_out)\.weight$", name):
            values = latents(family, name, shape, fill, tensors)
        else:
            tensors[own] = shape
            values = fill(own, shape)
        if re.search(r"norm\.weight$", name):
            values = values + np.float32(family.added)
        weights[name] = mx.array(np.ascontiguousarray(values)).reshape(shape)
    model.load_weights(list(weights.items()), strict=True)
    model.eval()
    hidden, vocab, eps = family.config["hidden_size"], family.config["vocab_size"], family.config["rms_norm_eps"]
    tensors |= {family.own(name): [hidden] for name in family.norms}
    tensors[family.own("eh_proj")] = [hidden, 2 * hidden]
    if family.head:
        tensors[family.own(family.head)] = [vocab, hidden]

    def norm(x, which):
        name = family.own(family.norms[which])
        return mx.fast.rms_norm(x, mx.array(fill(name, [hidden]) + np.float32(family.added)), eps)

    inner, ids, count = model.model, mx.array([tokens]), len(tokens) - 1
    table, layers = getattr(inner, family.embedding), inner.layers
    inner.layers = layers[:-1]
    states = inner(ids)
    y = mx.concatenate([norm(table(ids[:, 1:]), 0), norm(states[:, :-1], 1)], -1)
    y = y @ mx.array(fill(family.own("eh_proj"), [hidden, 2 * hidden])).T
    y = norm(family.run(layers[-1], y, create_causal_mask(count, window_size=family.window)), 2)
    if family.head:
        logits = y @ mx.array(fill(family.own(family.head), [vocab, hidden])).T
    else:
        logits = model.lm_head(y)
    return dict(sorted(tensors.items())), np.array(logits[0].astype(mx.float32))


def main():
    lists = {"rope_theta": 1000.0, "partial_rotary_factors": 1.0, "layer_types": "sliding_attention",
             "swiglu_limits": 0.0, "swiglu_limits_shared": 0.5}
    step = {**STEP3P5, **{key: [*STEP3P5[key], more] for key, more in lists.items()}}
    sigmoid = {"score_function": "sigmoid", "moe_router_enable_expert_bias": True, "use_qk_norm": True}
    cases = (("bailing_moe", Bailing, {**BAILING, **sigmoid}), ("longcat_flash", Longcat, LONGCAT),
             ("step3p5", Step, step))
    for name, family, config in cases:
        if not sys.argv[1:] or name in sys.argv[1:]:
            config = {**config, "num_nextn_predict_layers": 1}
            mtp.write(name, config, mlx_oracle.reference({}, config) + " layers",
                      lambda tokens, variant=None, f=family, c=config: guesses(f(c), tokens, variant))


if __name__ == "__main__":
    main()
