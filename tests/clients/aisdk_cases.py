"""Runs aisdk_cases.mjs against the scripted server; skipped where node or the packages are missing."""
import pathlib
import shutil
import subprocess
import sys

from runner import KEY, SERVERS, address

MODULES = pathlib.Path(sys.executable).parent.parent.parent / "clients-js/node_modules"
CASES = pathlib.Path(__file__).parent / "aisdk_cases.mjs"


def main():
    if not shutil.which("node") or not (MODULES / "ai").exists():
        print("SKIPPED: no node, or no packages in build/clients-js")
        print(f"0 passed, 0 failed, {CASES.read_text().count(chr(10) + '  async ')} skipped")
        return 0
    found = subprocess.run(["node", CASES, MODULES, address("scripted"), KEY])
    wrong = sum(one.stop() != 0 for one in SERVERS.values())
    return found.returncode or wrong


sys.exit(main())
