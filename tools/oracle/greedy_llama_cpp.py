"""Our greedy choice against llama.cpp's, on the same GGUF.

    python tools/oracle/greedy_llama_cpp.py LLAMA_SERVER MODEL.gguf DUMP_LOGITS [--tokens 48]

llama.cpp continues each prompt greedily; we score its own continuation (dump_logits, precision high). Where our gap
between the best two tokens exceeds --noise (what int8 activations move a difference of two logits by), both must choose
the same token. Uses the prompts of tests/real/data/smollm2_greedy.json. Exit status 1 on a difference beyond the noise.
"""

import argparse
import json
import pathlib
import socket
import subprocess
import tempfile
import time
import urllib.request

import numpy as np


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def post(url, body):
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=600) as answer:
        return json.load(answer)


def wait_for(url, process):
    for _ in range(600):
        if process.poll() is not None:
            raise SystemExit("llama-server ended before it was ready")
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                if answer.status == 200:
                    return
        except OSError:
            time.sleep(0.1)
    raise SystemExit("llama-server was not ready within a minute")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("server")
    parser.add_argument("model")
    parser.add_argument("dump")
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--noise", type=float, default=1.0)
    options = parser.parse_args()
    fixture = pathlib.Path(__file__).resolve().parents[2] / "tests/real/data/smollm2_greedy.json"
    prompts = json.loads(fixture.read_text())["rows"]
    port = free_port()
    process = subprocess.Popen([options.server, "-m", options.model, "--port", str(port), "-c", "1024", "-t", "1"],
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(f"http://127.0.0.1:{port}/health", process)
        continuations = [post(f"http://127.0.0.1:{port}/completion", {
            "prompt": row["ids"], "n_predict": options.tokens, "temperature": 0, "return_tokens": True,
            "cache_prompt": False})["tokens"] for row in prompts]
    finally:
        process.terminate()
        process.wait()

    same = compared = beyond = 0
    worst = 0.0
    with tempfile.TemporaryDirectory() as folder:
        ids, out = pathlib.Path(folder, "ids"), pathlib.Path(folder, "out")
        for row, theirs in zip(prompts, continuations):
            tokens = row["ids"] + theirs
            ids.write_text(" ".join(map(str, tokens)))
            subprocess.run([options.dump, options.model, ids, out, "high", "f16"], check=True)
            scores = np.fromfile(out, np.float32).reshape(len(tokens), -1)
            differing = []
            for i, token in enumerate(theirs):
                mine = scores[len(row["ids"]) - 1 + i]
                gap = float(mine.max() - mine[token])
                compared += 1
                if gap == 0:
                    same += 1
                    continue
                worst = max(worst, gap)
                beyond += gap > options.noise
                differing.append(f"token {i}: ours better by {gap:.3f}")
            print(f"{row['prompt']!r}: {len(theirs)} tokens; " + ("; ".join(differing) or "all the same"))
    print(f"same choice at {same} of {compared}; largest gap where they differ {worst:.3f}; {beyond} beyond the noise")
    return 1 if beyond else 0


if __name__ == "__main__":
    raise SystemExit(main())
