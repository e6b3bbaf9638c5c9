#!/usr/bin/env python3
"""Every route from a description of what it takes, by schemathesis: bodies that fit it, bodies that nearly do, and others.

usage: fuzz.py --build build/release [--seconds 120] [--venv build/fuzz-venv] [--seed N] [--keep FOLDER]

The description is made here: routes from the server's own table, bodies from the examples of tests/http/check_fuzz.py,
whose types become the schema's. Found are answers of 5xx (501 and 503 are said on purpose), dropped connections,
answers that take a minute, and a server that has died. Prints `N passed, N failed, N skipped`. Not a quick test.
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(ROOT / "tests/http"))

from check_fuzz import BODIES, OTHERS, SAME  # noqa: E402
from harness import Server  # noqa: E402

CONFIG = """
[checks]
not_a_server_error.expected-statuses = ["2xx", "3xx", "4xx", "501", "503"]
"""
CAPS = {"max_tokens", "max_completion_tokens", "max_output_tokens", "n_predict", "num_predict", "n"}
QUERIES = {"conv_id": "string", "from": "integer", "model": "string", "autoload": "string", "reload": "string", "fail_on_no_slot": "string", "action": "string"}


def schema_of(value, name=""):
    """What values like this one look like; more members may come, none need to."""
    if isinstance(value, bool):
        return {"type": "boolean", "nullable": True}
    if isinstance(value, int):
        return {"type": "integer", "minimum": 0, "maximum": 16} if name in CAPS else {"type": "integer", "nullable": True}
    if isinstance(value, float):
        return {"type": "number", "nullable": True}
    if isinstance(value, str):
        return {"anyOf": [{"type": "string"}, {"enum": [value]}]}
    if isinstance(value, list):
        kinds = [schema_of(item, name) for item in value[:3]]
        return {"type": "array", "maxItems": 4, "items": {"anyOf": kinds} if kinds else {}}
    if isinstance(value, dict):
        return {"type": "object", "properties": {key: schema_of(item, key) for key, item in value.items()}}
    return {}


def operation(method, path, body):
    out = {"responses": {"default": {"description": "any"}}, "parameters": [{"name": n, "in": "path", "required": True, "schema": {"type": "string"}}
                                                                            for n in re.findall(r"{(\w+)}", path)]}
    if method in ("get", "delete") or "/slots/" in path:
        out["parameters"] += [{"name": n, "in": "query", "schema": {"type": kind}} for n, kind in QUERIES.items()]
    if body is not None:
        out["requestBody"] = {"content": {"application/json": {"schema": schema_of(body), "example": body}}}
    return out


def description(binary):
    tables = subprocess.run([binary, "--help-markdown"], check=True, capture_output=True, text=True).stdout
    bodies = {**BODIES, **{path.split("?")[0]: body for (_, path), body in OTHERS.items()}, "/slots/{id}": {"filename": "a.bin"}}
    paths = {}
    for line in tables.split("\n## Flags\n")[0].splitlines():
        if not line.startswith("| `"):
            continue
        path, methods = (part.strip(" `") for part in line.split("|")[1:3])
        for method in methods.replace(" ", "").lower().split(","):
            if path == "/models/sse":
                continue  # a stream that does not end
            body = bodies.get(SAME.get(path, path)) if method in ("post", "patch", "delete") else None
            paths.setdefault(path, {})[method] = operation(method, path, body)
    return {"openapi": "3.0.3", "info": {"title": "mlxcel-server", "version": "1"}, "paths": paths}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True, type=pathlib.Path)
    parser.add_argument("--seconds", type=int, default=120)
    parser.add_argument("--venv", type=pathlib.Path, default=ROOT / "build/fuzz-venv")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--keep", type=pathlib.Path)
    args = parser.parse_args()
    if not (args.venv / "bin/schemathesis").exists():
        print(f"SKIPPED: no schemathesis at {args.venv} (python3 -m venv, pip install -r {HERE.name}/requirements.txt)")
        print("0 passed, 0 failed, 1 skipped")
        return 0
    build = args.build.resolve()
    work = args.keep or pathlib.Path(tempfile.mkdtemp(prefix="mlxcel-schema-"))
    work.mkdir(exist_ok=True)
    subprocess.run([build / "tests/make_scripted_model", work / "scripted"], check=True, stdout=subprocess.DEVNULL)
    (work / "openapi.json").write_text(json.dumps(description(build / "bin/mlxcel-server")))
    (work / "schemathesis.toml").write_text(CONFIG)
    (work / "slots").mkdir(exist_ok=True)
    flags = ("--offline", "--settings", "--props", "--metrics", "--slot-save-path", work / "slots", "--max-queue-depth", "64")
    with Server(build / "bin/mlxcel-server", work / "scripted", *flags, env={"MLXCEL_MODELS_DIR": str(work / "no-store")}) as server:
        found = subprocess.run([args.venv / "bin/schemathesis", "--config-file", work / "schemathesis.toml", "run", work / "openapi.json", "--url",
                                f"http://127.0.0.1:{server.port}", "--checks", "not_a_server_error", "--max-time", str(args.seconds), "--seed", args.seed,
                                "--workers", "2", "--phases", "examples,coverage,fuzzing", "--request-timeout", "60", "--max-response-time", "60",
                                "--warnings", "off", "--suppress-health-check", "all", "--no-color", "--continue-on-failure", "--no-shrink"],
                               capture_output=True, text=True, cwd=work, timeout=args.seconds * 4 + 300)
        print(found.stdout[-6000:] + found.stderr[-2000:])
        problems = []
        if found.returncode != 0:
            problems.append(f"schemathesis ended with {found.returncode}")
        if not server.alive():
            problems.append(f"the server has died: {server.errors()[-1000:]}{server.output()[-500:]}")
        elif server.chat("[[space]]").json()["choices"][0]["message"]["content"] != " hello" or server.stop() != 0:
            problems.append("the server does not answer, or end, as before")
    for problem in problems:
        print(f"FAILED: {problem} (in {work})")
    print(f"{0 if problems else 1} passed, {len(problems)} failed, 0 skipped")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
