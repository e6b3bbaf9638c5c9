"""Writes tests/golden/mtp/*.json: what a checkpoint's own multi-token prediction block guesses. No library runs these
blocks, so they are put together here from transformers' own layers, as DeepSeek-V3's report (2024, section 2.2)
writes them: of a model with one layer more the last layer is the block's. Qwen3.5's differ in names and norms.

    python tools/golden/mtp.py [name...]
"""

import json
import pathlib
import sys
import tempfile

import numpy as np
import torch

import generate
from configs_dense import MIMO
from configs_hybrid import NEMOTRON_3, QWEN3_5, QWEN3_NEXT
from configs_late import MIMO_V2
from configs_moe import DEEPSEEK_V3, ERNIE, EXAONE, GLM4_LITE, GLM4_MOE
from configs_sparse import DSA, GLM_DSA


class DeepSeek:
    """The block is layer `layers`, its own norms and join beside it."""

    added, state_first, window, count = 0.0, False, 0, 1

    def __init__(self, config):
        self.layers, self.hidden = config.get("num_hidden_layers", 0), config["hidden_size"]
        self.eps = config.get("rms_norm_eps", 1e-5)
        self.stem = f"model.layers.{self.layers}."
        self.join, self.norms = "eh_proj", ("enorm", "hnorm", "shared_head.norm")

    def longer(self, config):
        return {**config, "num_hidden_layers": self.layers + 1}

    def published(self, name):
        return name.replace(f"model.layers.{self.layers}.", self.stem)

    def own(self, part):
        return f"{self.stem}{part}.weight"


class Dsa(DeepSeek):
    """The layer chooses its own keys."""

    def longer(self, config):
        return {**super().longer(config), "indexer_types": ["full"] * (self.layers + 1)}


class Qwen(DeepSeek):
    """Under "mtp", with names of its own."""

    def __init__(self, config):
        super().__init__(config)
        self.stem = "mtp."
        self.join, self.norms = "fc", ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm")

    def published(self, name):
        return name.replace(f"model.layers.{self.layers}.", "mtp.layers.0.")


class Qwen35(Qwen):
    """Norms are kept less one, as all of the family's are."""

    added = 1.0

    def longer(self, config):
        kinds = config.get("layer_types") or [
            "full_attention" if (i + 1) % config["full_attention_interval"] == 0 else "linear_attention"
            for i in range(self.layers)]
        return {**super().longer(config), "layer_types": [*kinds, "full_attention"]}


class Exaone(Qwen):
    """Its layer sees everything and is dense."""

    def longer(self, config):
        kinds = ["full_attention" if (i + 1) % config["sliding_window_pattern"] == 0 else "sliding_attention"
                 for i in range(self.layers)]
        dense = config["first_k_dense_replace"]
        return {**super().longer(config), "layer_types": [*kinds, "full_attention"], "mlp_layer_types":
                [*(["dense"] * dense), *(["sparse"] * (self.layers - dense)), "dense"]}


class Mimo(DeepSeek):
    """Qwen2's layer; the state comes before the token."""

    state_first = True

    def __init__(self, config):
        super().__init__(config)
        self.stem = "model.mtp_layers.0."
        self.join, self.norms = "input_proj", ("token_layernorm", "hidden_layernorm", "final_layernorm")

    def longer(self, config):
        return {**super().longer(config), "model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"]}


class MimoV2(DeepSeek):
    """A sliding layer with a plain feed-forward."""

    def __init__(self, config):
        super().__init__(config)
        self.window, self.stem = config["sliding_window"], "model.mtp.layers.0."
        self.norms = ("enorm", "hnorm", "final_layernorm")

    def longer(self, config):
        return {**super().longer(config), "layer_types": [*config["layer_types"], "sliding_attention"],
                "mlp_layer_types": [*config["mlp_layer_types"], "dense"]}

    def published(self, name):
        own = super().published(name)
        return own if own == name else own.replace("post_attention_layernorm", "pre_mlp_layernorm")


class Ernie(DeepSeek):
    """Dense, without a norm before the head; the parts are numbered apart."""

    def __init__(self, config):
        super().__init__(config)
        self.stem, self.join, self.norms = "model.mtp_block.0.", "linear_proj", ("emb_norm", "hidden_norm", None)

    def own(self, part):
        return f"model.mtp_{part}.0.weight"


class Nemotron(DeepSeek):
    """Two layers, attention and experts; the first has the join, the last the norm."""

    count = 2

    def __init__(self, config):
        super().__init__(config)
        self.layers = len(config["hybrid_override_pattern"])
        self.norms = ("enorm", "hnorm", "final_layernorm")

    def longer(self, config):
        return {**config, "hybrid_override_pattern": config["hybrid_override_pattern"] + "*E"}

    def published(self, name):
        for i in range(self.count):
            name = name.replace(f"backbone.layers.{self.layers + i}.", f"mtp.layers.{i}.")
            name = name.replace(f"model.layers.{self.layers + i}.", f"mtp.layers.{i}.")
        return name

    def own(self, part):
        return f"mtp.layers.{1 if part == 'final_layernorm' else 0}.{part}.weight"


