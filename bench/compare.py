#!/usr/bin/env python3
"""Measures mlxcel, llama.cpp and mlx-lm on the same weights in one interleaved run and prints ratios.

usage: bench/compare.py [--rounds 3] [--threads 2] [--only decode,prompt,...] [--no-mlx-lm] [--json FILE]

Machines are noisy, so every round measures each program once, one after another, and the table compares
medians. Needs build/release and the peers (bench/peers/build.sh). llama.cpp's Q4_0 is made from the same file.
"""
import argparse
import http.client
import json
import os
import pathlib
import platform
import socket
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
PEERS = pathlib.Path(os.environ.get("MLXCEL_PEERS", ROOT / "build/peers"))
LLAMA = PEERS / "llama.cpp/bin"
VENV = PEERS / "venv/bin/python"
PROMPT = "Explain in a few sentences how a bicycle stays upright when it is ridden, and why it falls when it stands."


def default_model():
    store = os.environ.get("MLXCEL_MODELS_DIR") or os.path.join(
        os.environ.get("MLXCEL_CACHE_DIR") or os.path.expanduser("~/.cache/mlxcel"), "models")
    return pathlib.Path(store) / "HuggingFaceTB/SmolLM2-135M-Instruct/SmolLM2-135M-Instruct.Q4_1.gguf"


def run(command, env=None):
    """Output, seconds and peak resident bytes of a command."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        begun = time.monotonic()
        process = subprocess.Popen([str(c) for c in command], stdout=out, stderr=err, stdin=subprocess.DEVNULL,
                                   env={**os.environ, **(env or {})})
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.monotonic() - begun
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        text = out.read()
        if process.returncode != 0:
            err.seek(0)
            sys.exit(f"{' '.join(map(str, command))}: exit status {process.returncode}\n{err.read()[-3000:]}")
        return text, seconds, usage.ru_maxrss * 1024


class Mlxcel:
    def __init__(self, name, model, threads, precision, build):
        self.name, self.model, self.threads, self.precision, self.bin = name, model, threads, precision, build / "bin"

    def flags(self):
        return ["-m", self.model, "-t", self.threads, "--cpu-precision", self.precision]

    def rate(self, prompt=0, generated=0, batch=1):
        text, _, peak = run([self.bin / "mlxcel", "bench", *self.flags(), "-p", prompt, "-n", generated, "-b", batch,
                             "-r", 1, "-o", "json", "--quiet"])
        self.peak = peak
        return json.loads(text)[0]["avg_ts"]

    def start(self):
        return run([self.bin / "mlxcel", "generate", *self.flags(), "-p", "Hi", "-n", 1, "--quiet", "--no-warmup"])

    def server(self, port):
        return [self.bin / "mlxcel-server", *self.flags(), "--port", port, "--parallel", 1]


class LlamaCpp:
    def __init__(self, name, model, threads):
        self.name, self.model, self.threads = name, model, threads

    def rate(self, prompt=0, generated=0, batch=1):
        if batch == 1:
            text, _, _ = run([LLAMA / "llama-bench", "-m", self.model, "-p", prompt, "-n", generated, "-t", self.threads,
                              "-r", 1, "-o", "json"])
            return json.loads(text)[0]["avg_ts"]
        text, _, _ = run([LLAMA / "llama-batched-bench", "-m", self.model, "-c", 256 * batch, "-npp", 16, "-ntg", generated,
                          "-npl", batch, "-t", self.threads, "--output-format", "jsonl"])
        rows = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
        return rows[-1]["speed_tg"]

    def start(self):
        return run([LLAMA / "llama-completion", "-m", self.model, "-p", "Hi", "-n", 1, "-t", self.threads, "-no-cnv",
                    "--no-warmup", "-c", 8192])

    def server(self, port):
        return [LLAMA / "llama-server", "-m", self.model, "-t", self.threads, "--port", port, "-np", 1, "-c", 8192]


class MlxLm:
    """mlx-lm on the same weights as an MLX folder: Q4_1 blocks are affine groups of 32."""
    SCRIPT = """
import sys, time, mlx.core as mx
from mlx_lm import load, stream_generate
model, tokenizer = load(sys.argv[1])
prompt = [(7919 * i + 1000) % 49152 for i in range(int(sys.argv[2]))]
last = None
for last in stream_generate(model, tokenizer, prompt, max_tokens=int(sys.argv[3])):
    pass
