#!/usr/bin/env bash
# Formats the C++ sources by .clang-format. usage: scripts/format.sh [--check] [FILE...]
#   --check   change nothing; name each file that differs and exit 1
# Versions of clang-format disagree about details, so one version, from PyPI, decides.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

version=21.1.8
check=0
if [ "${1:-}" = --check ]; then check=1; shift; fi

cd "$root"
tool=${CLANG_FORMAT:-$root/build/format-venv/bin/clang-format}
if ! "$tool" --version 2>/dev/null | grep -q "version $version"; then
  step "fetching clang-format $version"
  python3 -m venv "$root/build/format-venv"
  "$root/build/format-venv/bin/pip" install --quiet --disable-pip-version-check "clang-format==$version" >&2 ||
    { printf 'clang-format %s could not be fetched\n' "$version" >&2; exit 3; }
  tool=$root/build/format-venv/bin/clang-format
fi

files=("$@")
[ ${#files[@]} -gt 0 ] || mapfile -t files < <(git ls-files '*.cpp' '*.h')
if [ $check -eq 0 ]; then
  printf '%s\0' "${files[@]}" | xargs -0 -n 40 "$tool" -i
elif ! found=$(printf '%s\0' "${files[@]}" | xargs -0 -n 100 "$tool" --dry-run -Werror 2>&1); then
  grep -oE '^[^:]+\.(cpp|h):' <<<"$found" | sort -u | sed 's/:$/: not as .clang-format says; run scripts\/format.sh/' >&2
  exit 1
fi
