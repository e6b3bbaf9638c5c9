#!/usr/bin/env bash
# Makes the environment of the official clients (development only) at build/clients-venv, or at $1.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
venv=${1:-$here/../../build/clients-venv}
stamp=$venv/requirements.lock
cmp -s "$here/requirements.lock" "$stamp" && exit 0
python3 -m venv "$venv"
"$venv/bin/pip" install --quiet --no-deps -r "$here/requirements.lock"
cp "$here/requirements.lock" "$stamp"