print(last.prompt_tps, last.generation_tps)
"""

    def __init__(self, folder):
        self.name, self.folder = "mlx-lm", folder

    def rate(self, prompt=0, generated=0, batch=1):
        text, _, _ = run([VENV, "-c", self.SCRIPT, self.folder, prompt or 4, generated or 2])
        speeds = [float(word) for word in text.split()[-2:]]
        return speeds[0] if prompt else speeds[1]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def first_token_ms(command, port):
    """Milliseconds from sending a chat request to its first text, median of five, on a warm server."""
    with open(os.devnull, "w") as null:
        process = subprocess.Popen([str(c) for c in command], stdout=null, stderr=null, stdin=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                c = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
                c.request("GET", "/health")
                if c.getresponse().status == 200:
                    break
            except OSError:
                pass
            if time.monotonic() > deadline or process.poll() is not None:
                sys.exit(f"{command[0]}: not ready")
            time.sleep(0.05)
        times = []
        for i in range(6):
            body = json.dumps({"messages": [{"role": "user", "content": f"{i} {PROMPT}"}], "max_tokens": 8,
                               "stream": True, "temperature": 0, "model": "m"})
            c = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            begun = time.monotonic()
            c.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
            response = c.getresponse()
            while True:
                line = response.readline()
                if not line:
                    sys.exit(f"{command[0]}: the stream ended without text")
                if line.startswith(b"data: {"):
                    choices = json.loads(line[6:]).get("choices") or [{}]
                    if choices[0].get("delta", {}).get("content"):
                        break
            times.append((time.monotonic() - begun) * 1000)
            response.read()
        return statistics.median(times[1:])
    finally:
        process.terminate()
        process.wait(timeout=40)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=min(2, os.cpu_count()))
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--only", default="")
    parser.add_argument("--no-mlx-lm", action="store_true")
    parser.add_argument("--json", type=pathlib.Path)
    args = parser.parse_args()

    q4_1 = default_model()
    work = PEERS / "models"
    work.mkdir(parents=True, exist_ok=True)
    q4_0 = work / "SmolLM2-135M-Instruct.Q4_0.gguf"
    if not q4_0.exists():
        run([LLAMA / "llama-quantize", "--allow-requantize", q4_1, q4_0, "Q4_0"])
    folder = work / "SmolLM2-135M-Instruct-mlx"
    if not args.no_mlx_lm and not (folder / "config.json").exists():
        run([VENV, ROOT / "tools/oracle/gguf_to_mlx.py", q4_1, folder])

    high = Mlxcel("mlxcel high", q4_1, args.threads, "high", args.build)
    fast = Mlxcel("mlxcel fast", q4_1, args.threads, "fast", args.build)
    llama1 = LlamaCpp("llama.cpp Q4_1", q4_1, args.threads)
    llama0 = LlamaCpp("llama.cpp Q4_0", q4_0, args.threads)
    four = [high, fast, llama1, llama0]
    mlx_lm = [] if args.no_mlx_lm else [MlxLm(folder)]

    plan = [
        ("prompt 512, tok/s", four, lambda p: p.rate(prompt=512)),
        ("decode 128, tok/s", four, lambda p: p.rate(generated=128)),
        ("8 sequences, tok/s", four, lambda p: p.rate(generated=128, batch=8)),
        ("16 sequences, tok/s", four, lambda p: p.rate(generated=128, batch=16)),
        ("prompt 64, tok/s", [high, *mlx_lm], lambda p: p.rate(prompt=64)),
        ("decode 16, tok/s", [high, *mlx_lm], lambda p: p.rate(generated=16)),
        ("first token, ms", [high, llama1, llama0], lambda p: (lambda port: first_token_ms(p.server(port), port))(free_port())),
        ("start to one token, s", [high, llama1, llama0], lambda p: p.start()[1]),
        ("peak memory, MB", [high, llama1, llama0], lambda p: p.start()[2] / 1e6),
    ]
    if args.only:
        plan = [row for row in plan if any(word in row[0] for word in args.only.split(","))]

    samples = {}
    for number in range(args.rounds):
        for what, programs, measure in plan:
            for program in programs:
                value = measure(program)
                samples.setdefault(what, {}).setdefault(program.name, []).append(value)
                print(f"round {number + 1}  {what:24} {program.name:16} {value:9.1f}", file=sys.stderr, flush=True)

    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    print(f"commit {commit}, {platform.machine()}, {args.threads} threads, medians of {args.rounds} interleaved rounds\n")
    names = [p.name for p in [*four, *mlx_lm]]
    print("| what | " + " | ".join(names) + " | high / Q4_1 | high / Q4_0 | high / mlx-lm |")
    print("| --- |" + " ---: |" * (len(names) + 3))
    for what, values in samples.items():
        median = {name: statistics.median(v) for name, v in values.items()}
        more_is_better = "tok/s" in what

        def ratio(peer):
            if peer not in median:
                return ""
            r = median["mlxcel high"] / median[peer]
            return f"{r if more_is_better else 1 / r:.2f}x"
        cells = [f"{median[n]:.4g}" if n in median else "" for n in names]
        print(f"| {what} | " + " | ".join(cells) + f" | {ratio('llama.cpp Q4_1')} | {ratio('llama.cpp Q4_0')} | {ratio('mlx-lm')} |")
    print("\nRatios above 1 mean mlxcel is ahead (less time or memory counts as ahead).")
    if args.json:
        args.json.write_text(json.dumps({"commit": commit, "threads": args.threads, "samples": samples}, indent=1))


if __name__ == "__main__":
    main()
