#!/usr/bin/env python3
"""How much of a folder's C++ repeats what stands there already: the share of tokens in runs of 50 or more that have an
earlier twin (as jscpd counts: of each pair one).

    scripts/clone_share.py [FOLDER] [--most PERCENT] [--list]

Tokens are compared as written, without comments, includes and the model configs that tests build (raw strings).
Fails above PERCENT.
"""

import argparse
import collections
import pathlib
import re
import sys

RUN = 50
TOKEN = re.compile(r'R"\((?:.|\n)*?\)"|"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'|[A-Za-z_]\w*|\d[\w.\']*|::|->|<<|>>|&&|\|\||[^\s\w]')
COMMENT = re.compile(r'//[^\n]*|/\*(?:.|\n)*?\*/|^\s*#[^\n]*', re.M)


def tokens_of(path):
    text = COMMENT.sub(lambda found: "\n" * found[0].count("\n"), path.read_text())
    found, line, at = [], 1, 0
    for match in TOKEN.finditer(text):
        line += text.count("\n", at, match.start())
        at = match.start()
        found.append(("R" if match[0].startswith('R"(') else match[0], line))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=pathlib.Path,
                        default=pathlib.Path(__file__).resolve().parents[1] / "src/models/arch")
    parser.add_argument("--most", type=float, default=8.0)
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    files = {path: tokens_of(path) for path in sorted(options.folder.glob("*.cpp"))}
    places = collections.defaultdict(list)
    for path, tokens in files.items():
        words = [word for word, _ in tokens]
        for i in range(len(words) - RUN + 1):
            places[hash(tuple(words[i:i + RUN]))].append((path, i))
    covered = {path: bytearray(len(tokens)) for path, tokens in files.items()}
    pairs = collections.Counter()
    for found in places.values():
        if len(found) < 2:
            continue
        for path, i in found[1:]:
            covered[path][i:i + RUN] = b"\1" * RUN
            pairs[found[0][0].name, path.name] += 1
    total = sum(len(tokens) for tokens in files.values())
    twice = sum(sum(marks) for marks in covered.values())
    if options.list:
        for (a, b), count in pairs.most_common(40):
            print(f"{count + RUN - 1:5} tokens  {a}  {b}")
    share = 100.0 * twice / max(total, 1)
    print(f"{options.folder.name}: {share:.2f} % of {total} tokens have an earlier twin; at most {options.most:g} %")
    return 0 if share <= options.most else 1


if __name__ == "__main__":
    sys.exit(main())
