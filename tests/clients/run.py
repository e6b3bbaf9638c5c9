#!/usr/bin/env python3
"""The official clients (OpenAI, Anthropic, Ollama) for Python against the real server.

usage: run.py --build build/release [--venv build/clients-venv] [--model GGUF] [--embed-model FOLDER]

The client lives in a virtual environment made from requirements.lock by make_venv.sh; without it every case is
skipped. Prints `N passed, N failed, N skipped`.
"""
import argparse
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True, type=pathlib.Path)
    parser.add_argument("--venv", type=pathlib.Path, default=HERE.parent.parent / "build/clients-venv")
    parser.add_argument("--model")
    parser.add_argument("--embed-model")
    args = parser.parse_args()
    python = args.venv / "bin/python"
    files = sorted(HERE.glob("*_cases.py"))
    cases = [n for f in files for n in f.read_text().splitlines() if n.startswith("def case_")]
    if not python.exists():
        print(f"SKIPPED: no client environment at {args.venv} (tests/clients/make_venv.sh makes it)")
        print(f"0 passed, 0 failed, {len(cases)} skipped")
        return 0
    environment = dict(os.environ)
    if args.model:
        environment["MLXCEL_TEST_MODEL"] = args.model
    if args.embed_model:
        environment["MLXCEL_TEST_EMBED_MODEL"] = args.embed_model
    totals = [0, 0, 0]
    for file in files:
        found = subprocess.run([python, "-u", file, args.build.resolve()], env=environment, capture_output=True, text=True)
        print(found.stdout + found.stderr, end="")
        last = (found.stdout.strip().splitlines() or [""])[-1].split()
        counts = [int(last[i]) for i in (0, 2, 4)] if len(last) == 6 else [0, 1, 0]
        totals = [a + b for a, b in zip(totals, counts)]
    print(f"{totals[0]} passed, {totals[1]} failed, {totals[2]} skipped")
    return 1 if totals[1] else 0


if __name__ == "__main__":
    sys.exit(main())
