"""Random legal variants of the golden cases' configs, through transformers and through dump_logits.

    python tools/golden/vary.py [--dump PROGRAM] [--seed N] [--count N] [--pairs N] [--case PATTERN]... [--part I/N]

Changes one field of a config at a time (another value, null, left out, another rotation), or with --pairs two or
three, lets transformers say what is legal and what the logits are, and compares. Prints a line for whatever is
not equal, and a table at the end. Writes nothing that is kept: what it finds becomes a case of a configs*.py.
"""

import argparse
import collections
import copy
import fnmatch
import json
import pathlib
import random
import re
import subprocess
import tempfile
import zlib

import numpy as np
import torch
import transformers
from safetensors.numpy import save_file

import generate

ABSENT = "left out"
# Says nothing about the answer: what training, generation and other languages' loaders read.
IDLE = re.compile(r".*(token_id|token_index|token_ids|initializer|rescale_prenorm|dropout|drop_?rate|jitter|_coef|loss|pdrop|init_).*|"
                  r"use_cache|output_.*|return_dict|dtype|torch_dtype|architectures|model_type|transformers_version|"
                  r"_.*|problem_type|id2label|label2id|num_labels|chunk_size_feed_forward|is_encoder_decoder|is_decoder|"
                  r"pretraining_tp|vocab_size.*|use_mamba_kernels|time_step_(min|max|floor)|dt_(min|max)|experts_imp.*|"
                  r"vision_.*|audio_.*|.*tower.*|vit_.*|projector.*|quantization.*|rope_scaling|rope_parameters|add_cross_.*|"
                  r"max_position_embeddings|num_nextn_predict_layers|auto_map|name|attn_implementation|cross_attention_hidden_size")
ACTIVATIONS = ("silu", "swish", "gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh", "relu", "relu2")
# Every file names these; other values of them are other shapes, of which few are needed.
SHAPE = re.compile(r"vocab_size|hidden_size|n_embd|num_(hidden_)?layers|n_layer|num_attention_heads|n_head|n_positions|n_ctx|"
                   r"(moe_|shared_|shared_expert_)?intermediate_size.*|n_inner")
ROPE_KEYS = ("rope_theta", "rope_scaling", "rope_parameters", "partial_rotary_factor")
# A value for fields that are null; others are made from the value that stands there.
FROM_NULL = {
    "sliding_window": (6, 64), "final_logit_softcapping": (4.0,), "attn_logit_softcapping": (3.0,), "clip_qkv": (0.7,),
    "head_dim": (8, 16, 20), "num_key_value_heads": (1,), "q_lora_rank": (20,), "n_shared_experts": (1,), "n_inner": (70,),
    "n_group": (1,), "topk_group": (1,), "rope_theta": (100.0,), "attention_chunk_size": (8,), "scale_attn_weights": (False,),
}
# Where the reference drops a field that it documents, or reads one that no published file can have.
KNOWN = {
    # Documented, but its attention is not given the one, nor the model with a tower the other.
    "gemma3_text": ("attn_logit_softcapping", "final_logit_softcapping"),
    "deepseek_v4": ("norm_topk_prob", "index_n_heads"),  # not read; few heads leave ties at zero among the keys
    "deepseek_v2": ("norm_topk_prob",),  # not read; here it means what DeepSeek's own code makes of it
    "olmo3": ("rope_theta",),  # its sliding layers keep the default: the key is taken out twice
}
LARGEST = 256  # a default larger than this would make a large model


def sites(config, path=()):
    """Where the text model's settings stand: paths of objects."""
    found = [path] if any(key in config for key in ("hidden_size", "n_embd", "d_model", "num_hidden_layers")) else []
    for key, value in config.items():
        if isinstance(value, dict) and re.search("text|llm|language|thinker|llava_", key) and "vision" not in key:
            found += sites(value, path + (key,))
    return found


def at(config, path):
    for key in path:
        config = config[key] if isinstance(config, dict) else getattr(config, key)
    return config


def edited(config, edits):
    result = copy.deepcopy(config)
    for path, value in edits:
        place = at(result, path[:-1])
        if value is ABSENT:
            place.pop(path[-1], None)
        else:
            place[path[-1]] = copy.deepcopy(value)
    return result


