#!/usr/bin/env python3
"""Runs test programs one after another and adds up what they counted.

usage: run_tests.py --out DIR NAME=COMMAND...     (COMMAND is split like a shell line)

GoogleTest programs report through --gtest_output; any other command must print `N passed, N failed[, N skipped]`.
Appends to DIR/totals.json; prints failures as they come. Exit 1 when anything failed.
"""
import argparse
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import time

LINE = re.compile(r"(\d+) passed, (\d+) failed(?:, (\d+) skipped)?")


def run_gtest(name, command, out, timeout):
    report = out / f"{name}.json"
    report.unlink(missing_ok=True)
    # gtest_brief would hide skips' reasons; the log keeps everything, the terminal gets failures.
    log = out / f"{name}.log"
    with log.open("w") as stream:
        code = subprocess.run(command + [f"--gtest_output=json:{report}"], stdout=stream, stderr=subprocess.STDOUT,
                              timeout=timeout).returncode
    passed = failed = skipped = 0
    notes = []
    if report.exists():
        for suite in json.loads(report.read_text())["testsuites"]:
            for case in suite["testsuite"]:
                title = f"{suite['name']}.{case['name']}"
                if case.get("result") == "SKIPPED":
                    skipped += 1
                elif case.get("status") == "NOTRUN":
                    continue
                elif "failures" in case:
                    failed += 1
                    notes.append(f"  FAILED {title}: {case['failures'][0]['failure'].strip()[:1500]}")
                else:
                    passed += 1
    if code != 0 and failed == 0:
        failed += 1
        tail = "".join(log.read_text(errors="replace").splitlines(keepends=True)[-40:])
        notes.append(f"  FAILED {name}: exit status {code}; the end of its log:\n{tail}")
    if code == 0 and passed + skipped == 0:
        failed += 1
        notes.append(f"  FAILED {name}: ran no test")
    return passed, failed, skipped, notes


def run_other(name, command, out, timeout):
    log = out / f"{name}.log"
    with log.open("w") as stream:
        code = subprocess.run(command, stdout=stream, stderr=subprocess.STDOUT, timeout=timeout).returncode
    text = log.read_text(errors="replace")
    counts = LINE.findall(text)
    tail = "".join(text.splitlines(keepends=True)[-60:])
    if not counts:
        return 0, 1, 0, [f"  FAILED {name}: exit status {code}, no count in its output; the end of its log:\n{tail}"]
    passed, failed, skipped = (int(n or 0) for n in counts[-1])
    if code != 0 and failed == 0:
        failed = 1
    return passed, failed, skipped, [f"  FAILED {name}:\n{tail}"] if failed else []


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("--timeout", type=int, default=1800)
    parser.add_argument("commands", nargs="+")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    totals_path = args.out.parent / "totals.json"
    totals = json.loads(totals_path.read_text()) if totals_path.exists() else [0, 0, 0]
    bad = False
    for item in args.commands:
        name, _, line = item.partition("=")
        command = shlex.split(line)
        begun = time.monotonic()
        is_gtest = os.path.basename(command[0]).startswith("test_")
        try:
            passed, failed, skipped, notes = (run_gtest if is_gtest else run_other)(name, command, args.out, args.timeout)
        except subprocess.TimeoutExpired:
            passed, failed, skipped, notes = 0, 1, 0, [f"  FAILED {name}: no end after {args.timeout} s"]
        print(f"{name:24} {passed:5} passed {failed:3} failed {skipped:3} skipped {time.monotonic() - begun:7.1f} s", flush=True)
        for note in notes:
            print(note, flush=True)
        bad |= failed > 0
        totals = [a + b for a, b in zip(totals, (passed, failed, skipped))]
    totals_path.write_text(json.dumps(totals))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
