"""Writes tests/golden/data/*.json: logits of tiny models by transformers (or mlx-lm where it lacks the family), on
weights that follow from names.

    python tools/golden/generate.py [--out FOLDER] [CASE...]

The cases are those of every configs*.py beside this file. Each model is built from its config, its tensors are listed as save_pretrained publishes them, filled by
synthetic.py, written as a checkpoint and loaded again by from_pretrained: the reference passes through the same
door as ours. Fails when a spelling changes the logits, or when a mutant does not move them.
"""

import argparse
import copy
import fnmatch
import importlib
import json
import pathlib
import re
import tempfile
import zlib

import numpy as np
import torch
import transformers
from safetensors import safe_open
from safetensors.torch import save_file

import mlx_oracle
from synthetic import affine_values, values

CASES = {}
for file in sorted(pathlib.Path(__file__).parent.glob("configs*.py")):
    CASES.update(importlib.import_module(file.stem).CASES)

TOKENS = 40
ENCODERS = ("bert", "xlm-roberta", "modernbert")
STORED = 12  # positions whose logits are kept
# A mutant must move some log-probability above -10 by this much; the test's widest tolerance is 5e-3.
SENSITIVITY = 0.05
# Weights moved by this part of themselves may not move an answer by more than STEADY: a choice (of experts, of
# keys) that hangs on rounding would.
NUDGE, STEADY = 2e-6, 1e-3


def is_classifier(config):
    return config["architectures"][0].endswith("ForSequenceClassification")


def is_encoder(config):
    """Hidden states (or a classifier's scores) are the answer: encoders, and decoders published without a head."""
    name = config["architectures"][0]
    bare = name.endswith("Model") and not name.endswith("LMHeadModel")
    return config["model_type"] in ENCODERS or bare or is_classifier(config)


def merge(target, patch):
    """JSON merge patch, RFC 7396."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = copy.deepcopy(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge(result.get(key), value)
    return result


def decoded(value):
    """Infinity as transformers saves it, which it does not itself read back in a list."""
    if isinstance(value, list):
        return [decoded(item) for item in value]
    return float(value["__float__"]) if isinstance(value, dict) and "__float__" in value else value


def config_of(case, config):
    settings = {key: decoded(value) for key, value in copy.deepcopy(config).items()}
    settings = case.get("reference_config", lambda c: c)(settings)  # where the reference spells it otherwise
    model_type = case.get("reference_type", settings["model_type"])
    kind = transformers.models.auto.configuration_auto.CONFIG_MAPPING[model_type]
    settings.pop("model_type")
    return kind.from_dict(settings)


def model_class(case, config):
    architecture = config["architectures"][0]
    if "reference_type" in case:
        architecture = {"ministral": "MinistralForCausalLM"}.get(case["reference_type"], architecture)
    return getattr(transformers, case.get("reference_class", architecture))


def reference_of(case, config):
    if case.get("oracle") == "mlx":
        return mlx_oracle.reference(case, config)
    return f"transformers {transformers.__version__} {model_class(case, config).__name__}"


def published_names(case, config, folder):
    """Names and shapes as the checkpoint holds them; beside each, how its values become saved tensors."""
    with safe_open(folder / "model.safetensors", "np") as file:
        saved = {name: list(file.get_slice(name).get_shape()) for name in file.keys()}
    if "layout" in case:  # the case's own: {published name: (shape, {saved name: function of the values})}
        layout = dict(sorted(case["layout"](saved, config).items()))
        return ({name: list(shape) for name, (shape, _) in layout.items()},
                {name: lambda x, p=parts: {own: f(x) for own, f in p.items()} for name, (_, parts) in layout.items()})
    tensors, fill = {}, {}

    def add(name, shape, parts):
        tensors[name], fill[name] = list(shape), parts

    scheme = case.get("names", "saved")
    experts = re.compile(r"(.*\.mlp)\.experts\.(\d+)\.(\w+\.weight)")
    for name, shape in saved.items():
        found = experts.fullmatch(name)
        if scheme == "mlx" and found:  # experts stacked on a new leading axis
            if found[2] == "0":
                count = config["num_experts"]
                names = [f"{found[1]}.experts.{i}.{found[3]}" for i in range(count)]
                add(f"{found[1]}.switch_mlp.{found[3]}", [count, *shape], lambda x, n=names: dict(zip(n, x)))
        elif scheme == "mlx" and name.endswith("conv1d.weight"):  # channels last
            add(name, [shape[0], shape[2], 1], lambda x, n=name: {n: x.transpose(0, 2, 1)})
        elif scheme == "mlx" and name.startswith("transformer."):  # linear layers in place of Conv1D
            own = name.replace("transformer.", "model.", 1)
            if len(shape) == 2 and ".h." in name:
                add(own, shape[::-1], lambda x, n=name: {n: x.T})
            else:
                add(own, shape, lambda x, n=name: {n: x})
        elif scheme == "gpt2_published":
            add(name.removeprefix("transformer."), shape, lambda x, n=name: {n: x})
        elif scheme == "bert_published":
            older = re.sub("LayerNorm.weight$", "LayerNorm.gamma", re.sub("LayerNorm.bias$", "LayerNorm.beta", name))
            add(older, shape, lambda x, n=name: {n: x})
        else:
            add(name, shape, lambda x, n=name: {n: x})
    if scheme == "gpt2_published":  # buffers of older exports
        size = config["n_positions"]
        for layer in range(config["n_layer"]):
            add(f"h.{layer}.attn.bias", [1, 1, size, size], lambda x: {})
    if scheme == "bert_published":
        add("bert.embeddings.position_ids", [1, config["max_position_embeddings"]], lambda x: {})
    return dict(sorted(tensors.items())), fill


def quantized(case, name, shape):
    """How a weight of a quantised case is kept; nothing for what stays dense."""
    planes = case.get("quantize")
    if not planes or len(shape) < 2 or shape[-1] % planes["group"] or "conv1d" in name:
        return None
    return {"bits": planes["embedding_bits"] if "embed" in name else planes["bits"], "group": planes["group"]}


def sixteen_bits(module, inputs):
    """Rounds a linear layer's input as the `high` precision does: 16-bit integers, one scale a group of 32."""
    x = inputs[0]
    padded = torch.nn.functional.pad(x, (0, -x.shape[-1] % 32)).unflatten(-1, (-1, 32))
    scale = padded.abs().amax(-1, keepdim=True).clamp(min=1e-30) / 32639
    return ((padded / scale).round() * scale).flatten(-2)[..., : x.shape[-1]], *inputs[1:]


