#!/usr/bin/env python3
"""Writes docs/api.md from the server's own tables of routes and flags and from tests/http/examples.json.

usage: make_api_doc.py --build build/release [--check]

--check changes nothing and fails where the file is not what would be written.
"""
import argparse
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
ADDRESS = "http://127.0.0.1:8080"


def quoted(target):
    return f"'{target}'" if set(target) & set("?&{} ") else target


def curl(example):
    method = example.get("method", "")
    usual = "POST" if "json" in example else "GET"
    target = f"{ADDRESS}{example['path']}"
    lines = [f"curl -s {'-X ' + method + ' ' if method not in ('', usual) else ''}{quoted(target)}"]
    for name, value in example.get("headers", {}).items():
        lines.append(f"  -H '{name}: {value}'")
    if "json" in example:
        lines.append("  -H 'Content-Type: application/json'")
        lines.append("  -d '" + json.dumps(example["json"], ensure_ascii=False) + "'")
    return " \\\n".join(lines)


def document(binary):
    tables = subprocess.run([binary, "--help-markdown"], check=True, capture_output=True, text=True).stdout
    routes, flags = tables.split("\n## Flags\n")
    out = ["# The server's API", "",
           "Made by `scripts/make_api_doc.py` from the tables in the code; the tests run every example.", "",
           "Keys go in `Authorization: Bearer KEY` or `X-Api-Key: KEY`. Every answer carries `X-Request-Id`; names in a",
           "request that nobody knows are listed in `X-Mlxcel-Ignored-Fields`. `MODEL` stands for the id that `/v1/models` shows,",
           "`RESPONSE` for a response's. Routes under `/v1` that are there without it too answer alike.", "",
           "## Examples", ""]
    for example in json.loads((ROOT / "tests/http/examples.json").read_text()):
        out += [f"### {example['title']}", ""]
        if "note" in example:
            out += [example["note"], ""]
        out += ["```sh", curl(example), "```", ""]
    return "\n".join(out) + routes.strip() + "\n\n## Flags\n" + flags.rstrip() + "\n"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True, type=pathlib.Path)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    target = ROOT / "docs/api.md"
    text = document(args.build / "bin/mlxcel-server")
    if args.check:
        if not target.exists() or target.read_text() != text:
            print(f"{target} is stale: run scripts/make_api_doc.py --build {args.build}")
            return 1
        return 0
    target.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
