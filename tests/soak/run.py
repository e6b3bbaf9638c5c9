#!/usr/bin/env python3
"""64 clients on 4 slots, with random disconnects: every answer that is waited for is right, and slots, descriptors
and memory are what they were.

usage: run.py --build build/release [--minutes 1] [--clients 64]

Prints what was counted, then `N passed, N failed, N skipped`.
"""
import argparse
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "http"))

from harness import Connection, Server, encode_request, joined_chat, sse_events, until  # noqa: E402

PROMPTS = ("[[count]]", "[[space]]", "[[emoji]]", "[[tool]]")
TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}]


def body_of(text, stream, **more):
    return {"messages": [{"role": "user", "content": text}], "temperature": 0, "stream": stream, "tools": TOOLS, **more}


class Counts:
    def __init__(self):
        self.lock = threading.Lock()
        self.answers = self.left = self.refused = 0
        self.wrong = []

    def add(self, **more):
        with self.lock:
            for name, value in more.items():
                setattr(self, name, getattr(self, name) + value)

    def fault(self, text):
        with self.lock:
            if len(self.wrong) < 20:
                self.wrong.append(text)


def client(number, server, expected, end, counts):
    dice = random.Random(number)
    while time.monotonic() < end:
        text = dice.choice(PROMPTS)
        stream = dice.random() < 0.7
        leaves = dice.random() < 0.4
        long = leaves and dice.random() < 0.5
        body = body_of(text, stream, **({"ignore_eos": True, "max_tokens": 400} if long else {}))
        try:
            with Connection(server, timeout=120) as connection:
                connection.send(encode_request("POST", "/v1/chat/completions", body, {"Connection": "close"}))
                if leaves:
                    time.sleep(dice.random() * 0.3)
                    connection.close(hard=dice.random() < 0.5)
                    counts.add(left=1)
                    continue
                found = connection.response()
        except (EOFError, OSError, AssertionError) as error:
            counts.fault(f"client {number}: {type(error).__name__}: {error}")
            continue
        if found.status == 503:
            counts.add(refused=1)
            time.sleep(0.05)
            continue
        if found.status != 200:
            counts.fault(f"client {number}: {found.status} {found.body[:200]}")
            continue
        answer = (joined_chat(sse_events(found.body)) if stream
                  else found.json()["choices"][0]["message"]["content"] or "")
        if answer != expected[text]:
            counts.fault(f"client {number}: {text} gave {answer!r}, expected {expected[text]!r}")
        counts.add(answers=1)


def descriptors(server):
    return len(os.listdir(f"/proc/{server.process.pid}/fd"))


def settled(server):
    return until(lambda: all(not s["is_processing"] for s in server.get("/slots").json())
                 and server.metric("mlxcel_queue_depth") == 0, 60)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True, type=pathlib.Path)
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--clients", type=int, default=64)
    args = parser.parse_args()
    build = args.build.resolve()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="mlxcel-soak-")) / "scripted"
    subprocess.run([build / "tests/make_scripted_model", folder], check=True, capture_output=True)
    config = json.loads((folder / "config.json").read_text())
    config["max_position_embeddings"] = 8192  # room for the tools
    (folder / "config.json").write_text(json.dumps(config))
    failures = []
    with Server(build / "bin/mlxcel-server", folder, "--parallel", "4", "--max-queue-depth", "128", "--metrics") as server:
        expected = {}
        for text in PROMPTS:
            expected[text] = server.post("/v1/chat/completions", body_of(text, False)).json()["choices"][0]["message"]["content"] or ""
        counts = Counts()
        # Warm: pools, caches and threads reach their size in the first part; leaks go on afterwards.
        for part, share in (("warm", 0.35), ("measured", 0.65)):
            end = time.monotonic() + args.minutes * 60 * share
            threads = [threading.Thread(target=client, args=(i, server, expected, end, counts)) for i in range(args.clients)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            if not settled(server):
                failures.append(f"{part}: slots are still busy: {server.get('/slots').body[:500]}")
            server.post("/v1/cache/reset", {})
            time.sleep(1)
            figures = (descriptors(server), server.resident())
            if part == "warm":
                before = figures
        print(f"{counts.answers} answers, {counts.left} clients left, {counts.refused} refused; descriptors {before[0]} -> {figures[0]}, "
              f"memory {before[1] >> 20} -> {figures[1] >> 20} MiB")
        failures += counts.wrong
        if counts.answers < args.clients:
            failures.append(f"only {counts.answers} answers")
        if figures[0] > before[0] + 4:
            failures.append(f"descriptors grew from {before[0]} to {figures[0]}")
        if figures[1] > before[1] + (32 << 20):
            failures.append(f"memory grew from {before[1] >> 20} to {figures[1] >> 20} MiB")
        if server.get("/health").status != 200 or not server.alive():
            failures.append("the server is not well")
        if server.stop() != 0:
            failures.append("the server did not end well")
    for failure in failures:
        print(f"FAILED {failure}")
    print(f"{0 if failures else 1} passed, {len(failures)} failed, 0 skipped")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
