#!/usr/bin/env bash
# Configures and builds a preset. usage: scripts/build.sh PRESET [TARGET...]
set -euo pipefail
. "$(dirname "$0")/lib.sh"

preset=${1:?usage: scripts/build.sh PRESET [TARGET...]}
shift
cd "$root"
jobs=$(getconf _NPROCESSORS_ONLN)
mkdir -p "build/$preset"
log=build/$preset/configure.log
cmake --preset "$preset" >"$log" 2>&1 || { tail -20 "$log" >&2; die "cmake --preset $preset failed ($log)"; }
cmake --build "build/$preset" --parallel "$jobs" ${1:+--target "$@"} >&2