def margin(router_logits, k):
    """The least gap between the last expert chosen and the first one left out."""
    if k == router_logits.shape[-1]:
        return float("inf")
    ordered = router_logits.sort(-1, descending=True).values
    return float((ordered[:, k - 1] - ordered[:, k]).min())


def filled(case, name, shape, variant=None):
    planes = quantized(case, name, shape)
    out = affine_values(name, shape, **planes) if planes else values(name, shape)
    if variant != "nudged":
        return out
    noise = np.random.default_rng(zlib.crc32(name.encode())).standard_normal(out.shape)
    return (out * (1 + NUDGE * noise)).astype(np.float32)


def run(case, config, tensors, fill, tokens, positions=None, variant=None, margins=None):
    """Logits of every position, or hidden states for an encoder; float32. `variant`: "float64", "high" or
    "nudged"."""
    if case.get("oracle") == "mlx":
        return mlx_oracle.run(case, config, {n: filled(case, n, shape, variant) for n, shape in tensors.items()}, fill,
                              tokens)
    kind = model_class(case, config)
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        parsed = config_of(case, config)
        parsed.save_pretrained(folder)
        state = {}
        for name, shape in tensors.items():
            for part, array in fill[name](filled(case, name, shape, variant)).items():
                state[part] = torch.from_numpy(np.ascontiguousarray(array).reshape(np.shape(array)))
        save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
        model, info = kind.from_pretrained(
            folder, config=parsed, dtype=torch.float64 if variant == "float64" else torch.float32,
            attn_implementation="eager", experts_implementation="eager", output_loading_info=True)
    problems = {key: value for key, value in info.items() if value}
    assert not problems, f"{kind.__name__}: {problems}"
    model.eval()
    if variant == "high":
        for module in model.modules():
            if isinstance(module, (torch.nn.Linear, transformers.pytorch_utils.Conv1D)):
                module.register_forward_pre_hook(sixteen_bits)
    margins = [] if margins is None else margins
    for module in model.modules():
        if type(module).__name__.endswith("TopKRouter"):
            module.register_forward_hook(lambda router, _, output: margins.append(margin(output[0], router.top_k)))
    if "draft" in case:
        return draft_logits(model, tokens, case["draft"])
    if "prompt" in case:
        return written_logits(model, tokens, case["prompt"])
    ids = torch.tensor([tokens])
    extra = {} if positions is None else {"position_ids": torch.tensor([positions])}
    if "block" in case:  # blocks of tokens see each other, and what is before them
        number = torch.arange(len(tokens)) // case["block"](config)
        seen = number[:, None] >= number[None, :]
        dtype = torch.float64 if variant == "float64" else torch.float32
        extra["attention_mask"] = torch.zeros(seen.shape, dtype=dtype).masked_fill(~seen, float("-inf"))[None, None]
    with torch.no_grad():
        if is_classifier(config):
            if "second" in case:
                extra["token_type_ids"] = (torch.arange(len(tokens)) >= case["second"]).long()[None]
            scores = model(input_ids=ids, attention_mask=torch.ones_like(ids), **extra).logits.numpy()
            return np.repeat(scores, len(tokens), 0)
        if is_encoder(config):
            encoder = next((getattr(model, name) for name in ("bert", "roberta") if hasattr(model, name)), model)
            extra.setdefault("attention_mask", torch.ones_like(ids))
            return encoder(input_ids=ids, **extra).last_hidden_state[0].numpy()
        logits = model(input_ids=ids, use_cache=False, **extra).logits[0].numpy()
    return logits


