"""`mlxcel quantize` beside mlx-lm's converter: the same files, and the same perplexity.

    python tools/oracle/compare_quantize.py MLXCEL MODEL [--text FILE] [--only NAME] [--windows N] [--keep FOLDER]

MODEL (SmolLM2's GGUF, a folder) is written densely once, in float16; both converters start from that folder. For each
form the tensors are compared byte by byte, planes by planes, and config.json's quantization block; then mlx-lm loads
both results and both programs measure both over the text. Exit code 1 where a tensor differs by more than rounding
ties, a block differs, or a perplexity is off by more than 0.5 %. MODEL itself is quantised too (`direct`), without the
dense folder between: a GGUF goes in, the same bytes come out.
"""

import argparse
import json
import math
import pathlib
import shutil
import subprocess
import sys
import tempfile

import mlx.core as mx
import mlx_lm
import numpy as np
from mlx_lm.utils import dequantize_model

HERE = pathlib.Path(__file__).resolve().parent
FORMS = {
    "4 bits": (["--bits", "4"], {"q_bits": 4, "q_group_size": 64}),
    "6 bits": (["--bits", "6"], {"q_bits": 6, "q_group_size": 64}),
    "8 bits": (["--bits", "8"], {"q_bits": 8, "q_group_size": 64}),
    "4 bits in groups of 32": (["--bits", "4", "--group-size", "32"], {"q_bits": 4, "q_group_size": 32}),
    "mxfp4": (["--mode", "mxfp4"], {"q_mode": "mxfp4"}),
    "mxfp8": (["--mode", "mxfp8"], {"q_mode": "mxfp8"}),
    "nvfp4": (["--mode", "nvfp4"], {"q_mode": "nvfp4"}),
    "mixed_2_6": (["--recipe", "mixed_2_6"], {"quant_predicate": "mixed_2_6"}),
    "mixed_3_6": (["--recipe", "mixed_3_6"], {"quant_predicate": "mixed_3_6"}),
    "mixed_4_6": (["--recipe", "mixed_4_6"], {"quant_predicate": "mixed_4_6"}),
}
MOST_OFF = 0.005  # of a perplexity


def run(*words):
    return subprocess.run([str(w) for w in words], check=True, capture_output=True, text=True).stdout


def tensors(folder):
    found = {}
    for path in sorted(pathlib.Path(folder).glob("*.safetensors")):
        found.update(mx.load(str(path)))
    return found


def raw(array):
    """A tensor's bytes as an array of unsigned integers."""
    size = array.dtype.size
    return np.array(array.view({1: mx.uint8, 2: mx.uint16, 4: mx.uint32}[size]))


def codes(words, bits):
    """Codes of one plane of packed 32-bit words."""
    stream = np.unpackbits(words.view(np.uint8), bitorder="little").reshape(-1, bits)
    return stream @ (1 << np.arange(bits))


def compare(ours, theirs, bits_of):
    """(tensors alike, tensors, codes off by one, faults)."""
    a, b = tensors(ours), tensors(theirs)
    faults = [f"{name}: only in one of the two" for name in sorted(set(a) ^ set(b))]
    alike = off = 0
    for name in sorted(set(a) & set(b)):
        x, y = a[name], b[name]
        if x.dtype != y.dtype or x.shape != y.shape:
            faults.append(f"{name}: {x.dtype} {x.shape}, {y.dtype} {y.shape}")
            continue
        left, right = raw(x), raw(y)
        if np.array_equal(left, right):
            alike += 1
            continue
        module = name.rsplit(".", 1)[0]
        if x.dtype == mx.uint32 and module + ".scales" in a:
            bits = bits_of(module)
            apart = np.abs(codes(left, bits).astype(int) - codes(right, bits).astype(int))
            off += int((apart > 0).sum())
            if apart.max() > 1 or (apart > 0).mean() > 1e-3:
                faults.append(f"{name}: {(apart > 0).sum()} codes differ, by up to {apart.max()}")
        else:
            worst = float(mx.max(mx.abs(x.astype(mx.float32) - y.astype(mx.float32))))
            scale = float(mx.max(mx.abs(y.astype(mx.float32))))
            if worst > scale * 2 ** -10:
                faults.append(f"{name}: values differ by up to {worst} of {scale}")
    return alike, len(set(a) & set(b)), off, faults


def block_of(folder):
    block = json.loads((pathlib.Path(folder) / "config.json").read_text()).get("quantization", {})
    for entry in block.values():
        if isinstance(entry, dict) and entry.get("group_size") is None:
            entry["group_size"] = block["group_size"]  # mlx-lm's recipes leave it open
    return block


