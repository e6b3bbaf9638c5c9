"""Writes tests/golden/mtp/*.json: what a checkpoint's own multi-token prediction block guesses. No library runs these
blocks, so they are put together here from transformers' own layers, as DeepSeek-V3's report (2024, section 2.2)
writes them: of a model with one layer more the last layer is the block's. Qwen3.5's differ in names and norms.

    python tools/golden/mtp.py
"""

import json
import pathlib
import tempfile

import numpy as np
import torch

import generate
from configs_hybrid import QWEN3_5
from configs_moe import DEEPSEEK_V3, GLM4_MOE


class DeepSeek:
    """The block is layer `layers`, its own norms and join beside it."""

    def __init__(self, config):
        self.layers, self.hidden, self.eps = config["num_hidden_layers"], config["hidden_size"], config["rms_norm_eps"]
        self.stem = f"model.layers.{self.layers}."
        self.join, self.norms, self.added = "eh_proj", ("enorm", "hnorm", "shared_head.norm"), 0.0

    def longer(self, config):
        return {**config, "num_hidden_layers": self.layers + 1}

    def published(self, name):
        return name


class Qwen35(DeepSeek):
    """Under "mtp"; norms are kept less one, as all of the family's are."""

    def __init__(self, config):
        super().__init__(config)
        self.stem = "mtp."
        self.join, self.norms, self.added = "fc", ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"), 1.0

    def longer(self, config):
        return {**config, "num_hidden_layers": self.layers + 1,
                "layer_types": [*config["layer_types"], "full_attention"]}

    def published(self, name):
        return name.replace(f"model.layers.{self.layers}.", "mtp.layers.0.")


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
    extra = {f"{family.stem}{name}.weight": [family.hidden] for name in family.norms}
    extra[f"{family.stem}{family.join}.weight"] = [family.hidden, 2 * family.hidden]
    own = {name: torch.from_numpy(filled(name, shape)) for name, shape in extra.items()}

    def norm(x, which):
        weight = own[f"{family.stem}{family.norms[which]}.weight"] + family.added
        return weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + family.eps))

    seen = {}
    block = model.model.layers[family.layers]
    handle = block.register_forward_pre_hook(
        lambda _, args, kwargs: seen.update(kwargs, hidden_states=args[0] if args else kwargs["hidden_states"]),
        with_kwargs=True)
    ids, count = torch.tensor([tokens]), len(tokens) - 1
    with torch.no_grad():
        model(input_ids=ids, use_cache=False)
        handle.remove()
        states = model.model.norm(seen.pop("hidden_states"))
        joined = torch.cat([norm(model.model.embed_tokens(ids[:, 1:]), 0), norm(states[:, :-1], 1)], -1)
        x = joined @ own[f"{family.stem}{family.join}.weight"].T
        mask = torch.full((count, count), float("-inf")).triu(1)[None, None]
        cos, sin = seen["position_embeddings"]
        y = block(x, attention_mask=mask, position_ids=torch.arange(count)[None],
                  position_embeddings=(cos[:, :count], sin[:, :count]))
        y = y[0] if isinstance(y, tuple) else y
        logits = model.lm_head(norm(y, 2))[0].numpy()
    return {**{family.published(name): shape for name, shape in tensors.items()}, **extra}, logits


def main():
    out = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden" / "mtp"
    out.mkdir(exist_ok=True)
    for name, family, config in (("deepseek_v3", DeepSeek, DEEPSEEK_V3),
                                 ("glm4_moe", DeepSeek, {**GLM4_MOE, "num_nextn_predict_layers": 1}),
                                 ("qwen3_5", Qwen35, QWEN3_5)):
        for seed in range(1, 1000):
            tokens = np.random.default_rng(seed).integers(0, config["vocab_size"], 24).tolist()
            tensors, logits = guesses(family(config), config, tokens)
            # No choice of experts may hang on rounding.
            moved = generate.distance(False, logits, guesses(family(config), config, tokens, "nudged")[1])
            if moved < generate.STEADY:
                break
        keep = [0, 1, 7, 15, len(tokens) - 2]
        body = {"name": name, "reference": f"transformers {generate.transformers.__version__} layers", "config": config,
                "tensors": tensors, "tokens": tokens, "positions": keep, "logits": generate.rounded(logits[keep])}
        (out / f"{name}.json").write_text(generate.lines(body))
        print(f"{name}: nudged moves {moved:.1e}, logits up to {np.abs(logits).max():.2f}")


if __name__ == "__main__":
    main()
