#!/usr/bin/env bash
# Makes the environments of the official clients (development only): Python's at build/clients-venv, or at $1, and
# JavaScript's beside it at clients-js where there is npm.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
venv=${1:-$here/../../build/clients-venv}
stamp=$venv/requirements.lock
if ! cmp -s "$here/requirements.lock" "$stamp"; then
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --no-deps -r "$here/requirements.lock"
  cp "$here/requirements.lock" "$stamp"
fi
js=$(dirname "$venv")/clients-js
if command -v npm >/dev/null && ! cmp -s "$here/package.json" "$js/package.json"; then
  mkdir -p "$js"
  cp "$here/package.json" "$js/package.json"
  (cd "$js" && npm install --no-package-lock --no-audit --no-fund --silent) || { rm "$js/package.json"; exit 1; }
fi
