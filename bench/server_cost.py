#!/usr/bin/env python3
"""What the server itself costs: processor time of accepting, authenticating, templating and tokenising a chat of 2 kB,
and memory of a thousand streams that wait.

usage: server_cost.py --build build/release [--model SmolLM2.gguf] [--requests 1000] [--streams 1000]

Bounds (issue of the server): 2 ms of processor time a request, 100 MB for the streams. Exit 1 beyond them.
"""
import argparse
import json
import os
import pathlib
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/http"))

from harness import Connection, Server, encode_request, until  # noqa: E402

KEY = {"Authorization": "Bearer secret-of-the-bench"}


def cpu_seconds(server):
    fields = pathlib.Path(f"/proc/{server.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True, type=pathlib.Path)
    parser.add_argument("--model")
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--streams", type=int, default=1000)
    args = parser.parse_args()
    store = pathlib.Path(os.environ.get("MLXCEL_MODELS_DIR") or pathlib.Path.home() / ".cache/mlxcel/models")
    model = args.model or next(iter(sorted(store.glob("HuggingFaceTB/SmolLM2-135M-Instruct/*.gguf"))), None)
    if not model:
        print("no model (scripts/fetch_model.sh)")
        return 1
    text = ("The quick brown fox jumps over the lazy dog, and then it does so again. " * 40)[:1900]
    body = {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": text}]}
    request = encode_request("POST", "/v1/chat/completions/input_tokens", body, {**KEY, "Connection": "close"})
    bad = False
    with Server(args.build.resolve() / "bin/mlxcel-server", model, "--api-key", "secret-of-the-bench", "--parallel", "1", "--max-queue-depth",
                str(args.streams + 8), "-c", "4096", "--log-disable") as server:
        def ask():
            with Connection(server) as connection:
                connection.send(request)
                found = connection.response()
                assert found.status == 200, found.body
        for _ in range(50):
            ask()
        best = None
        for _ in range(3):
            before = cpu_seconds(server)
            for _ in range(args.requests):
                ask()
            spent = (cpu_seconds(server) - before) / args.requests * 1e3
            best = spent if best is None else min(best, spent)
        print(f"a chat of {len(request)} bytes: {best:.2f} ms of processor time (bound 2)")
        bad = bad or best > 2

        chat = lambda n: encode_request("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "Hello"}], "stream": True, "ignore_eos": True,  # noqa: E731
                                                                        "max_tokens": n, "temperature": 0}, KEY)
        blocker = Connection(server, timeout=600)
        blocker.send(chat(3500))
        blocker.head()
        blocker.chunk()
        before = server.resident()
        waiting = []
        for _ in range(args.streams):
            connection = Connection(server, timeout=600)
            connection.send(chat(1))
            waiting.append(connection)
        for connection in waiting:
            connection.head()
        time.sleep(1)
        grown = (server.resident() - before) / 1e6
        print(f"{args.streams} waiting streams: {grown:.1f} MB (bound 100)")
        bad = bad or grown > 100 * args.streams / 1000
        for connection in [blocker, *waiting]:
            connection.close()
        assert until(lambda: json.loads(server.get("/slots", headers=KEY).body)[0]["is_processing"] is False, 60)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
