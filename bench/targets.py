#!/usr/bin/env python3
"""Prints what the project asks of itself on CPU beside what it finds: one table, met or missed.

usage: bench/targets.py [--rounds 3] [--threads 2] [--only decode,large,busy,kernels,...] [--json FILE]

Programs run in turn, once a round, and medians are compared. Needs build/release and llama.cpp
(bench/peers/build.sh); the divergence row also build/release/tools/dump_logits (`ninja dump_logits`). The `large` rows
make a model of random weights once (bench/synthetic.py); its speed is the model's, and both engines read the same file.
"""
import argparse
import array
import contextlib
import json
import math
import pathlib
import statistics
import subprocess
import sys
import tempfile

from compare import LLAMA, PEERS, ROOT, VENV, LlamaCpp, Mlxcel, default_model, run

PRECISIONS = ("high", "fast")
TOKENS = 768
LARGE = "llama-1b"


def samples_of(rounds, programs, measure, label):
    found = {}
    for number in range(rounds):
        for program in programs:
            value = measure(program)
            found.setdefault(program.name, []).append(value)
            print(f"round {number + 1}  {label:16} {program.name:16} {value:9.1f}", file=sys.stderr, flush=True)
    return {name: statistics.median(values) for name, values in found.items()}


@contextlib.contextmanager
def busy_process():
    """A foreign process that wants a core all the time."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def large_model():
    path = PEERS / f"models/synthetic-{LARGE}.Q4_0.gguf"
    if not path.exists():
        run([VENV, ROOT / "bench/synthetic.py", LARGE, path, "--type", "q4_0"])
    return path


def log_softmax_rows(path, width):
    values = array.array("f")
    with open(path, "rb") as f:
        values.frombytes(f.read())
    for start in range(0, len(values), width):
        row = values[start:start + width]
        total = math.log(math.fsum(math.exp(x) for x in row))
        yield [x - total for x in row]


def divergences(model, build):
    """Mean KL of each precision to `exact` over TOKENS tokens of English prose; None without dump_logits."""
    tool = build / "tools/dump_logits"
    if not tool.exists():
        return None
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        tokens = folder / "tokens"
        ids = json.loads((ROOT / "tests/real/data/english_tokens.json").read_text())["tokens"][:TOKENS]
        tokens.write_text(" ".join(map(str, ids)))
        for name, kv in (("exact", "f32"), ("high", "f16"), ("fast", "f16")):
            run([tool, model, tokens, folder / name, name, kv])
        width = (folder / "exact").stat().st_size // 4 // len(ids)
        means = {}
        for name in PRECISIONS:
            pairs = zip(log_softmax_rows(folder / "exact", width), log_softmax_rows(folder / name, width))
            means[name] = statistics.fmean(
                math.fsum(math.exp(p) * (p - q) for p, q in zip(expected, found)) for expected, found in pairs)
        return means


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--only", default="", help="parts of rows' names, apart by commas")
    parser.add_argument("--json", type=pathlib.Path)
    args = parser.parse_args()
    asked = [word for word in args.only.split(",") if word]

    def wanted(name):
        return not asked or any(word in name for word in asked)

    q4_1 = default_model()
    (PEERS / "models").mkdir(parents=True, exist_ok=True)
    q4_0 = PEERS / "models/SmolLM2-135M-Instruct.Q4_0.gguf"
    if not q4_0.exists():
        run([LLAMA / "llama-quantize", "--allow-requantize", q4_1, q4_0, "Q4_0"])
    ours = [Mlxcel(p, q4_1, args.threads, p, args.build) for p in PRECISIONS]
    peers = [LlamaCpp("Q4_0", q4_0, args.threads), LlamaCpp("Q4_1", q4_1, args.threads)]
    rows = []

    def ratios(label, measure, limits, against=peers, own=ours):
        """limits: what of each peer, for each precision."""
        if not wanted(label):
            return
        found = samples_of(args.rounds, [*own, *against], measure, label)
        for peer in against:
            for precision in PRECISIONS:
                limit = limits[peer.name][precision]
                ratio = found[precision] / found[peer.name]
                rows.append((f"{label} against llama.cpp {peer.name}", precision, f"{limit}x", f"{ratio:.2f}x", ratio >= limit,
                             f"{found[precision]:.0f} and {found[peer.name]:.0f} tok/s"))

    def two(high, fast):
        return {"high": high, "fast": fast}

    ratios("decode 128", lambda p: p.rate(generated=128), {"Q4_0": two(1.6, 1.8), "Q4_1": two(2.3, 2.5)})
    ratios("prompt 512", lambda p: p.rate(prompt=512), {"Q4_0": two(1.4, 2.2), "Q4_1": two(3.2, 5)})
    ratios("8 sequences", lambda p: p.rate(generated=128, batch=8), {"Q4_0": two(1.8, 2.6)}, peers[:1])
    ratios("16 sequences", lambda p: p.rate(generated=128, batch=16), {"Q4_0": two(1.6, 2.2)}, peers[:1])
    # The same weights on both sides: Q4_0 has no biases to read, and a tenth less of everything.
    same = [Mlxcel(p, q4_0, args.threads, p, args.build) for p in PRECISIONS]
    ratios("same file: decode 128", lambda p: p.rate(generated=128), {"Q4_0": two(1.6, 1.8)}, peers[:1], same)
    ratios("same file: prompt 512", lambda p: p.rate(prompt=512), {"Q4_0": two(1.4, 2.2)}, peers[:1], same)
    ratios("same file: 8 sequences", lambda p: p.rate(generated=128, batch=8), {"Q4_0": two(1.8, 2.6)}, peers[:1], same)
    ratios("same file: 16 sequences", lambda p: p.rate(generated=128, batch=16), {"Q4_0": two(1.6, 2.2)}, peers[:1], same)

    if wanted("busy"):
        with busy_process():
            ratios("busy: decode 128 beside one busy process", lambda p: p.rate(generated=128), {"Q4_0": two(1.8, 1.8)}, peers[:1])

    if wanted("large"):
        path = large_model()
        size = path.stat().st_size * 1e-9
        own = [Mlxcel(p, path, args.threads, p, args.build) for p in PRECISIONS]
        peer = [LlamaCpp("Q4_0", path, args.threads)]
        # Both read the same bytes for a token, so tokens a second compare as bytes a second.
        ratios(f"large: decode 32 of {size:.2f} GB", lambda p: p.rate(generated=32), {"Q4_0": two(0.97, 1.0)}, peer, own)
        ratios(f"large: prompt 256 of {size:.2f} GB", lambda p: p.rate(prompt=256), {"Q4_0": two(1.2, 1.8)}, peer, own)

    if wanted("kernels"):
        text, _, _ = run([args.build / "bin/mlxcel", "bench", "--kernels", "4-bit g32 3072x576", "-t", args.threads, "-r",
                          max(5, args.rounds), "-o", "json"])
        figures = {(f["precision"], f["tokens"]): f for f in json.loads(text)["products"]}
        for precision in PRECISIONS:
            share = figures[precision, 1]["read_loop_share"]
            rows.append(("kernels: bytes of weights, one token, of a read loop", precision, "85 %", f"{share:.0%}", share >= 0.85,
                         f"{figures[precision, 1]['bytes_per_second'] * 1e-9:.1f} GB/s"))
        for precision, limit in (("high", 0.38), ("fast", 0.66)):
            share = figures[precision, 512]["peak_share"]
            rows.append(("kernels: product of 512 rows, of the peak of bytes", precision, f"{limit:.0%}", f"{share:.0%}",
                         share >= limit, f"{figures[precision, 512]['ops_per_second'] * 1e-9:.0f} Gop/s"))
        for precision, limit in (("high", 1.75), ("fast", 1.1)):
            times = figures[precision, 4]["against_one_token"]
            rows.append(("kernels: time of 4 tokens, of one", precision, f"{limit}x", f"{times:.2f}x", times <= limit, ""))

    if wanted("divergence"):
        means = divergences(q4_1, args.build)
        for precision, limit in (("high", 1e-6), ("fast", 3e-3)):
            if means:
                rows.append((f"divergence: mean KL to exact, {TOKENS} tokens", precision, f"{limit:.0e}", f"{means[precision]:.1e}",
                             means[precision] <= limit, ""))
            else:
                print("divergence: build/release/tools/dump_logits is not built", file=sys.stderr)

    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    print(f"commit {commit}, {args.threads} threads, medians of {args.rounds} rounds in turn\n")
    print("| what | precision | asked | found | | |\n| --- | --- | ---: | ---: | --- | --- |")
    for what, precision, limit, found, met, note in rows:
        print(f"| {what} | `{precision}` | {limit} | {found} | {'met' if met else 'missed'} | {note} |")
    if args.json:
        args.json.write_text(json.dumps({"commit": commit, "threads": args.threads, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
