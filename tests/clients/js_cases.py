"""Runs js_cases.mjs against the servers; skipped where node or the packages are missing (make_venv.sh installs them)."""
import pathlib
import shutil
import subprocess
import sys

from runner import KEY, SERVERS, Skip, address

MODULES = pathlib.Path(sys.executable).parent.parent.parent / "clients-js/node_modules"
COUNT = (pathlib.Path(__file__).parent / "js_cases.mjs").read_text().count("\n  async ")


def main():
    if not shutil.which("node") or not MODULES.exists():
        print("SKIPPED: no node, or no packages in build/clients-js")
        print(f"0 passed, 0 failed, {COUNT} skipped")
        return 0
    try:
        embed = address("embed")
    except Skip:
        embed = "-"
    found = subprocess.run(["node", pathlib.Path(__file__).parent / "js_cases.mjs", MODULES, address("scripted"), embed, KEY])
    wrong = sum(one.stop() != 0 for one in SERVERS.values())
    return found.returncode or wrong


sys.exit(main())
