#!/usr/bin/env python3
"""Checks that every room of src/ includes only the rooms src/LAYERS allows, that JSON stays out of headers,
and that the order of LAYERS has no cycle. Exit 1 with one line per fault."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
INCLUDE = re.compile(r'^\s*#\s*include\s+["<]([^">]+)[">]')


def read_layers():
    allowed, order = {}, []
    for line in (ROOT / "src/LAYERS").read_text().splitlines():
        line = line.split("#")[0].strip()
        if not line:
            continue
        room, _, lower = line.partition(":")
        rooms = lower.split()
        for other in rooms:
            if other not in order:
                sys.exit(f"src/LAYERS: {room} names {other}, which does not stand above it")
        order.append(room)
        allowed[room] = set(rooms)
    return allowed


def main():
    allowed = read_layers()
    faults = []
    checked = 0
    for path in sorted((ROOT / "src").rglob("*")):
        if path.suffix not in {".h", ".cpp", ".inl"}:
            continue
        where = path.relative_to(ROOT)
        room = where.parts[1]
        if room not in allowed:
            faults.append(f"{where}: room {room} is not in src/LAYERS")
            continue
        checked += 1
        for number, line in enumerate(path.read_text().splitlines(), 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            target = match.group(1)
            if path.suffix == ".h" and target.startswith("nlohmann/"):
                faults.append(f"{where}:{number}: nlohmann-json belongs in .cpp files")
            first = target.split("/")[0]
            if first in allowed and first != room and first not in allowed[room] and "/" in target:
                faults.append(f"{where}:{number}: {room} may not include {first} (src/LAYERS)")
    for fault in faults:
        print(fault)
    print(f"include check: {checked} files, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
