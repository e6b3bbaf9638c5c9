"""Writes goldens as GGUF through llama.cpp's own converter, to check our tables of GGUF names, keys and values.

    python tools/golden/to_gguf.py LLAMA_CPP_FOLDER CASE...

Per case it records tests/golden/gguf/CASE.json: the metadata as written, and for each tensor which values of the
published ones it holds and in what order. The test makes the file from that (tests/golden/gguf_test.cpp), so no
weights are stored. Orders are found by converting a checkpoint whose values are their own addresses.
"""

import argparse
import contextlib
import fnmatch
import json
import pathlib
import sys
import tempfile

import numpy as np
import torch
from safetensors.torch import save_file

from synthetic import values

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "tests/golden"
MOST_VALUES = 256  # a tensor that follows from the config (rotary divisors) is kept as it is
MOST_PIECES = 64
EMBEDDERS = ("qwen3", "gemma3_text", "llama_bidirec")  # decoders without a head, with a pooling beside them
RAW = ("exaone", "gpt_neox", "mimo_v2_flash", "phimoe", "step3p5", "bailing_moe", "minimax_m3_vl", "granitemoehybrid")


def listed(value, layers):
    return value if isinstance(value, list) else [value] * layers


def adjusted(config):
    """What the converter wants spelled where the model has a default, or spelled in another way."""
    config = dict(config)
    kind = config["model_type"]
    layers = config.get("num_hidden_layers")
    if kind == "falcon_h1":
        config.setdefault("head_dim", config["hidden_size"] // config["num_attention_heads"])
    if config.get("time_step_rank") == "auto":
        config["time_step_rank"] = -(-config["hidden_size"] // 16)
    if kind == "nemotron_h":
        config.setdefault("mamba_d_head", config["mamba_head_dim"])
        pattern = config.get("hybrid_override_pattern", "")
        if pattern and "E" not in pattern:  # transformers gives it experts, and the converter another name
            config["num_hidden_layers"] = len(pattern)
            config.setdefault("layer_norm_epsilon", 1e-5)
    if kind == "hunyuan_v1_moe":
        config["moe_intermediate_size"] = listed(config.get("moe_intermediate_size", config["intermediate_size"]), layers)
        config["moe_topk"] = listed(config["moe_topk"], layers)
        config["num_shared_expert"] = listed(config.get("num_shared_expert", 1), layers)
    if kind == "mistral4":
        config["architectures"] = ["Mistral3ForConditionalGeneration"]
    if kind == "phimoe":
        config["architectures"] = ["PhiMoEForCausalLM"]
        config.setdefault("original_max_position_embeddings", config["max_position_embeddings"])
    if kind == "bailing_moe":
        config.setdefault("partial_rotary_factor", 1.0)
    if kind == "bailing_moe" and ("score_function" in config or config.get("first_k_dense_replace")):
        config["architectures"] = ["BailingMoeV2ForCausalLM"]
        config.setdefault("routed_scaling_factor", 1.0)
        config.setdefault("score_function", "softmax")
    if kind == "solar_open":
        config.setdefault("partial_rotary_factor", 1.0)
    if kind == "internlm3":
        config.setdefault("head_dim", config["hidden_size"] // config["num_attention_heads"])
    if kind == "mamba" and "expand" in config:
        config.setdefault("intermediate_size", config["expand"] * config["hidden_size"])
    if kind == "gpt_neox":
        config.setdefault("rotary_pct", config.get("rope_parameters", {}).get("partial_rotary_factor", 0.25))
    if kind == "nemotron-nas":
        config["block_configs"] = [
            {"attention": {"n_heads_in_group": None, "replace_with_linear": False, **block["attention"]},
             "ffn": {"ffn_mult": None, **block["ffn"]}} for block in config["block_configs"]]
    if kind == "cohere2":
        config.setdefault("rotary_pct", 1.0)
    if kind == "exaone":
        config.setdefault("activation_function", "silu")
    if kind == "minimax_m2":
        config.setdefault("rotary_dim", config["head_dim"])
    if kind == "minimax_m3_vl" and "text_config" in config:
        config["text_config"] = {"n_shared_experts": 1, **config["text_config"]}
    if kind == "kimi_k25":
        config["architectures"] = ["KimiK25ForConditionalGeneration"]
    if kind == "kimi_vl":
        config["architectures"] = ["KimiVLForConditionalGeneration"]
    if kind == "kimi_k3":
        config["text_config"] = {"moe_router_activation_func": "sigmoid", **config["text_config"]}
        config["architectures"] = ["KimiK3ForConditionalGeneration"]
    if kind == "deepseek_vl_v2":  # text keys stand beside their block in what is published
        config = {**config, **config["language_config"], "architectures": ["DeepseekOCRForCausalLM"]}
    if kind == "deepseek_v4":
        config.setdefault("norm_topk_prob", True)
    if kind == "xlm-roberta" and config["architectures"] == ["XLMRobertaForMaskedLM"]:
        config["architectures"] = ["XLMRobertaModel"]
    if kind == "mimo_v2_flash":
        ropes = config.pop("rope_parameters")
        slides = [int(one == "sliding_attention") for one in config.pop("layer_types")]
        config |= {
            "rope_theta": ropes["full_attention"]["rope_theta"],
            "local_rope_theta": ropes["sliding_attention"]["rope_theta"],
            "partial_rotary_factor": ropes["full_attention"]["partial_rotary_factor"],
            "hybrid_layer_pattern": slides, "topk_method": "noaux_tc", "layernorm_epsilon": config["rms_norm_eps"],
            "moe_layer_freq": [int(one == "sparse") for one in config.pop("mlp_layer_types")]}
        config.setdefault("swa_num_key_value_heads", min(2 * config["num_key_value_heads"],
                                                         config["num_attention_heads"]))
        for key in ("head_dim", "v_head_dim", "num_attention_heads"):
            config.setdefault(f"swa_{key}", config[key])
    return config


def buffer(name):
    """GPT-2's masks, which its converter means to leave out."""
    return name.endswith(".attn.bias") and name.startswith(("h.", "transformer.h."))


@contextlib.contextmanager
def raw_config(model, config):
    """Configs of some families as they are, not as transformers reads them: their converters want keys that it drops."""
    load = model.load_hparams
    dense = config["model_type"] == "nemotron_h" and "num_hidden_layers" in config
    if config["model_type"] in RAW or dense:
        model.load_hparams = staticmethod(lambda *args, **named: json.loads(json.dumps(config)))
    try:
        yield
    finally:
        model.load_hparams = staticmethod(load)


def plain_experts(model):
    """In place of a converter's own way with experts, which wants them packed: stacked, as their values are."""
    import gguf

    for bid in range(model.block_count):
        for part, key in (("w1", gguf.MODEL_TENSOR.FFN_GATE_EXP), ("w2", gguf.MODEL_TENSOR.FFN_DOWN_EXP),
                          ("w3", gguf.MODEL_TENSOR.FFN_UP_EXP)):
            names = [f"layers.{bid}.ffn.experts.{i}.{part}.weight" for i in range(model.hparams["n_routed_experts"])]
            stacked = torch.stack([model.model_tensors.pop(name)() for name in names])
            model.gguf_writer.add_tensor(model.format_tensor_name(key, bid), stacked.numpy())
    return ()


def sized_plamo(kind, config):
    """The converter's order of heads, with the config's sizes in place of the 13B model's."""
    shared, heads = config["n_shared_head"], config["num_attention_heads"]
    groups, width = heads // shared, config["hidden_size"] // heads
    parameters = kind.set_gguf_parameters

    def set_parameters(self):
        add = self.gguf_writer.add_head_count_kv
        self.gguf_writer.add_head_count_kv = lambda _: add(groups)
        parameters(self)

    kind.set_gguf_parameters = set_parameters
    kind.shuffle_attn_q_weight = lambda self, x: (
        x.reshape(shared, groups, width, -1).permute(1, 0, 2, 3).reshape(x.shape))
    kind.shuffle_attn_output_weight = lambda self, x: (
        x.reshape(-1, shared, groups, width).permute(0, 2, 1, 3).reshape(x.shape))


def convert(case, state, target):
    import conversion
    import gguf
    from conversion import base

    config = adjusted(case["config"])
    if config["model_type"] == "bitnet":  # the converter knows the norms by the first models' names
        state = {name.replace("attn_sub_norm", "inner_attn_ln").replace("ffn_sub_norm", "ffn_layernorm"): value
                 for name, value in state.items()}
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        (folder / "config.json").write_text(json.dumps(config))
        # Gemma's converter counts the rows that have a token.
        vocabulary = {str(i): i for i in range(config.get("text_config", config).get("vocab_size", 0))}
        (folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": vocabulary}, "added_tokens": []}))
        if "hidden" in case and config["model_type"] in EMBEDDERS:
            modules = [{"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}]
            (folder / "modules.json").write_text(json.dumps(modules))
            (folder / "1_Pooling").mkdir()
            (folder / "1_Pooling/config.json").write_text(json.dumps({"pooling_mode_mean_tokens": True}))
        save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
        with raw_config(base.ModelBase, config), torch.inference_mode():
            hparams = base.ModelBase.load_hparams(folder, False)
            kind = conversion.get_model_class(base.get_model_architecture(hparams, base.ModelType.TEXT), mmproj=False)
            inner = [one for one in vars(kind).values() if isinstance(one, type)]
            for one in [parent for outer in (kind, *inner) for parent in outer.__mro__]:
                if "set_vocab" in vars(one):
                    one.set_vocab = base.TextModel._set_vocab_none
            for one in (one for one in kind.__mro__ if one.__module__ != base.__name__):
                for name, value in vars(one).items():  # what converters keep from one model to the next
                    if isinstance(value, dict) and not name.startswith("__") and not name.isupper():
                        value.clear()
            kind.no_mtp = True
            if config["model_type"] == "deepseek_v4":
                kind.generate_extra_tensors = plain_experts
            if config["model_type"] == "plamo":
                sized_plamo(kind, config)
            if config["model_type"] == "bitnet":  # rounding to three values would hide where they go
                kind.weight_quant = lambda self, x: x
            kind(folder, gguf.LlamaFileType.ALL_F32, target, model_name=case["name"]).write()
    return gguf.GGUFReader(target)


def addresses(case):
    """Every value a number of its own, a multiple of four."""
    state, spans, at = {}, [], 1
    for name, shape in case["tensors"].items():
        count = int(np.prod(shape, dtype=np.int64))
        ids = np.arange(at, at + count, dtype=np.float64) * 4
        assert ids[-1] < 2**24, "float32 does not count so far"
        state[name] = torch.from_numpy(ids.astype(np.float32).reshape(shape))
        spans.append((at, at + count, name))
        at += count
    return state, spans


def steps(order):
    """[(size, stride)], outermost first, of a regular run of numbers; None where it has no such form."""
    if len(order) == 1:
        return [(1, 1)]
    stride = order[1] - order[0]
    breaks = np.nonzero(np.diff(order) != stride)[0]
    run = len(order) if len(breaks) == 0 else int(breaks[0]) + 1
    if run == len(order):
        return [(run, int(stride))]
    for size in range(run, 1, -1):
        if len(order) % size:
            continue
        blocks = order.reshape(-1, size)
        if (blocks == blocks[:, :1] + stride * np.arange(size)).all():
            outer = steps(blocks[:, 0])
            return outer and outer + [(size, int(stride))]
    return None


def walks(order, first, last, name):
    """A run of one tensor's values as pieces: the whole, a regular walk, or several straight ones."""
    own = order - first
    walk = steps(own)
    if walk == [(last - first, 1)]:
        return [name]
    if walk:
        return [{"of": name, "at": int(own[0]), "sizes": [size for size, _ in walk],
                 "strides": [stride for _, stride in walk]}]
    cuts = [0, *(np.nonzero(np.diff(own) != 1)[0] + 1).tolist(), len(own)]
    assert len(cuts) - 1 <= MOST_PIECES, f"no regular order of {name}"
    return [{"of": name, "at": int(own[begin]), "sizes": [end - begin], "strides": [1]}
            for begin, end in zip(cuts, cuts[1:])]


def pieces(order, spans):
    """Which runs of which tensors lie one after another; -1 stands for a zero."""
    starts = np.array([first for first, _, _ in spans])
    owners = np.where(order < 0, -1, np.searchsorted(starts, order, side="right") - 1)
    cuts = [0, *(np.nonzero(np.diff(owners))[0] + 1).tolist(), len(order)]
    assert len(cuts) - 1 <= MOST_PIECES, "too many pieces"
    found = []
    for begin, end in zip(cuts, cuts[1:]):
        if owners[begin] < 0:
            found.append({"zeros": end - begin})
        else:
            found += walks(order[begin:end], *spans[owners[begin]])
    return found


def describe(tensor, spans):
    """A tensor of the address file in terms of the published ones; None where arithmetic hides the addresses."""
    flat = np.asarray(tensor.data, dtype=np.float64).reshape(-1)
    if not np.isfinite(flat).all() or (flat != np.round(flat)).any() or flat.min() < 0:
        return None
    held = flat[flat > 0]
    rest = np.unique(held % 4)
    if len(rest) != 1 or rest[0] not in (0, 1) or held.min() < 4 or held.max() >= 4 * spans[-1][1]:
        return None
    entry = {"pieces": pieces(np.where(flat > 0, (flat - rest[0]) / 4, -1).astype(np.int64), spans)}
    if rest[0] == 1:
        entry["change"] = "plus_one"
    return entry


CHANGES = {"minus_exp": lambda x: -np.exp(x), "negative": lambda x: -x}


def scaled_runs(flat, name, source):
    """Runs of a tensor, each times a number of its own, as pieces; None where it is something else."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = flat.astype(np.float64) / source
    cuts, most = [0], 8 if len(flat) >= 256 else 1
    while cuts[-1] < len(flat):
        same = np.isclose(ratio[cuts[-1]:], ratio[cuts[-1]], rtol=1e-5, atol=0)
        ends = np.nonzero(~same)[0]
        cuts.append(len(flat) if len(ends) == 0 else cuts[-1] + int(ends[0]))
        if len(cuts) - 1 > most:
            return None
    return [{"of": name, "at": begin, "sizes": [end - begin], "strides": [1],
             "times": float(np.median(ratio[begin:end]))} for begin, end in zip(cuts, cuts[1:])]


def describe_values(tensor, published):
    """The same from the true values, for what arithmetic changed."""
    flat = np.asarray(tensor.data, dtype=np.float32).reshape(-1)
    for name, source in published.items():
        source = source.reshape(-1)
        if source.size != flat.size:
            continue
        for change, function in CHANGES.items():
            if np.allclose(function(source), flat, rtol=1e-6, atol=0):
                return {"pieces": [name], "change": change}
        if runs := scaled_runs(flat, name, source):
            return {"pieces": runs}
    assert flat.size <= MOST_VALUES, f"{tensor.name}: unknown arithmetic"
    return {"values": [float(x) for x in flat]}


def spelled(value):
    """JSON has no infinity."""
    if isinstance(value, list):
        return [spelled(one) for one in value]
    return str(value) if isinstance(value, float) and np.isinf(value) else value


def metadata(reader):
    import gguf

    kept = {}
    for key, field in reader.fields.items():
        if key == "tokenizer.chat_template" or key.startswith("GGUF.") or (key.startswith("general.") and key != "general.architecture"):
            continue
        kinds = [gguf.GGUFValueType(kind).name.lower() for kind in field.types]
        kept[key] = [*kinds, spelled(field.contents())]
    return kept


def record(case, scratch):
    assert "quantized" not in case, "kept as MLX's planes"
    case = {**case, "tensors": {name: shape for name, shape in case["tensors"].items() if not buffer(name)}}
    state, spans = addresses(case)
    reader = convert(case, state, scratch / "addresses.gguf")
    tensors = {tensor.name: describe(tensor, spans) for tensor in reader.tensors}
    published = {name: values(name, shape) for name, shape in case["tensors"].items()}
    true = convert(case, {name: torch.from_numpy(value) for name, value in published.items()}, scratch / "values.gguf")
    for tensor in true.tensors:
        if tensors[tensor.name] is None:
            tensors[tensor.name] = describe_values(tensor, published)
    for tensor in reader.tensors:
        assert tensor.tensor_type == 0, f"{tensor.name} is not F32"
        tensors[tensor.name] = {"axes": [int(axis) for axis in tensor.shape], **tensors[tensor.name]}
    lines = ",\n".join(f"    {json.dumps(name)}: {json.dumps(entry, separators=(',', ':'))}"
                       for name, entry in tensors.items())
    keys = ",\n".join(f"    {json.dumps(key)}: {json.dumps(entry)}" for key, entry in metadata(true).items())
    (FOLDER / "gguf" / f"{case['name']}.json").write_text(
        f'{{\n  "metadata": {{\n{keys}\n  }},\n  "tensors": {{\n{lines}\n  }}\n}}\n')


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("llama_cpp", type=pathlib.Path)
    parser.add_argument("cases", nargs="+")
    options = parser.parse_args()
    sys.path.insert(0, str(options.llama_cpp))
    sys.path.insert(0, str(options.llama_cpp / "gguf-py"))
    from conversion import base

    base.TextModel.set_vocab = base.TextModel._set_vocab_none
    (FOLDER / "gguf").mkdir(exist_ok=True)
    for path in sorted((FOLDER / "data").glob("*.json")):
        if not any(fnmatch.fnmatch(path.stem, pattern) for pattern in options.cases):
            continue
        try:
            with tempfile.TemporaryDirectory() as scratch:
                record(json.loads(path.read_text()), pathlib.Path(scratch))
            print(f"{path.stem}: recorded", flush=True)
        except Exception as error:
            print(f"{path.stem}: FAILED {type(error).__name__}: {error}", flush=True)


if __name__ == "__main__":
    main()
