"""docs/api.md is what the code says, and its examples work as they stand there."""
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

import make_api_doc  # noqa: E402


def check_the_document_is_fresh(context):
    written = (ROOT / "docs/api.md").read_text()
    assert written == make_api_doc.document(context.binary), "docs/api.md is stale: run scripts/make_api_doc.py"


def check_every_example_runs(context):
    written = (ROOT / "docs/api.md").read_text()
    commands = [block.split("```")[0] for block in written.split("```sh\n")[1:]]
    assert len(commands) > 15
    if not shutil.which("curl"):
        return
    for command in commands:
        here = command.replace(make_api_doc.ADDRESS, f"http://127.0.0.1:{context.scripted.port}").replace("MODEL", "scripted")
        found = subprocess.run(["bash", "-c", here.rstrip() + " -w '\\n%{http_code}'"], capture_output=True, text=True, timeout=60)
        assert found.stdout.endswith("\n200"), f"{command}\n{found.stdout[-500:]}{found.stderr}"