def draft_logits(model, tokens, count):
    """Of what is known; of the last `count` tokens, a draft behind it, in the second of two rounds."""
    cache = transformers.DynamicCache(config=model.config.get_text_config())
    known, draft = torch.tensor([tokens[:-count]]), torch.tensor([tokens[-count:]])
    with torch.no_grad():
        hidden = model.model.encoder(input_ids=known, cache=cache).last_hidden_state
        cap = model.final_logit_softcapping
        first = model(cache=cache, decoder_input_ids=draft).logits
        second = model(cache=cache, decoder_input_ids=draft, self_conditioning_logits=first).logits
        return torch.cat([cap * torch.tanh(model.lm_head(hidden) / cap), second], 1)[0].numpy()


def written_logits(model, tokens, prompt):
    """Of a prompt, and of the tokens behind it as the model would write them: one by one, onto its cache."""
    cache, rows = transformers.DynamicCache(config=model.config.get_text_config()), []
    with torch.no_grad():
        for part in (tokens[:prompt], *([token] for token in tokens[prompt:])):
            rows.append(model(input_ids=torch.tensor([part]), cache=cache, use_cache=True).logits[0])
    return torch.cat(rows).numpy()


def log_probabilities(logits):
    x = logits.astype(np.float64)
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def distance(encoder, golden, other):
    """What the test measures: the largest difference of log-probabilities above -10, or of hidden states."""
    if encoder:
        return float(np.abs(golden - other).max())
    a, b = log_probabilities(golden), log_probabilities(other)
    return float(np.abs(a - b)[a > -10].max())


def saved_spelling(case, config):
    with tempfile.TemporaryDirectory() as temporary:
        config_of(case, config).save_pretrained(temporary)
        text = (pathlib.Path(temporary) / "config.json").read_text()
    saved = json.loads(text)
    saved["architectures"] = config["architectures"]
    for key in ("transformers_version", "initializer_range"):
        saved.pop(key, None)
    return saved


def rounded(array):
    return [[float(f"{x:.7g}") for x in row] for row in array]