def mlx_perplexity(folder, text, size, most):
    """llama-perplexity's rule: the second half of each window is scored."""
    model, tokenizer = mlx_lm.load(str(folder))
    # Products of codes and of halves take minutes on a CPU; their values in float32 do not.
    model = dequantize_model(model)
    model.set_dtype(mx.float32)
    ids = tokenizer.encode(text, add_special_tokens=False)
    nll, count = 0.0, 0
    for begin in range(0, min(len(ids) - size, (most - 1) * size) + 1, size):
        window = mx.array(ids[begin:begin + size])
        logits = model(window[None])[0].astype(mx.float32)
        half = size // 2
        scored = logits[half:-1] - mx.logsumexp(logits[half:-1], axis=-1, keepdims=True)
        picked = mx.take_along_axis(scored, window[half + 1:, None], axis=-1)
        nll -= float(picked.sum())
        count += picked.size
    return math.exp(nll / count)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("mlxcel", type=pathlib.Path)
    parser.add_argument("model")
    parser.add_argument("--text", type=pathlib.Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--window", type=int, default=512)
    parser.add_argument("--windows", type=int, default=8)
    parser.add_argument("--keep", type=pathlib.Path)
    args = parser.parse_args()
    folder = args.keep or pathlib.Path(tempfile.mkdtemp(prefix="mlxcel-quantize-"))
    folder.mkdir(parents=True, exist_ok=True)
    if args.text:
        text = args.text.read_text()
    else:
        text = "\n".join(path.read_text() for path in sorted((HERE.parents[1] / "docs").rglob("*.md")))[:60000]
    file = folder / "text.txt"
    file.write_text(text)
    dense = folder / "dense"
    if not dense.exists():
        run(args.mlxcel, "quantize", "-m", args.model, "-o", dense, "--dequantize", "--dtype", "f16")

    def ours_perplexity(model):
        out = run(args.mlxcel, "perplexity", "-m", model, "-f", file, "-c", args.window, "--chunks", args.windows, "--no-bos", "--json")
        return json.loads(out)["ppl"]

    bad = 0
    print(f"{'form':<24} {'tensors alike':>14} {'codes off':>9} {'block':>6} {'mlx-lm: theirs':>15} {'ours':>9} {'off':>8} "
          f"{'mlxcel: theirs':>15} {'ours':>9} {'off':>8} {'direct':>8}")
    for name, (words, options) in FORMS.items():
        if args.only not in name:
            continue
        ours, theirs, direct = (folder / f"{name.replace(' ', '-')}-{who}" for who in ("ours", "theirs", "direct"))
        for path in (ours, theirs, direct):
            shutil.rmtree(path, ignore_errors=True)
        run(args.mlxcel, "quantize", "-m", dense, "-o", ours, *words)
        run(args.mlxcel, "quantize", "-m", args.model, "-o", direct, "--dtype", "f16", *words)
        mlx_lm.convert(str(dense), mlx_path=str(theirs), quantize=True, **options)
        block = block_of(theirs)

        def bits_of(module):
            own = block.get(module)
            return own["bits"] if isinstance(own, dict) else block["bits"]

        alike, count, off, faults = compare(ours, theirs, bits_of)
        same_block = block_of(ours) == block
        straight = compare(direct, ours, bits_of)
        theirs_there, ours_there = (mlx_perplexity(f, text, args.window, args.windows) for f in (theirs, ours))
        theirs_here, ours_here = ours_perplexity(theirs), ours_perplexity(ours)
        there, here = ours_there / theirs_there - 1, ours_here / theirs_here - 1
        print(f"{name:<24} {f'{alike} of {count}':>14} {off:>9} {'same' if same_block else 'other':>6} {theirs_there:>15.4f} "
              f"{ours_there:>9.4f} {100 * there:>+7.3f}% {theirs_here:>15.4f} {ours_here:>9.4f} {100 * here:>+7.3f}% "
              f"{f'{straight[0]}/{straight[1]}':>8}", flush=True)
        faults += straight[3]
        for fault in faults[:10]:
            print("   ", fault)
        if faults or not same_block or abs(there) > MOST_OFF or abs(here) > MOST_OFF:
            bad += 1
            if not same_block:
                print("    ours:", json.dumps(block_of(ours))[:300], "\n    theirs:", json.dumps(block)[:300])
    if not args.keep:
        shutil.rmtree(folder)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
