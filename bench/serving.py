#!/usr/bin/env python3
"""Prints what the project asks of its server under load beside what it finds: one table, met or missed.

usage: bench/serving.py [--rounds 3] [--threads 2] [--only clients,prefix,lookup,gap] [--build build/release] [--json FILE]

  clients  16 clients over HTTP, 64 tokens each, on 16 slots: mlxcel high and fast against llama-server with Q4_0, in turn,
           and against the bare engine at the same batch (`mlxcel bench`)
  prefix   a prompt of 2,000 tokens, cold and again: milliseconds to the first token
  lookup   copying a text, with prompt lookup and without: tokens a second, the same answer
  gap      a prompt of 8,000 tokens while three others stream: the longest wait between two of their tokens, and the speed of
           the prompt beside that of the same prompt alone

Medians of the rounds. Needs build/release and llama.cpp (bench/peers/build.sh). About four minutes on two cores.
Exit status 1 where something asked for is missed.
"""
import argparse
import contextlib
import http.client
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from compare import LLAMA, PEERS, ROOT, default_model, free_port, run

CLIENTS, TOKENS, PROMPT_TOKENS = 16, 64, 32
TEXT = """def area(width, height):
    if width < 0 or height < 0:
        raise ValueError("sides are not negative")
    return width * height


def volume(width, height, depth):
    if depth < 0:
        raise ValueError("sides are not negative")
    return area(width, height) * depth


def surface(width, height, depth):
    return 2 * (area(width, height) + area(width, depth) + area(height, depth))
"""


