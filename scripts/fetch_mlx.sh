#!/usr/bin/env bash
# Puts MLX at third_party/mlx-<backend>: the PyPI wheel as an archive, SHA-256 checked (docs/adr/0003).
# usage: scripts/fetch_mlx.sh [cpu|metal|cuda]
set -euo pipefail
. "$(dirname "$0")/lib.sh"

backend=${1:-cpu}
version=0.32.4
case $backend in
  cpu)
    name=mlx-cpu
    case $(uname -m) in
      x86_64)
        file=mlx_cpu-$version-py3-none-manylinux_2_35_x86_64.whl
        sha=0e0a24fa2ce8b6b94d2e6a90604e8813aa8e29fcb918bb2aa01cfb6d133d8cee ;;
      aarch64)
        file=mlx_cpu-$version-py3-none-manylinux_2_35_aarch64.whl
        sha=1289e85e64af1fd16380bf331438bfe4afe875d27afc3e0bcf35f427c488fadd ;;
      *) die "no mlx-cpu wheel for $(uname -m): expected x86_64 or aarch64" ;;
    esac ;;
  metal)
    name=mlx-metal
    file=mlx_metal-$version-py3-none-macosx_14_0_arm64.whl
    sha=8019b2db622599267d66cc168b2f0dbf5af929790a6c3b3913e00eabc42a7947 ;;
  cuda)
    name=mlx-cuda-13
    file=mlx_cuda_13-$version-py3-none-manylinux_2_35_x86_64.whl
    sha=94cb48fba73e5ee39467e51c35c51c691123359ca17bafd1a24cf92ad6732bee ;;
  *) die "backend $backend: expected cpu, metal or cuda" ;;
esac

target=$root/third_party/mlx-$backend
if [ "$(cat "$target/.version" 2>/dev/null)" = "$sha" ]; then exit 0; fi
wheel=$(fetch_wheel "$name" "$version" "$sha" "$file")
mkdir -p "$root/third_party"
unpacked=$(mktemp -d "$root/third_party/.unpack-XXXXXX")
python3 -m zipfile -e "$wheel" "$unpacked"
[ -f "$unpacked/mlx/include/mlx/mlx.h" ] || { rm -rf "$unpacked"; die "$file holds no mlx/include/mlx/mlx.h"; }
echo "$sha" >"$unpacked/.version"
rm -rf "$target"
mv "$unpacked" "$target"
step "MLX $version ($backend) is at third_party/mlx-$backend"
