#!/usr/bin/env python3
"""The official OpenAI client for Python against the real server.

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
    cases = [n for n in (HERE / "openai_cases.py").read_text().splitlines() if n.startswith("def case_")]
    if not python.exists():
        print(f"SKIPPED: no client environment at {args.venv} (tests/clients/make_venv.sh makes it)")
        print(f"0 passed, 0 failed, {len(cases)} skipped")
        return 0
    command = [python, "-u", HERE / "openai_cases.py", args.build.resolve()]
    environment = dict(os.environ)
    if args.model:
        environment["MLXCEL_TEST_MODEL"] = args.model
    if args.embed_model:
        environment["MLXCEL_TEST_EMBED_MODEL"] = args.embed_model
    return subprocess.run(command, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main())
