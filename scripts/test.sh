#!/usr/bin/env bash
# Builds and runs the tests. The last line is `N passed, N failed, N skipped`.
# usage: scripts/test.sh [--all] [--quick]
#   (none)   release build and every test but the long ones, then the address sanitizer over seven rooms
#   --all    the address sanitizer over everything, the thread sanitizer, the official clients, the long soaks
#   --quick  release build and its tests only
set -euo pipefail
. "$(dirname "$0")/lib.sh"

all=0 quick=0
for argument in "$@"; do
  case $argument in
    --all) all=1 ;;
    --quick) quick=1 ;;
    -h | --help) sed -n '2,6s/^# //p' "$0"; exit 0 ;;
    *) die "unknown argument $argument; usage: scripts/test.sh [--all] [--quick]" ;;
  esac
done

cd "$root"
out=$root/build/test-results
rm -rf "$out"
mkdir -p "$out"
status=0

step "setting up (first time: one to two minutes)"
scripts/setup.sh cpu
step "fetching the default model (98 MB, once)"
scripts/fetch_model.sh >/dev/null || step "the default model could not be fetched; its tests will skip"
tests/real/fetch.sh >/dev/null || step "the embedding model could not be fetched; its tests will skip"
tests/real/fetch_tokenizers.sh >/dev/null || step "the vocabularies could not be fetched; their tests will skip"

run() {  # run STAGE NAME=COMMAND...
  local stage=$1
  shift
  scripts/run_tests.py --out "$out/$stage" "$@" || status=1
}

# gtest_programs PRESET: name=path of every test program of a build folder.
gtest_programs() {
  local program
  for program in "build/$1"/tests/test_*; do
    [ -x "$program" ] && [ -f "$program" ] && printf '%s=%s\n' "$(basename "$program" | cut -c6-)" "$program"
  done
}

step "checking includes against src/LAYERS, and the format of the sources"
passed=0 failed=0 skipped=0
if python3 scripts/check_layers.py; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
code=0
scripts/format.sh --check || code=$?
case $code in 0) passed=$((passed + 1)) ;; 3) skipped=$((skipped + 1)) ;; *) failed=$((failed + 1)) ;; esac
echo "[$passed,$failed,$skipped]" >"$out/totals.json"
[ $failed -eq 0 ] || status=1

step "building the release (cold: about 8 minutes on two cores)"
scripts/build.sh release
mapfile -t programs < <(gtest_programs release)
step "running ${#programs[@]} test programs"
run release "${programs[@]}"
for runner in tests/*/run.py; do
  [ -f "$runner" ] || continue
  case $(basename "$(dirname "$runner")") in clients | soak) continue ;; esac
  name=$(basename "$(dirname "$runner")")
  run release "$name=python3 $runner --build build/release"
done
run release "soak=python3 tests/soak/run.py --build build/release --minutes 0.5"

# The rooms that handle files, memory and text from outside; --all sanitizes every program, and the server at work.
sanitized=(base tensor checkpoint text state sample nn)
# The programs in which threads meet; the others compute as one, over the pool that test_kernels covers.
threaded=(base kernels engine engine_real engine_soak hub server api app http)
sanitizer_environment=(ASAN_OPTIONS=detect_stack_use_after_return=1 UBSAN_OPTIONS=print_stacktrace=1
  LSAN_OPTIONS=suppressions=$root/tests/suppressions/lsan.txt)

if [ $quick -eq 0 ]; then
  step "building with the address sanitizer (cold: about 9 minutes on two cores)"
  if [ $all -eq 1 ]; then scripts/build.sh asan; else scripts/build.sh asan "${sanitized[@]/#/test_}"; fi
  mapfile -t programs < <(gtest_programs asan)
  if [ $all -eq 0 ]; then
    programs=()
    for name in "${sanitized[@]}"; do programs+=("$name=build/asan/tests/test_$name"); done
  fi
  step "running ${#programs[@]} programs under the address sanitizer"
  export "${sanitizer_environment[@]}"
  if [ $all -eq 1 ]; then programs+=("served=python3 tests/http/run.py --build build/asan"); fi
  run asan "${programs[@]}"
fi

if [ $all -eq 1 ]; then
  step "building with the thread sanitizer (cold: about 9 minutes on two cores)"
  scripts/build.sh tsan "${threaded[@]/#/test_}" mlxcel-server make_scripted_model
  programs=()
  for name in "${threaded[@]}"; do
    filter=
    # One family of each state kind: all of them take an hour here, and the threads are the same.
    if [ "$name" = engine_soak ]; then filter=" --gtest_filter=*Kinds*:ScriptedSoak*"; fi
    programs+=("$name=build/tsan/tests/test_$name$filter")
  done
  programs+=("served=python3 tests/http/run.py --build build/tsan")
  step "running ${#programs[@]} programs under the thread sanitizer"
  TSAN_OPTIONS="suppressions=$root/tests/suppressions/tsan.txt halt_on_error=0" run tsan "${programs[@]}"
  tests/clients/make_venv.sh >&2 || step "the official clients could not be installed; their cases will skip"
  run all "clients=python3 tests/clients/run.py --build build/release" \
    "llama_suite=python3 tests/llama_suite/suite.py --build build/release" \
    "templates=python3 tests/llama_suite/templates.py --build build/release" \
    "soak=python3 tests/soak/run.py --build build/release --minutes 10" \
    "many=env MLXCEL_SOAK=500 build/release/tests/test_engine_soak --gtest_filter=*Kinds*:ScriptedSoak*" \
    "many_real=env MLXCEL_SOAK=500 build/release/tests/test_engine_real --gtest_filter=*Soak*"
fi

step "done; logs are in build/test-results"
python3 - "$out/totals.json" <<'PY'
import json, sys
passed, failed, skipped = json.load(open(sys.argv[1]))
print(f"{passed} passed, {failed} failed, {skipped} skipped")
PY
exit $status
