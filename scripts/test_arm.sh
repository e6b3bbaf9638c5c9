#!/bin/bash
# The AArch64 kernel bodies (NEON with dot products, i8mm) against the generic ones, cross-compiled and run under
# qemu-user. Needs the Debian packages g++-aarch64-linux-gnu and qemu-user; about two minutes on two cores.
# usage: scripts/test_arm.sh [--native]   (--native: the same program with this machine's compiler and bodies)
set -euo pipefail
cd "$(dirname "$0")/.."
out=build/arm
compiler=aarch64-linux-gnu-g++
run=(qemu-aarch64 -cpu max -L /usr/aarch64-linux-gnu)
bodies=(generic neon i8mm)
if [ "${1:-}" = --native ]; then
  out=build/arm-native compiler=${CXX:-g++} run=() bodies=(generic avx2)
else
  for program in $compiler qemu-aarch64; do
    command -v $program >/dev/null || { echo "$program is missing: apt-get install g++-aarch64-linux-gnu qemu-user"; exit 2; }
  done
fi
mkdir -p $out
flags=(-std=c++20 -O2 -ffp-contract=off -Isrc -Wall -Wextra -Wno-psabi)
declare -A isa=([generic]="" [neon]="-march=armv8.2-a+dotprod" [i8mm]="-march=armv8.2-a+dotprod+i8mm"
                [avx2]="-mavx2 -mfma -mf16c")
{
  for set in "${bodies[@]}"; do
    for file in src/kernels/isa/*_$set.cpp; do
      echo "$compiler ${flags[*]} ${isa[$set]} -c $file -o $out/$(basename $file .cpp).o"
    done
  done
  echo "$compiler ${flags[*]} -c tests/isa/bodies_agree.cpp -o $out/bodies_agree.o"
} | xargs -P "${JOBS:-2}" -I{} bash -c "{}"
$compiler $out/*.o -o $out/bodies_agree
"${run[@]}" $out/bodies_agree
