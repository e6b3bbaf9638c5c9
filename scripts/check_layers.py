#!/usr/bin/env python3
"""Checks that every room of src/ includes only the rooms src/LAYERS allows, that JSON stays out of headers,
that the order of LAYERS has no cycle, and that no two files define a type of the same name: the linker keeps one
of their functions for both. Exit 1 with one line per fault."""
import collections
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
INCLUDE = re.compile(r'^\s*#\s*include\s+["<]([^">]+)[">]')
# Comments, directives and literals (dropped), then words and the marks that structure a file.
TOKEN = re.compile(r"""//[^\n]* | /\*.*?\*/ | ^[ \t]*\#(?:[^\n\\]|\\.)* | R"(?P<mark>[^(\s]*)\(.*?\)(?P=mark)"
                       | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])+' | (?P<token>[A-Za-z_]\w*|::|\S)""",
                   re.S | re.M | re.X)
KINDS = {"class", "struct", "union", "enum"}


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


def after_brackets(words, opening, closing):
    """What follows the first bracket and its partner."""
    depth = 0
    for at, word in enumerate(words):
        depth += (word == opening) - (word == closing)
        if word == closing and depth == 0:
            return words[at + 1:]
    return []


def name_defined(words):
    """The name of the type that these words before a brace define; None for anything else."""
    if words[:1] == ["template"]:
        words = after_brackets(words, "<", ">")
    if words[:1] and words[0] in KINDS:
        words = [word for word in words if word not in KINDS]
        if words[:1] == ["alignas"]:
            words = after_brackets(words, "(", ")")
        if words and words[0].isidentifier() and words[1:2] not in (["::"], ["<"]):
            return words[0]
    return None


def types_defined(text):
    """Qualified names of the types at namespace scope; unnamed namespaces are left out."""
    scopes, words = [], []  # of each open brace: its namespace's name, "" where unnamed, None for anything else
    for match in TOKEN.finditer(text):
        token = match["token"]
        if token == "{":
            space = "namespace" in words
            name = None if space else name_defined(words)
            if name and all(scopes):
                yield "::".join([*scopes, name])
            scopes.append("".join(words[words.index("namespace") + 1:]) if space else None)
        elif token == "}" and scopes:
            scopes.pop()
        if token in {"{", "}", ";"}:
            words = []
        elif token:
            words.append(token)


def twice_defined():
    """One line for each type that more than one file defines."""
    files = collections.defaultdict(set)
    for root in ("src", "tests", "bench"):
        for path in sorted((ROOT / root).rglob("*")):
            if path.suffix in {".h", ".cpp", ".inl"}:
                for name in types_defined(path.read_text()):
                    files[name].add(str(path.relative_to(ROOT)))
    return [f"{name} is defined in {' and in '.join(sorted(where))}"
            for name, where in sorted(files.items()) if len(where) > 1]


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
    faults += twice_defined()
    for fault in faults:
        print(fault)
    print(f"include check: {checked} files, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
