#!/usr/bin/env python3
"""Cases of the command line (README.md). usage: run.py --build build/release [--only TEXT]

Prints each failure, then `N passed, N failed, N skipped`.
"""
import argparse
import importlib
import pathlib
import signal
import sys
import time
import traceback

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from harness import Context, Skip  # noqa: E402


def main():
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs, and so their children, ignore it
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True, type=pathlib.Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--times", action="store_true")
    args = parser.parse_args()
    context = Context(args.build.resolve())
    passed = failed = skipped = 0
    try:
        for path in sorted(HERE.glob("check_*.py")):
            module = importlib.import_module(path.stem)
            for name, function in list(vars(module).items()):
                if not name.startswith("check_") or not callable(function):
                    continue
                title = f"{path.stem}.{name}"
                if args.only not in title:
                    continue
                begun = time.monotonic()
                try:
                    function(context)
                    passed += 1
                except Skip as reason:
                    skipped += 1
                    print(f"skipped {title}: {reason}")
                except Exception:
                    failed += 1
                    print(f"FAILED {title}\n{traceback.format_exc()}")
                if args.times:
                    print(f"{time.monotonic() - begun:7.2f} s {title}", flush=True)
    finally:
        context.close()
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
