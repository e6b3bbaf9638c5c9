"""Writes tests/golden/adapters/*.json: logits of tiny models under LoRA adapters, by PEFT over transformers and by
mlx-lm for its own format, on weights and factors that follow from names.

    python tools/golden/adapters.py

Development only; beside the lock file it needs peft.
"""

import json
import pathlib
import sys
import tempfile

import numpy as np
import torch

import generate
from configs import GPT2, LLAMA, QWEN3_MOE
from synthetic import values

HALF = 0.5  # of a synthetic value: factors are kept small


def factors(name, shape):
    return (values(name, shape) * np.float32(HALF)).astype(np.float32)


def checkpoint(case, config, folder):
    """Tensors as published, and the folder filled with them."""
    kind = generate.model_class(case, config)
    with tempfile.TemporaryDirectory() as temporary:
        where = pathlib.Path(temporary)
        kind(generate.config_of(case, config)).save_pretrained(where)
        tensors, fill = generate.published_names(case, config, where)
    generate.config_of(case, config).save_pretrained(folder)
    state = {}
    for name, shape in tensors.items():
        for part, array in fill[name](values(name, shape)).items():
            state[part] = torch.from_numpy(np.ascontiguousarray(array).reshape(np.shape(array)))
    generate.save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    return tensors


def by_peft(case, config, settings, tokens):
    import peft

    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        tensors = checkpoint(case, config, folder)
        model = generate.model_class(case, config).from_pretrained(folder, dtype=torch.float32,
                                                                   attn_implementation="eager")
        wrapped = peft.get_peft_model(model, peft.LoraConfig(**settings))
        wrapped.save_pretrained(folder / "adapter")
        with generate.safe_open(folder / "adapter" / "adapter_model.safetensors", "np") as file:
            shapes = {name: list(file.get_slice(name).get_shape()) for name in file.keys()}
        # A targeted head comes with a copy of the base's own weight.
        filled = {name: torch.from_numpy(factors(name, shape) if ".lora_" in name else
                                         values(name.removeprefix("base_model.model.").replace(".base_layer", ""), shape))
                  for name, shape in shapes.items()}
        generate.save_file(filled, folder / "adapter" / "adapter_model.safetensors")
        model = generate.model_class(case, config).from_pretrained(folder, dtype=torch.float32,
                                                                   attn_implementation="eager")
        model = peft.PeftModel.from_pretrained(model, folder / "adapter").eval()
        kept = json.loads((folder / "adapter" / "adapter_config.json").read_text())
        ids = torch.tensor([tokens])
        with torch.no_grad():
            logits = model(input_ids=ids, use_cache=False).logits[0].numpy()
            with model.disable_adapter():
                bare = model(input_ids=ids, use_cache=False).logits[0].numpy()
    adapter = {key: kept[key] for key in ("peft_type", "r", "lora_alpha", "bias", "use_rslora", "use_dora",
                                          "fan_in_fan_out", "rank_pattern", "alpha_pattern", "target_modules",
                                          "modules_to_save", "init_lora_weights", "target_parameters") if key in kept}
    return tensors, adapter, shapes, logits, bare, f"peft {peft.__version__}"


def by_mlx(case, config, parameters, tokens):
    import mlx.core as mx
    import mlx_lm
    from mlx.utils import tree_flatten
    from mlx_lm.tuner.utils import linear_to_lora_layers
    from mlx_lm.utils import load_model

    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        tensors = checkpoint(case, config, folder)
        (folder / "config.json").write_text(json.dumps(config))
        model, _ = load_model(folder)
        ids = mx.array([tokens])
        bare = np.array(model(ids)[0].astype(mx.float32))
        model.freeze()
        linear_to_lora_layers(model, config["num_hidden_layers"], parameters)
        shapes = {name: list(tensor.shape) for name, tensor in tree_flatten(model.trainable_parameters())}
        model.load_weights([(name, mx.array(factors(name, shape))) for name, shape in shapes.items()], strict=False)
        logits = np.array(model(ids)[0].astype(mx.float32))
    adapter = {"fine_tune_type": "lora", "num_layers": config["num_hidden_layers"], "lora_parameters": parameters}
    return tensors, adapter, shapes, logits, bare, f"mlx-lm {mlx_lm.__version__}"


EAGER = {"task_type": "CAUSAL_LM", "r": 4, "lora_alpha": 6}
CASES = {
    "llama_peft": (by_peft, LLAMA, {**EAGER, "target_modules": ["q_proj", "v_proj", "o_proj", "gate_proj", "down_proj"],
                                    "rank_pattern": {"v_proj": 7}, "alpha_pattern": {"o_proj": 3}}),
    "llama_peft_rslora": (by_peft, LLAMA, {**EAGER, "use_rslora": True,
                                           "target_modules": ["k_proj", "up_proj", "lm_head"]}),
    "llama_peft_tables": (by_peft, {**LLAMA, "tie_word_embeddings": False}, {
        **EAGER, "target_modules": ["embed_tokens", "lm_head", "q_proj"]}),
    "llama_mlx_tied": (by_mlx, {**LLAMA, "tie_word_embeddings": True}, {
        "rank": 4, "scale": 1.5, "dropout": 0.0, "keys": ["model.embed_tokens", "self_attn.v_proj"]}),
    "qwen3_moe_peft": (by_peft, QWEN3_MOE, {**EAGER, "target_modules": ["v_proj"], "target_parameters": [
        "mlp.experts.gate_up_proj", "mlp.experts.down_proj"]}),
    "gpt2_peft": (by_peft, GPT2, {**EAGER, "fan_in_fan_out": True, "target_modules": ["c_attn", "c_fc", "c_proj"]}),
    "llama_mlx": (by_mlx, {**LLAMA, "tie_word_embeddings": False}, {"rank": 5, "scale": 1.5, "dropout": 0.0,
                                  "keys": ["self_attn.q_proj", "self_attn.v_proj", "mlp.up_proj"]}),
    "qwen3_moe_mlx": (by_mlx, QWEN3_MOE, {"rank": 3, "scale": 1.25, "dropout": 0.0,
                                          "keys": ["self_attn.k_proj", "mlp.switch_mlp.gate_proj",
                                                   "mlp.switch_mlp.down_proj", "mlp.gate"]}),
}


def main():
    out = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden" / "adapters"
    out.mkdir(exist_ok=True)
    for name, (oracle, config, settings) in CASES.items():
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        case = {"names": "gpt2_published"} if config["model_type"] == "gpt2" else {}
        tokens = np.random.default_rng(len(name)).integers(0, config["vocab_size"], 30).tolist()
        tensors, adapter, shapes, logits, bare, reference = oracle(case, config, settings, tokens)
        moved = generate.distance(False, bare, logits)
        assert moved > 0.05, f"{name}: the adapter moves only {moved}"
        keep = [0, 1, 5, 13, 22, len(tokens) - 1]
        body = {"name": name, "reference": reference, "config": config, "tensors": tensors, "adapter": adapter,
                "factors": shapes, "half": HALF, "tokens": tokens, "positions": keep,
                "logits": generate.rounded(logits[keep])}
        (out / f"{name}.json").write_text(generate.lines(body))
        print(f"{name}: {reference}, moves {moved:.3f}")


if __name__ == "__main__":
    main()