def guesses(family, config, tokens, variant=None):
    """Tensors, and the guesses behind each token but the last; "nudged": with weights moved a little."""
    filled = lambda name, shape: generate.filled({}, name, shape, variant)
    longer, case = family.longer(config), {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        kind = generate.model_class(case, longer)
        kind(generate.config_of(case, longer)).save_pretrained(folder)
        tensors, fill = generate.published_names(case, longer, folder)
        state = {}
        for name, shape in tensors.items():
            for part, array in fill[name](filled(family.published(name), shape)).items():
                state[part] = torch.from_numpy(np.ascontiguousarray(array).reshape(np.shape(array)))
        generate.save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
        model = kind.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager",
                                     experts_implementation="eager").eval()
    extra = {family.own(name): [family.hidden] for name in family.norms if name}
    extra[family.own(family.join)] = [family.hidden, 2 * family.hidden]
    own = {name: torch.from_numpy(filled(name, shape)) for name, shape in extra.items()}

    def norm(x, which):
        if family.norms[which] is None:
            return x
        weight = own[family.own(family.norms[which])] + family.added
        return weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + family.eps))

    inner = model.model if hasattr(model, "model") else model.backbone
    blocks = inner.layers[family.layers:]
    seen = [{} for _ in blocks]
    handles = [block.register_forward_pre_hook(
        lambda _, args, kwargs, i=i: seen[i].update(kwargs, first=args[0] if args else kwargs["hidden_states"]),
        with_kwargs=True) for i, block in enumerate(blocks)]
    ids, count = torch.tensor([tokens]), len(tokens) - 1
    table = inner.embed_tokens if hasattr(inner, "embed_tokens") else inner.embeddings
    final = next(getattr(inner, name) for name in ("norm", "norm_f") if hasattr(inner, name))
    mask = torch.full((count, count), float("-inf")).triu(1)
    if family.window:
        mask = mask + torch.full((count, count), float("-inf")).tril(-family.window)
    with torch.no_grad():
        model(input_ids=ids, use_cache=False)
        for handle in handles:
            handle.remove()
        states = final(seen[0]["first"])
        halves = [norm(table(ids[:, 1:]), 0), norm(states[:, :-1], 1)]
        y = torch.cat(halves[::-1] if family.state_first else halves, -1) @ own[family.own(family.join)].T
        for block, kwargs in zip(blocks, seen):
            kwargs.pop("first"), kwargs.pop("hidden_states", None)
            kwargs.update(attention_mask=mask[None, None], position_ids=torch.arange(count)[None])
            if kwargs.get("position_embeddings") is not None:
                cos, sin = kwargs["position_embeddings"]
                kwargs["position_embeddings"] = (cos[:, :count], sin[:, :count])
            y = block(y, **kwargs)
            y = y[0] if isinstance(y, tuple) else y
        logits = model.lm_head(norm(y, 2))[0].numpy()
    return {**{family.published(name): shape for name, shape in tensors.items()}, **extra}, logits


def write(name, config, reference, guess):
    """`guess(tokens, variant)` gives tensors and logits; tokens are sought whose choice of experts hangs on no rounding."""
    out = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden" / "mtp"
    out.mkdir(exist_ok=True)
    for seed in range(1, 1000):
        tokens = np.random.default_rng(seed).integers(0, config["vocab_size"], 24).tolist()
        tensors, logits = guess(tokens)
        moved = generate.distance(False, logits, guess(tokens, "nudged")[1])
        if moved < generate.STEADY:
            break
    keep = [0, 1, 7, 15, len(tokens) - 2]
    body = {"name": name, "reference": reference, "config": config, "tensors": tensors, "tokens": tokens, "positions": keep,
            "logits": generate.rounded(logits[keep])}
    (out / f"{name}.json").write_text(generate.lines(body))
    print(f"{name}: nudged moves {moved:.1e}, logits up to {np.abs(logits).max():.2f}")


def main():
    cases = (("deepseek_v3", DeepSeek, DEEPSEEK_V3), ("deepseek_v32", DeepSeek, {**DSA, "num_nextn_predict_layers": 1}),
             ("glm_moe_dsa", Dsa, {**GLM_DSA, "num_nextn_predict_layers": 1}), ("ernie4_5_moe", Ernie, ERNIE),
             ("exaone_moe", Exaone, EXAONE), ("glm4_moe", DeepSeek, {**GLM4_MOE, "num_nextn_predict_layers": 1}),
             ("glm4_moe_lite", DeepSeek, {**GLM4_LITE, "num_nextn_predict_layers": 1}), ("mimo", Mimo, MIMO),
             ("mimo_v2_flash", MimoV2, MIMO_V2), ("nemotron_h", Nemotron, NEMOTRON_3), ("qwen3_5", Qwen35, QWEN3_5),
             ("qwen3_next", Qwen35, QWEN3_NEXT))
    for name, family, config in cases:
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        write(name, config, f"transformers {generate.transformers.__version__} layers",
              lambda tokens, variant=None, f=family, c=config: guesses(f(c), c, tokens, variant))


if __name__ == "__main__":
    main()
