"""mlx-lm as the reference, for families that transformers lacks (or has otherwise than their publishers).

A case says `"oracle": "mlx"`. Its tensors are published in mlx-lm's own layout unless it says more:
`unstack`: True writes `switch_mlp` tensors as numbered `experts`; `rename`: regular expressions and replacements, applied in
order to the names; `layout`: a function as in generate.py, for everything else. `sanitize` then takes them back (not
where `sanitized` is true). `package`: "mlx_vlm" for texts beside towers; `answers`: which of the logits count.
"""

import copy
import importlib
import re

import numpy as np


def classes(case, config):
    name = case.get("package", "mlx_lm")  # slow to import: only where it is needed
    module = importlib.import_module(f"{name}.models." + case.get("reference_type", config["model_type"]))
    arguments = module.ModelArgs if name == "mlx_lm" else module.ModelConfig
    return f"{name.replace('_', '-')} {importlib.import_module(name).__version__}", module.Model, arguments


def settings(case, config):
    own = case.get("reference_config", lambda c: c)(dict(config))  # where the reference spells it otherwise
    return {**own, "model_type": case.get("reference_type", config["model_type"])}


def reference(case, config):
    version, model, _ = classes(case, config)
    return f"{version} {model.__module__.rsplit('.', 1)[-1]}"


def build(case, config):
    _, model, arguments = classes(case, config)
    made = model(arguments.from_dict(copy.deepcopy(settings(case, config))))
    case.get("prepare", lambda m: None)(made)
    return made


def published_names(case, config):
    from mlx.utils import tree_flatten

    saved = {name: list(value.shape) for name, value in tree_flatten(build(case, config).parameters())}
    if "layout" in case:
        layout = dict(sorted(case["layout"](saved, config).items()))
        return ({name: list(shape) for name, (shape, _) in layout.items()},
                {name: lambda x, p=parts: {own: f(x) for own, f in p.items()} for name, (_, parts) in layout.items()})
    tensors = {}
    for name, shape in saved.items():
        found = re.fullmatch(r"(.*)\.switch_mlp\.(.*)", name) if case.get("unstack") else None
        names = [f"{found[1]}.experts.{i}.{found[2]}" for i in range(shape[0])] if found else [name]
        for own in names:
            for pattern, replacement in case.get("rename", ()):
                own = re.sub(pattern, replacement, own)
            tensors[own] = shape[1:] if found else shape
    return dict(sorted(tensors.items())), {name: lambda x, n=name: {n: x} for name in tensors}


def run(case, config, tensors, fill, tokens):
    """Logits of every position, float32."""
    import mlx.core as mx

    model = build(case, config)
    weights = {}
    for name, values in tensors.items():
        for part, array in fill[name](values).items():
            weights[part] = mx.array(np.ascontiguousarray(array)).reshape(array.shape)
    if hasattr(model, "sanitize") and not case.get("sanitized"):
        weights = model.sanitize(weights)
    model.load_weights(list(weights.items()), strict=True)
    model.eval()
    if case.get("package") == "mlx_vlm":
        from mlx_vlm.models.cache import make_prompt_cache  # some see both ways without one

        text = model.lm if hasattr(model, "lm") else model.language_model
        logits = text(mx.array([tokens]), cache=make_prompt_cache(text)).logits
    else:
        logits = model(mx.array([tokens]))
    return case.get("answers", lambda x: x)(np.array(logits.astype(mx.float32)[0]))
