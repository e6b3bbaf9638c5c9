#!/usr/bin/env bash
# From a fresh checkout to an answer: sets up, builds a release, gets the default model, answers the prompt.
# usage: scripts/run.sh ["PROMPT"]      without a prompt: a chat in the terminal
set -euo pipefail
. "$(dirname "$0")/lib.sh"

case ${1:-} in -h | --help) sed -n '2,3s/^# //p' "$0"; exit 0 ;; esac

backend=cpu preset=release
if [ "$(uname -s)" = Darwin ]; then backend=metal preset=metal; fi
if [ ! -x "$root/build/$preset/bin/mlxcel" ]; then
  step "first run: packages, MLX, build and model; about 8 minutes on two cores"
fi
"$root/scripts/setup.sh" "$backend"
step "building ($preset)"
"$root/scripts/build.sh" "$preset" mlxcel mlxcel-server
model=$("$root/scripts/fetch_model.sh")
step "ready"
program=$root/build/$preset/bin/mlxcel
if [ $# -eq 0 ]; then exec "$program" run; fi
"$program" run -p "$*"
cat >&2 <<EOF

chat in the terminal   build/$preset/bin/mlxcel run
serve over HTTP        build/$preset/bin/mlxcel serve -m SmolLM2-135M-Instruct --port 8080
EOF
