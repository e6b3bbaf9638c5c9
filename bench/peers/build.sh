#!/usr/bin/env bash
# Builds the peers that bench/compare.py measures against: llama.cpp (from the source package of
# llama-cpp-python, about eight minutes on two cores) and a virtual environment with mlx-lm.
# They are measured, never linked. Everything lands under build/peers. Idempotent.
set -euo pipefail
. "$(dirname "$0")/../../scripts/lib.sh"

peers=$root/build/peers
version=0.3.36
mkdir -p "$peers"
cd "$peers"

if [ ! -x "$peers/llama.cpp/bin/llama-batched-bench" ]; then
  step "fetching and building llama.cpp (about eight minutes)"
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --no-build-isolation --no-binary=:all: \
    --dest "$peers" "llama-cpp-python==$version" >&2
  tar xf "llama_cpp_python-$version.tar.gz"
  cmake -S "llama_cpp_python-$version/vendor/llama.cpp" -B llama.cpp -G Ninja -DCMAKE_BUILD_TYPE=Release \
    -DLLAMA_CURL=OFF -DGGML_NATIVE=ON -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF >configure.log 2>&1
  cmake --build llama.cpp --target llama-bench llama-batched-bench llama-quantize llama-completion llama-server >build.log 2>&1
fi
if [ ! -x "$peers/venv/bin/python" ]; then
  step "installing mlx-lm into a virtual environment"
  python3 -m venv venv
  venv/bin/pip install --quiet --disable-pip-version-check "mlx[cpu]==0.32.4" mlx-lm gguf numpy
fi
step "peers are in build/peers"
