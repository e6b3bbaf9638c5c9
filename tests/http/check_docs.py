"""docs/api.md is what the code says, and its examples, one for every route, work as they stand there."""
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

import make_api_doc  # noqa: E402

EXAMPLES = json.loads((ROOT / "tests/http/examples.json").read_text())


def check_the_document_is_fresh(context):
    written = (ROOT / "docs/api.md").read_text()
    assert written == make_api_doc.document(context.binary), "docs/api.md is stale: run scripts/make_api_doc.py"


def plain(path):
    """A route's pattern, without the prefix that may be left out."""
    path = path.split("?")[0].removeprefix("/v1")
    return re.sub(r"\{[a-z]+\}|RESPONSE|MODEL|sha256:0|(?<=/slots/)0", "{}", path) or "/"


def method_of(example):
    return example.get("method") or ("POST" if "json" in example else "GET")


def check_every_route_has_an_example(context):
    tables = subprocess.run([context.binary, "--help-markdown"], check=True, capture_output=True, text=True).stdout
    shown = {(method_of(e), plain(e["path"])) for e in EXAMPLES}
    # Names that mean another route of the list.
    same = {"/completions": "/completion", "/embeddings": "/embedding"}
    for line in tables.split("\n## Flags\n")[0].splitlines():
        if not line.startswith("| `"):
            continue
        path, methods = (cell.strip(" `") for cell in line.split("|")[1:3])
        for method in methods.split(", "):
            names = {plain(path), same.get(path, plain(path))}
            assert any((method, name) in shown for name in names), f"no example of {method} {path}"


def check_every_example_runs(context):
    if not shutil.which("curl"):
        return
    folder = tempfile.mkdtemp()
    flags = ("--metrics", "--props", "--settings", "--offline", "--slot-save-path", folder, "--parallel", "4")
    with context.start(*flags, env={"MLXCEL_MODELS_DIR": str(context.folder / "no-store")}) as server:
        kept = [server.post("/v1/responses", {"input": "x[[space]]"}).json()["id"] for _ in range(2)]
        written = (ROOT / "docs/api.md").read_text()
        commands = [block.split("```")[0] for block in written.split("```sh\n")[1:]]
        assert len(commands) == len(EXAMPLES) > 70
        for command, example in zip(commands, EXAMPLES):
            here = command.replace(make_api_doc.ADDRESS, f"http://127.0.0.1:{server.port}").replace("MODEL", "scripted").replace("RESPONSE", kept[0])
            found = subprocess.run(["bash", "-c", here.rstrip() + " -w '\\n%{http_code}'"], capture_output=True, text=True, timeout=60)
            status = example.get("status", 200)
            allowed = status if isinstance(status, list) else [status]
            assert int(found.stdout.rsplit("\n", 1)[-1]) in allowed, f"{command}\n{found.stdout[-500:]}{found.stderr}"
        assert server.alive()
