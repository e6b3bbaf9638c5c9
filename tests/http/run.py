#!/usr/bin/env python3
"""Wire tests: requests over real sockets against the real server, most of them on the scripted model.

usage: run.py --build build/release [--only TEXT] [--model GGUF]

cases/*.json are requests with expected answers (README.md); check_*.py are the cases that need code: every
function named check_* is one. Prints each failure, then `N passed, N failed, N skipped`.
"""
import argparse
import importlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from harness import Server, sse_events, joined_chat, joined_text, finishes  # noqa: E402


class Skip(Exception):
    pass


class Context:
    """What a check may use: servers started on demand and kept."""

    def __init__(self, build, model):
        self.binary = build / "bin/mlxcel-server"
        self.maker = build / "tests/make_scripted_model"
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="mlxcel-http-"))
        self.real_model = model
        self.servers = {}
        self.ids = None
        # Sanitizers multiply work, and keep freed memory for a while.
        cache = build / "CMakeCache.txt"
        self.slack = 10 if cache.exists() and re.search(r"^MLXCEL_SANITIZE:\w+=.+", cache.read_text(), re.M) else 1

    def scripted_folder(self):
        target = self.folder / "scripted"
        if self.ids is None:
            out = subprocess.run([self.maker, target], check=True, capture_output=True).stdout
            self.ids = json.loads(out)
        return target

    def wide_folder(self):
        """The scripted model with a window that long prompts fit into."""
        target = self.folder / "wide/scripted"
        if not target.exists():
            shutil.copytree(self.scripted_folder(), target)
            config = json.loads((target / "config.json").read_text())
            config["max_position_embeddings"] = 8192
            (target / "config.json").write_text(json.dumps(config))
        return target

    def token_ids(self):
        self.scripted_folder()
        return self.ids

    def start(self, *flags, **more):
        return Server(self.binary, self.scripted_folder(), *flags, **more)

    def shared(self, name):
        if name not in self.servers:
            if name == "scripted":
                self.servers[name] = self.start("--metrics", "--parallel", "4")
            elif name == "wide":
                self.servers[name] = Server(self.binary, self.wide_folder(), "--parallel", "4")
            elif name == "keys":
                self.servers[name] = self.start("--api-key", "first-secret,second-secret")
            elif name == "real":
                if not self.real_model or not pathlib.Path(self.real_model).exists():
                    raise Skip("SmolLM2 is not in the store (scripts/fetch_model.sh)")
                self.servers[name] = Server(self.binary, self.real_model, "--metrics", "--parallel", "8", "-c", "8192")
            else:
                raise KeyError(name)
        server = self.servers[name]
        assert server.alive(), f"the {name} server has died: {server.errors()[-2000:]}"
        return server

    @property
    def scripted(self):
        return self.shared("scripted")

    @property
    def wide(self):
        return self.shared("wide")

    @property
    def real(self):
        return self.shared("real")

    def stop_all(self):
        problems = []
        for name, server in self.servers.items():
            code = server.stop()
            if code != 0:
                problems.append(f"the {name} server ended with {code}: {server.errors()[-2000:]}")
        return problems


def mismatch(expected, found, path="$"):
    """Where `found` differs from what is expected: objects may have more, "*" is anything but null."""
    if expected == "*":
        return None if found is not None else f"{path}: expected something, found null"
    if isinstance(expected, dict):
        if not isinstance(found, dict):
            return f"{path}: expected an object, found {found!r}"
        for key, value in expected.items():
            if key not in found:
                return f"{path}.{key}: missing"
            problem = mismatch(value, found[key], f"{path}.{key}")
            if problem:
                return problem
        return None
    if isinstance(expected, list):
        if not isinstance(found, list) or len(found) != len(expected):
            return f"{path}: expected {len(expected)} elements, found {found!r}"
        for i, value in enumerate(expected):
            problem = mismatch(value, found[i], f"{path}[{i}]")
            if problem:
                return problem
        return None
    if isinstance(expected, float):
        return None if abs(expected - found) < 1e-4 else f"{path}: expected {expected}, found {found}"
    return None if expected == found and type(expected) is type(found) else f"{path}: expected {expected!r}, found {found!r}"


def run_case(server, case):
    request, expect = case["request"], case["expect"]
    body = request.get("json")
    if "raw" in request:
        body = request["raw"].encode("latin-1")
    sizes = [1, 7, 65536] if isinstance(body, dict) and body.get("stream") else [65536]
    for size in sizes:
        headers = dict(request.get("headers", {}))
        if "raw" in request:
            headers.setdefault("Content-Type", "application/json")
        method = request.get("method", "POST" if body is not None else "GET")
        found = server.request(method, request["path"], body, headers, read_size=size)
        assert found.status == expect["status"], f"status: expected {expect['status']}, found {found.status} {found.body[:300]}"
        assert found.headers.get("x-request-id"), "no X-Request-Id"
        for name, value in expect.get("headers", {}).items():
            problem = mismatch(value, found.headers.get(name))
            assert problem is None, f"header {name}: {problem}"
        if "body" in expect:
            assert found.body.decode() == expect["body"], f"body: {found.body!r}"
        if "json" in expect:
            problem = mismatch(expect["json"], found.json())
            assert problem is None, f"{problem}\nbody: {found.body[:600]}"
        if "text" in expect:  # a stream, whatever its chunks
            assert found.headers["content-type"] == "text/event-stream"
            events = sse_events(found.body)
            assert events[-1] == "[DONE]", f"the last event is {events[-1]!r}"
            chat = events[0]["object"] == "chat.completion.chunk"
            text = (joined_chat if chat else joined_text)(events)
            assert text == expect["text"], f"text: expected {expect['text']!r}, found {text!r}"
            assert "\ufffd" not in found.body.decode(), "U+FFFD in the stream"
            assert finishes(events) == [expect["finish"]], f"finish: {finishes(events)}"


def collect(context, only):
    for path in sorted(HERE.glob("cases/*.json")):
        file = json.loads(path.read_text())
        for case in file["cases"]:
            name = f"{path.stem}: {case['name']}"
            if only in name:
                yield name, lambda case=case, file=file: run_case(context.shared(file["server"]), case)
    for path in sorted(HERE.glob("check_*.py")):
        module = importlib.import_module(path.stem)
        for name in [n for n in vars(module) if n.startswith("check_")]:
            title = f"{path.stem}.{name}"
            if only in title:
                yield title, lambda f=getattr(module, name): f(context)


def main():
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs, and so their children, ignore it
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True, type=pathlib.Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--model")
    args = parser.parse_args()
    store = os.environ.get("MLXCEL_MODELS_DIR") or pathlib.Path(
        os.environ.get("MLXCEL_CACHE_DIR") or pathlib.Path.home() / ".cache/mlxcel") / "models"
    found = sorted(pathlib.Path(store).glob("HuggingFaceTB/SmolLM2-135M-Instruct/*.gguf"))
    context = Context(args.build.resolve(), args.model or (found[0] if found else None))
    passed = failed = skipped = 0
    for name, body in collect(context, args.only):
        try:
            body()
            passed += 1
        except Skip as reason:
            skipped += 1
            print(f"SKIPPED {name}: {reason}", flush=True)
        except Exception as error:
            failed += 1
            where = traceback.extract_tb(error.__traceback__)[-1]
            print(f"FAILED {name}: {type(error).__name__}: {error} ({pathlib.Path(where.filename).name}:{where.lineno})", flush=True)
    for problem in context.stop_all():
        failed += 1
        print(f"FAILED at the end: {problem}")
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