def label(edits):
    return ", ".join(f"-{'.'.join(path)}" if value is ABSENT else f"{'.'.join(path)}={json.dumps(value)}"
                     for path, value in edits)


def other_values(key, value, settings, draw):
    """What the field may hold instead."""
    heads = settings.get("num_attention_heads") or settings.get("n_head") or 4
    if isinstance(value, bool):
        return [not value]
    if key in ("num_key_value_heads", "num_kv_heads") and isinstance(heads, int):
        return [n for n in range(1, heads + 1) if heads % n == 0 and n != value]
    if isinstance(value, str):
        return [name for name in ACTIVATIONS if name != value] if re.search("act", key) else []
    if value is None:
        return list(FROM_NULL.get(key, ()))
    if isinstance(value, float) or re.search("theta|base|eps", key):
        if "eps" in key:
            return [1e-6, 1e-5, 0.03]
        return [100.0, 1e6] if re.search("theta|base", key) else [value * 0.5 or 0.5, value * 1.7 or 1.7]
    if key == "head_dim":
        return [n for n in (8, 12, 24, 32) if n != value]
    if key in ("hidden_size", "n_embd"):
        return [value // 2, value * 2]
    if isinstance(value, int):
        return sorted({n for n in (1, 2, value - 1, value + 1, value // 2, value * 2) if 0 <= n <= 512} - {value})
    if isinstance(value, list) and value and all(isinstance(item, (str, int, bool)) for item in value):
        pool = sorted(set(value) | ({"full_attention", "sliding_attention"} if key == "layer_types" else set()))
        return [[draw.choice(pool) for _ in value] for _ in range(2)]
    return []


def rotation(draw, rotated, positions):
    """A block of one kind; `rotated` entries of a head turn."""
    kind = draw.choice(("default", "linear", "dynamic", "yarn", "llama3", "longrope"))
    block = {"rope_type": kind}
    original = draw.choice((16, 24, 32))
    if kind in ("linear", "dynamic"):
        block["factor"] = draw.choice((2.0, 3.5, 4))
    elif kind == "yarn":
        block |= {"factor": draw.choice((2.0, 4.0, 8)), "original_max_position_embeddings": original}
        for key, values in {"beta_fast": (6.0, 16), "beta_slow": (0.5, 2), "attention_factor": (1.3, None), "mscale": (1.2, 0.7),
                            "mscale_all_dim": (0.6, 1.0), "truncate": (False,)}.items():
            if draw.random() < 0.35:
                block[key] = draw.choice(values)
    elif kind == "llama3":
        block |= {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": original}
    elif kind == "longrope":
        block |= {name: [round(draw.uniform(1, 4), 2) for _ in range(rotated // 2)] for name in ("short_factor", "long_factor")}
        block["original_max_position_embeddings"] = draw.choice((24, 64))
        if draw.random() < 0.4:
            block |= draw.choice(({"factor": 4.0}, {"attention_factor": 1.2}))
    return block


def rope_edits(draw, path, settings, parsed):
    heads = settings.get("num_attention_heads") or settings.get("n_head") or 4
    width = parsed.get("qk_rope_head_dim") or parsed.get("head_dim") or settings.get("hidden_size", 64) // heads
    standing = parsed.get("rope_parameters") or {}
    tables = {key: value for key, value in standing.items() if isinstance(value, dict)}
    here = standing.get("partial_rotary_factor") or parsed.get("partial_rotary_factor") or 1.0
    turns_part = "partial_rotary_factor" in {**standing, **settings}  # others ignore the field, or fail
    part = draw.choice((0.5, 0.25, 1.0)) if turns_part and draw.random() < 0.4 else None
    block = rotation(draw, int(width * (part or here)), parsed.get("max_position_embeddings"))
    theta = draw.choice((100.0, 5000.0, 1e6))
    edits = [(path + (key,), ABSENT) for key in ROPE_KEYS]
    if tables or draw.random() < 0.5:  # everything in one block
        whole = {**block, "rope_theta": theta, **({"partial_rotary_factor": part or here} if part or here != 1.0 else {})}
        if "mrope_section" in standing:
            whole["mrope_section"] = standing["mrope_section"]
        if tables:
            whole = {key: whole if key == draw.choice(sorted(tables)) else value for key, value in tables.items()}
        edits.append((path + ("rope_parameters",), whole))
    else:
        if draw.random() < 0.5:
            block["type"] = block.pop("rope_type")
        if draw.random() < 0.8:
            edits.append((path + ("rope_theta",), theta))
        if part or here != 1.0:
            edits.append((path + ("partial_rotary_factor",), part or here))
        if "mrope_section" in standing:
            block["mrope_section"] = standing["mrope_section"]
        edits.append((path + ("rope_scaling",), block))
    if draw.random() < 0.3:
        edits.append((path + ("max_position_embeddings",), draw.choice((24, 64, 256))))
    return edits


def singles(case, config, draw):
    """Every single change that may be legal: lists of (path, value)."""
    changes = []
    whole = generate.config_of(case, config)
    if () not in sites(config):  # a wrapper, which may tie by itself
        changes += [[(("tie_word_embeddings",), value)] for value in (True, False, ABSENT)]
    for path in sites(config):
        settings = at(config, path)
        try:
            site = at(whole, path)
        except AttributeError:
            site = whole.get_text_config()
        parsed = site.to_dict()
        try:
            defaults = type(site)().to_dict()
        except Exception:
            defaults = {}
        names = type(site).attribute_map  # other words for a field: one of them is enough
        second = {key for key in parsed if any(names.get(own) == key or names.get(key) == own for own in settings)}
        for key in sorted(set(settings) | (set(parsed) - second - {"text_config"})):
            if key in KNOWN.get(parsed.get("model_type"), ()) or IDLE.fullmatch(key) or isinstance(settings.get(key), dict):
                continue
            value = settings.get(key, parsed.get(key))
            default = defaults.get(key)
            if SHAPE.fullmatch(key):
                values = other_values(key, value, {**parsed, **settings}, draw)
                changes += [[(path + (key,), draw.choice(values))]] if values and draw.random() < 0.3 else []
                continue
            if key in settings and not (isinstance(default, int) and default > LARGEST and re.search("size|dim|rank|embd|inner", key)):
                changes.append([(path + (key,), ABSENT)])
            if value is not None or key not in settings:
                changes.append([(path + (key,), None)])
            changes += [[(path + (key,), other)] for other in other_values(key, value, {**parsed, **settings}, draw)]
        if parsed.get("rope_parameters") or any(key in settings for key in ROPE_KEYS):
            changes += [rope_edits(draw, path, settings, parsed) for _ in range(8)]
            changes += [[(path + (key,), ABSENT) for key in ROPE_KEYS]]
    draw.shuffle(changes)
    return changes


def published(case, config):
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        generate.model_class(case, config)(generate.config_of(case, config)).save_pretrained(folder)
        return generate.published_names(case, config, folder)


def ours(program, case, config, tensors, tokens, unread=None):
    """Log-probabilities or hidden states by dump_logits; or the message of its refusal. `unread` takes the keys
    that nobody read."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        (folder / "config.json").write_text(json.dumps(config))
        save_file({name: np.ascontiguousarray(generate.filled(case, name, shape)).reshape(shape) for name, shape in tensors.items()},
                  folder / "model.safetensors", metadata={"format": "pt"})
        (folder / "tokens.txt").write_text(" ".join(map(str, tokens)))
        result = subprocess.run([program, folder, folder / "tokens.txt", folder / "out", "exact", "f32"],
                                capture_output=True, text=True, timeout=120)
        if unread is not None:
            unread += re.findall(r"^not read: (.*)$", result.stderr, re.M)
        if result.returncode:
            return (result.stderr.strip().splitlines() or [f"ended with {result.returncode}"])[-1].replace(str(folder), "MODEL")
        return np.fromfile(folder / "out", np.float32).reshape(len(tokens), -1)


def compare(program, case, config, seed):
    """(outcome, detail)"""
    try:
        tensors, fill = published(case, config)
    except Exception as error:
        return "illegal", f"{type(error).__name__}: {error}".splitlines()[0]
    if sum(int(np.prod(shape)) for shape in tensors.values()) > 20e6:
        return "illegal", "too large here"
    encoder = generate.is_encoder(config)
    sizes = {**config, **config.get("text_config", {}), **config.get("language_config", {})}
    count = case.get("length", generate.TOKENS)
    found = "unsteady", ""
    for attempt in range(6):
        draw = np.random.default_rng(seed + attempt)
        tokens = draw.integers(case.get("from", 0), case.get("below") or sizes["vocab_size"], count).tolist()
        margins = []
        try:
            golden = generate.run(case, config, tensors, fill, tokens, margins=margins)
        except Exception as error:
            return "illegal", f"{type(error).__name__}: {error}".splitlines()[0]
        if not np.isfinite(golden).all():
            return "illegal", "not finite"
        if margins and min(margins) <= 2e-3:
            continue
        answer = ours(program, case, config, tensors, tokens)
        if isinstance(answer, str):
            return "refused", answer
        if answer.shape != golden.shape:
            return "differs", f"shape {answer.shape}, expected {golden.shape}"
        apart = generate.distance(encoder, golden, answer)
        if apart < (2e-3 if not encoder else 1e-4 * max(1, np.abs(golden).max())):
            return "equal", f"{apart:.1e}"
        nudged = generate.distance(encoder, golden, generate.run(case, config, tensors, fill, tokens, variant="nudged"))
        if nudged < generate.STEADY:
            return "differs", f"{apart:.3g}"
    return found


def unread_keys(program, case, config):
    """Fields that transformers' config has, written out, and nobody here reads."""
    tensors, _ = published(case, config)
    whole, unread = generate.saved_spelling(case, config), []
    answer = ours(program, case, whole, tensors, [1, 2, 3], unread)
    if isinstance(answer, str):
        return [answer]
    return [key for key in unread if not IDLE.fullmatch(key.split(".")[-1]) and not re.match("vision_|audio_", key)]


def main():
    root = pathlib.Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dump", type=pathlib.Path, default=root / "build/release/tools/dump_logits")
    parser.add_argument("--case", action="append", help="a name, or a pattern of names")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=24, help="single changes of each case; 0: all of them")
    parser.add_argument("--pairs", type=int, default=0, help="two or three changes together, of each case")
    parser.add_argument("--only", help="single changes whose text holds this pattern")
    parser.add_argument("--unread", action="store_true", help="only list fields that nobody reads, case by case")
    parser.add_argument("--quiet", action="store_true", help="leave out what transformers refuses")
    parser.add_argument("--part", default="0/1", help="I/N: every N-th case, from the I-th")
    options = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    part, parts = map(int, options.part.split("/"))
    chosen = [name for name, case in generate.CASES.items()
              if case.get("oracle") != "mlx" and not {"quantize", "draft", "prompt", "second"} & set(case)
              and not generate.is_classifier(case["config"])
              and any(fnmatch.fnmatch(name, pattern) for pattern in options.case or ["*"])]
    table = collections.defaultdict(collections.Counter)
    for name in chosen[part::parts]:
        case = generate.CASES[name]
        config = {key: value for key, value in case["config"].items() if key not in case.get("drop", ())}
        if options.unread:
            print(f"{name}: " + ", ".join(unread_keys(options.dump, case, config)), flush=True)
            continue
        seed = zlib.crc32(name.encode()) + 1000 * options.seed
        draw = random.Random(seed)
        every = singles(case, config, draw)
        if options.only:
            every = [edits for edits in every if re.search(options.only, label(edits))]
        variants = [[]] + every[:options.count or None]
        variants += [sum(draw.sample(every, draw.choice((2, 3))), []) for _ in range(options.pairs if len(every) > 2 else 0)]
        for edits in variants:
            try:
                outcome, detail = compare(options.dump, case, edited(config, edits), seed)
            except Exception as error:
                outcome, detail = "failed", f"{type(error).__name__}: {error}"
            table[config["model_type"]][outcome] += 1
            if outcome != "equal" and not (options.quiet and outcome == "illegal"):
                print(f"{outcome:9} {name}: {label(edits) or 'as it stands'}: {detail}", flush=True)
    if options.unread:
        return 0
    outcomes = ("equal", "differs", "refused", "illegal", "unsteady", "failed")
    print(f"{'':24}" + "".join(f"{outcome:>10}" for outcome in outcomes))
    for family, counts in [*sorted(table.items()), ("all", sum(table.values(), collections.Counter()))]:
        print(f"{family:24}" + "".join(f"{counts[outcome]:10}" for outcome in outcomes))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