class Server:
    """A server program on a free port, ready when the block begins; requests go to llama-server's native route."""

    def __init__(self, name, command):
        self.name, self.port = name, free_port()
        self.command = [str(word) for word in [*command, "--port", self.port]]

    def __enter__(self):
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(self.command, stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while True:
            with contextlib.suppress(OSError, http.client.HTTPException):
                connection = self.connect()
                connection.request("GET", "/health")
                if connection.getresponse().status == 200:
                    return self
            if time.monotonic() > deadline or self.process.poll() is not None:
                self.log.seek(0)
                sys.exit(f"{' '.join(self.command)}: not ready\n{self.log.read()[-2000:]}")
            time.sleep(0.05)

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(timeout=60)

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)

    def complete(self, prompt, tokens, **fields):
        body = json.dumps({"prompt": prompt, "n_predict": tokens, "temperature": 0, **fields})
        connection = self.connect()
        connection.request("POST", "/completion", body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        text = response.read()
        if response.status != 200:
            sys.exit(f"{self.name}: {response.status} {text[:500]!r}")
        return json.loads(text)

    def stream(self, prompt, tokens, times, stop):
        """Appends the time of every piece until `stop` is set."""
        body = json.dumps({"prompt": prompt, "n_predict": tokens, "temperature": 0, "ignore_eos": True, "stream": True})
        connection = self.connect()
        connection.request("POST", "/completion", body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        while not stop.is_set() and (line := response.readline()):
            if line.startswith(b"data: "):
                times.append(time.monotonic())
        connection.close()


def prompt_ids(count, salt):
    """Tokens that no earlier prompt began with."""
    return [(7919 * i + 31337 * salt + 1009) % 48000 + 200 for i in range(count)]


def together(server, salt):
    """Tokens a second of CLIENTS requests that begin at once."""
    ready, threads, found = threading.Barrier(CLIENTS + 1), [], []

    def client(number):
        prompt = prompt_ids(PROMPT_TOKENS, salt * CLIENTS + number)
        ready.wait()
        found.append(server.complete(prompt, TOKENS, ignore_eos=True, cache_prompt=False)["tokens_predicted"])

    for number in range(CLIENTS):
        threads.append(threading.Thread(target=client, args=(number,)))
        threads[-1].start()
    ready.wait()
    begun = time.monotonic()
    for thread in threads:
        thread.join()
    seconds = time.monotonic() - begun
    if found != [TOKENS] * CLIENTS:
        sys.exit(f"{server.name}: answers of {found} tokens")
    return CLIENTS * TOKENS / seconds


class Table:
    def __init__(self, rounds):
        self.rounds, self.rows = rounds, []

    def add(self, what, asked, found, met, note):
        self.rows.append({"what": what, "asked": asked, "found": found, "met": bool(met), "note": note})

    def print(self, title):
        print(f"{title}\n\n| what | asked | found | | |\n| --- | ---: | ---: | --- | --- |")
        for row in self.rows:
            print(f"| {row['what']} | {row['asked']} | {row['found']} | {'met' if row['met'] else 'missed'} | {row['note']} |")


def say(text):
    print(text, file=sys.stderr, flush=True)


def clients(table, args):
    q4_1 = default_model()
    q4_0 = PEERS / "models/SmolLM2-135M-Instruct.Q4_0.gguf"
    (PEERS / "models").mkdir(parents=True, exist_ok=True)
    if not q4_0.exists():
        run([LLAMA / "llama-quantize", "--allow-requantize", q4_1, q4_0, "Q4_0"])
    window = 512 * CLIENTS
    servers = [Server(precision, [args.build / "bin/mlxcel-server", "-m", q4_1, "-t", args.threads, "--cpu-precision", precision,
                                  "--parallel", CLIENTS, "-c", window, "--log-disable"]) for precision in ("high", "fast")]
    servers.append(Server("llama", [LLAMA / "llama-server", "-m", q4_0, "-t", args.threads, "-np", CLIENTS, "-c", window,
                                    "--no-webui", "--log-disable"]))
    rates = {}

    def note(name, rate):
        rates.setdefault(name, []).append(rate)
        say(f"clients  {name:12} {rate:9.1f} tok/s")

    with contextlib.ExitStack() as stack:
        for server in servers:
            stack.enter_context(server)
            together(server, 1000)
        for number in range(args.rounds):
            for server in servers:
                note(server.name, together(server, number))
            for precision in ("high", "fast"):
                text, _, _ = run([args.build / "bin/mlxcel", "bench", "-m", q4_1, "-t", args.threads, "--cpu-precision", precision,
                                  "-p", 0, "-n", 0, "-pg", f"{PROMPT_TOKENS},{TOKENS}", "-b", CLIENTS, "-r", 2, "-o", "json", "--quiet"])
                # The bare engine's figure counts prompts too; here only what was generated counts.
                note(f"bare {precision}", json.loads(text)[0]["avg_ts"] * TOKENS / (PROMPT_TOKENS + TOKENS))
    middle = {name: statistics.median(found) for name, found in rates.items()}
    for precision, asked in (("high", 1.6), ("fast", 2.2)):
        ratio = middle[precision] / middle["llama"]
        table.add(f"{CLIENTS} clients against llama-server Q4_0, `{precision}`", f"{asked}x", f"{ratio:.2f}x", ratio >= asked,
                  f"{middle[precision]:.0f} and {middle['llama']:.0f} tok/s")
    for precision in ("high", "fast"):
        share = middle[precision] / middle[f"bare {precision}"]
        table.add(f"{CLIENTS} clients, of the bare engine at that batch, `{precision}`", "90 %", f"{share:.0%}", share >= 0.9,
                  f"{middle[precision]:.0f} and {middle[f'bare {precision}']:.0f} tok/s")


def own_server(args, name, *flags):
    return Server(name, [args.build / "bin/mlxcel-server", "-m", default_model(), "-t", args.threads, "--log-disable", *flags])


def prefix(table, args):
    cold, warm = [], []
    with own_server(args, "prefix", "--parallel", 2, "-c", 8192) as server:
        server.complete(prompt_ids(64, 5), 2)
        for number in range(args.rounds):
            for times in (cold, warm):
                begun = time.monotonic()
                server.complete(prompt_ids(2000, 50 + number), 1, ignore_eos=True)
                times.append((time.monotonic() - begun) * 1e3)
            say(f"prefix   {cold[-1]:9.1f} ms cold {warm[-1]:9.1f} ms again")
    ratio = statistics.median(cold) / statistics.median(warm)
    table.add("a prompt of 2,000 tokens again, how much sooner", "20x", f"{ratio:.0f}x", ratio >= 20,
              f"{statistics.median(cold):.0f} and {statistics.median(warm):.1f} ms")


def lookup(table, args):
    prompt = f"{TEXT}\n# The same once more:\n\n{TEXT}\n# The same once more:\n\n"
    with own_server(args, "plain", "--parallel", 1, "-c", 2048) as plain, \
            own_server(args, "lookup", "--parallel", 1, "-c", 2048, "--draft-kind", "prompt-lookup") as looking:
        rates, texts = {}, set()
        for number in range(args.rounds + 1):
            for server in (plain, looking):
                answer = server.complete(prompt, 140)
                texts.add(answer["content"])
                if number > 0:
                    rates.setdefault(server.name, []).append(answer["timings"]["predicted_per_second"])
                    say(f"lookup   {server.name:8} {rates[server.name][-1]:9.1f} tok/s")
    middle = {name: statistics.median(found) for name, found in rates.items()}
    ratio = middle["lookup"] / middle["plain"]
    table.add("copying with prompt lookup, against plain decode", "2x", f"{ratio:.2f}x", ratio >= 2 and len(texts) == 1,
              f"{middle['lookup']:.0f} and {middle['plain']:.0f} tok/s, {'one answer' if len(texts) == 1 else 'ANSWERS DIFFER'}")


def gap(table, args):
    length = 8000
    alone, beside, gaps = [], [], []
    with own_server(args, "gap", "--parallel", 4, "-c", 4 * 8192) as server:
        server.complete(prompt_ids(600, 3), 2)
        for number in range(min(args.rounds, 2)):
            alone.append(server.complete(prompt_ids(length, 70 + 2 * number), 1, cache_prompt=False)["timings"]["prompt_ms"])
            stop, threads, all_times = threading.Event(), [], [[], [], []]
            for row, times in enumerate(all_times):
                threads.append(threading.Thread(target=server.stream, args=(prompt_ids(20, 90 + row), 4000, times, stop)))
                threads[-1].start()
            while min(len(times) for times in all_times) < 8:
                time.sleep(0.05)
            begun = time.monotonic()
            beside.append(server.complete(prompt_ids(length, 71 + 2 * number), 1, cache_prompt=False)["timings"]["prompt_ms"])
            ended = time.monotonic()
            stop.set()
            for thread in threads:
                thread.join()
            for times in all_times:
                found = [b - a for a, b in zip(times, times[1:]) if b >= begun and a <= ended]
                gaps.append(max(found) * 1e3)
            say(f"gap      {gaps[-3:]} ms; prompt {alone[-1]:.0f} ms alone, {beside[-1]:.0f} ms beside")
    longest = statistics.median(gaps)
    table.add(f"longest wait for a token while {length:,} tokens of a prompt are evaluated", "100 ms", f"{longest:.0f} ms", longest <= 100,
              f"median over {len(gaps)} streams; the longest {max(gaps):.0f} ms")
    share = statistics.median(alone) / statistics.median(beside)
    table.add("speed of that prompt, of the same alone", "80 %", f"{share:.0%}", share >= 0.8,
              f"{length * 1e3 / statistics.median(beside):.0f} and {length * 1e3 / statistics.median(alone):.0f} tok/s")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", default="clients,prefix,lookup,gap")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--json", type=pathlib.Path)
    args = parser.parse_args()
    parts = {"clients": clients, "prefix": prefix, "lookup": lookup, "gap": gap}
    wanted = args.only.split(",")
    if unknown := set(wanted) - set(parts):
        parser.error(f"--only: {', '.join(sorted(unknown))}: expected {', '.join(parts)}")
    table = Table(args.rounds)
    for name in wanted:
        parts[name](table, args)
    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    table.print(f"commit {commit}, {args.threads} threads, medians of {args.rounds} rounds in turn")
    if args.json:
        args.json.write_text(json.dumps({"commit": commit, "threads": args.threads, "rows": table.rows}, indent=1))
    return 0 if all(row["met"] for row in table.rows) else 1


if __name__ == "__main__":
    sys.exit(main())
