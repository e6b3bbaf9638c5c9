"""Writes tests/golden/mtp/*.json: what a checkpoint's own multi-token prediction block guesses. No library runs these
blocks, so they are put together here from transformers' own layers, as DeepSeek-V3's report (2024, section 2.2)
writes them: of a model with one layer more the last layer is the block's.

    python tools/golden/mtp.py
"""

import json
import pathlib
import tempfile

import numpy as np
import torch

import generate
from configs_moe import DEEPSEEK_V3, GLM4_MOE


def extra_tensors(stem, hidden):
    return {f"{stem}.enorm.weight": [hidden], f"{stem}.hnorm.weight": [hidden], f"{stem}.shared_head.norm.weight": [hidden],
            f"{stem}.eh_proj.weight": [hidden, 2 * hidden]}


def rms(x, weight, eps):
    return weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps))


def guesses(config, tokens, variant=None):
    """Tensors, and the guesses behind each token but the last; "nudged": with weights moved a little."""
    filled = lambda name, shape: generate.filled({}, name, shape, variant)
    layers, hidden, eps = config["num_hidden_layers"], config["hidden_size"], config["rms_norm_eps"]
    longer = {**config, "num_hidden_layers": layers + 1}
    case = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        kind = generate.model_class(case, longer)
        kind(generate.config_of(case, longer)).save_pretrained(folder)
        tensors, fill = generate.published_names(case, longer, folder)
        state = {}
        for name, shape in tensors.items():
            for part, array in fill[name](filled(name, shape)).items():
                state[part] = torch.from_numpy(np.ascontiguousarray(array).reshape(np.shape(array)))
        generate.save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
        model = kind.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager",
                                     experts_implementation="eager").eval()
    stem = f"model.layers.{layers}"
    extra = extra_tensors(stem, hidden)
    own = {name.removeprefix(stem + "."): torch.from_numpy(filled(name, shape)) for name, shape in extra.items()}
    seen = {}
    block = model.model.layers[layers]
    handle = block.register_forward_pre_hook(lambda _, args, kwargs: seen.update(h=args[0] if args else kwargs["hidden_states"]),
                                             with_kwargs=True)
    ids = torch.tensor([tokens])
    with torch.no_grad():
        model(input_ids=ids, use_cache=False)
        handle.remove()
        states = model.model.norm(seen["h"])
        count = len(tokens) - 1
        embedded = model.model.embed_tokens(ids[:, 1:])
        joined = torch.cat([rms(embedded, own["enorm.weight"], eps), rms(states[:, :-1], own["hnorm.weight"], eps)], -1)
        x = joined @ own["eh_proj.weight"].T
        places = torch.arange(count)[None]
        mask = torch.full((count, count), float("-inf")).triu(1)[None, None]
        y = block(x, attention_mask=mask, position_ids=places,
                  position_embeddings=model.model.rotary_emb(x, position_ids=places))
        y = y[0] if isinstance(y, tuple) else y
        logits = model.lm_head(rms(y, own["shared_head.norm.weight"], eps))[0].numpy()
    return {**tensors, **extra}, logits


def main():
    out = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden" / "mtp"
    out.mkdir(exist_ok=True)
    for name, config in {"deepseek_v3": DEEPSEEK_V3, "glm4_moe": {**GLM4_MOE, "num_nextn_predict_layers": 1}}.items():
        for seed in range(1, 1000):
            tokens = np.random.default_rng(seed).integers(0, config["vocab_size"], 24).tolist()
            tensors, logits = guesses(config, tokens)
            # No choice of experts may hang on rounding.
            moved = generate.distance(False, logits, guesses(config, tokens, "nudged")[1])
            if moved < generate.STEADY:
                break
        keep = [0, 1, 7, 15, len(tokens) - 2]
        body = {"name": name, "reference": f"transformers {generate.transformers.__version__} layers", "config": config,
                "tensors": tensors, "tokens": tokens, "positions": keep, "logits": generate.rounded(logits[keep])}
        (out / f"{name}.json").write_text(generate.lines(body))
        print(f"{name}: nudged moves {moved:.1e}, logits up to {np.abs(logits).max():.2f}")


if __name__ == "__main__":
    main()