def generate(name, case):
    config = {key: value for key, value in case["config"].items() if key not in case.get("drop", ())}
    encoder = is_encoder(config)
    sizes = {**config, **config.get("text_config", {}), **config.get("language_config", {})}
    length = case.get("length", min(TOKENS, sizes.get("max_position_embeddings", TOKENS)))
    vocabulary = case.get("below") or sizes["vocab_size"]  # tokens of images begin there

    if case.get("oracle") == "mlx":
        tensors, fill = mlx_oracle.published_names(case, config)
    else:
        with tempfile.TemporaryDirectory() as temporary:
            folder = pathlib.Path(temporary)
            model_class(case, config)(config_of(case, config)).save_pretrained(folder)
            tensors, fill = published_names(case, config, folder)

    # Rounding may not change which experts are chosen, or the comparison would mean nothing: the first tokens
    # that leave no near tie are taken.
    for seed in range(zlib.crc32(name.encode()), 1 << 33):
        tokens = np.random.default_rng(seed).integers(case.get("from", 0), vocabulary, length).tolist()
        margins = []
        golden = run(case, config, tensors, fill, tokens, margins=margins)
        if margins and min(margins) <= 2e-3:
            continue
        variants = ["nudged", "high"] if case.get("chooses") else ["nudged"]
        if all(distance(encoder, golden, run(case, config, tensors, fill, tokens, variant=v)) < STEADY for v in variants):
            break
    assert np.isfinite(golden).all()
    keep = sorted({0, 1, 2, length // 4, length - 1} |
                  set(np.random.default_rng(seed + 1).permutation(length)[:STORED - 4].tolist()))

    if is_classifier(config):
        keep = [0]
    spellings = [merge(config, patch) for patch in case.get("also", [])]
    if case.get("also_saved", case.get("oracle") != "mlx"):
        spellings.append(saved_spelling(case, config))
    for spelling in spellings:
        other = distance(encoder, golden, run(case, spelling, tensors, fill, tokens))
        assert other < 1e-6, f"{name}: a spelling changes the model by {other}: {spelling}"

    mutants, report = [], []
    for patch in case["mutants"]:
        moved = distance(encoder, golden[keep], run(case, merge(config, patch), tensors, fill, tokens)[keep])
        report.append(f"{json.dumps(patch)} {moved:.3f}")
        assert moved > (1e-2 if encoder else SENSITIVITY), f"{name}: mutant {patch} moves only {moved}"
        mutants.append({"patch": patch, "distance": float(f"{moved:.4g}")})

    # How much the reference itself moves by rounding: a case that amplifies it is of no use.
    for variant in ("float64", "high") if case.get("oracle") != "mlx" else ():
        moved = distance(encoder, golden, run(case, config, tensors, fill, tokens, variant=variant))
        report.append(f"{variant} {moved:.1e}")

    # Positions and masks must matter, or the golden proves little.
    changed = [(tokens[0] + 1) % vocabulary, *tokens[1:]]
    reach = np.abs(run(case, config, tensors, fill, changed) - golden).max(-1)
    report.append(f"first token reaches {int(np.nonzero(reach > 1e-3)[0].max())}/{length - 1}")
    if config["model_type"] != "mamba2" and case.get("oracle") != "mlx" and not case.get("no_positions"):
        stretched = list(range(length))
        stretched[length // 2:] = [p + 1 for p in stretched[length // 2:]]
        stretched[-1] = length - 1  # learned positions end here
        moved = distance(encoder, golden, run(case, config, tensors, fill, tokens, stretched))
        report.append(f"shifted positions {moved:.3f}")
        assert moved > (1e-2 if encoder else SENSITIVITY), f"{name}: positions move only {moved}"

    planes = {name: quantized(case, name, shape) for name, shape in tensors.items() if quantized(case, name, shape)}
    body = {
        "name": name,
        "reference": reference_of(case, config),
        "config": config,
        "spellings": spellings,
        "tensors": tensors,
        **({"quantized": planes} if planes else {}),
        **({"scored": True} if is_classifier(config) else {}),
        **({"second": case["second"]} if "second" in case else {}),
        **({"draft": case["draft"]} if "draft" in case else {}),
        **({"prompt": case["prompt"]} if "prompt" in case else {}),
        "tokens": tokens,
        "positions": keep,
        ("hidden" if encoder else "logits"): rounded(golden[keep]),
        "mutants": mutants,
    }
    return body, report


def row_text(row):
    text = json.dumps(row, separators=(",", ":"))
    # JSON has no infinity, but config files do: such a spelling is kept as text.
    return json.dumps(text) if "Infinity" in text and "__float__" not in text else text


def lines(body):
    """One key a line; one row of values a line."""
    parts = []
    for key, value in body.items():
        if key in ("logits", "hidden", "mutants", "spellings"):
            text = "[\n    " + ",\n    ".join(row_text(row) for row in value) + "\n  ]"
        else:
            text = json.dumps(value, separators=(",", ":"))
        parts.append(f"  {json.dumps(key)}: {text}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def main():
    root = pathlib.Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=root / "tests/golden/data")
    parser.add_argument("cases", nargs="*", help="names, or patterns of names")
    options = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    options.out.mkdir(parents=True, exist_ok=True)
    failed = 0
    for name, case in CASES.items():
        if options.cases and not any(fnmatch.fnmatch(name, pattern) for pattern in options.cases):
            continue
        try:
            body, report = generate(name, case)
        except Exception as error:
            failed += 1
            print(f"{name}: FAILED {type(error).__name__}: {error}", flush=True)
            continue
        path = options.out / f"{name}.json"
        path.write_text(lines(body))
        print(f"{name}: {path.stat().st_size} B; " + "; ".join(report), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
