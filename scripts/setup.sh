#!/usr/bin/env bash
# Installs what a build needs: system packages (Debian 12 by apt, macOS by Homebrew) and MLX.
# Idempotent: takes a second when there is nothing to do. usage: scripts/setup.sh [cpu|metal|cuda]
set -euo pipefail
. "$(dirname "$0")/lib.sh"

backend=${1:-cpu}

debian_packages=(g++ cmake ninja-build ccache mold pkg-config python3-pip python3-venv
  libboost1.81-dev libssl-dev nlohmann-json3-dev libcli11-dev libspdlog-dev libfmt-dev
  libcurl4-openssl-dev libyaml-cpp-dev libedit-dev libgtest-dev libbenchmark-dev)
brew_packages=(cmake ninja ccache boost openssl@3 nlohmann-json cli11 spdlog fmt curl yaml-cpp libedit googletest
  google-benchmark)

install_debian() {
  local missing=() name
  for name in "${debian_packages[@]}"; do
    dpkg-query -W -f='${Status}' "$name" 2>/dev/null | grep -q 'ok installed' || missing+=("$name")
  done
  # A Python that is not Debian's may bring its own pip and venv.
  if python3 -m pip --version >/dev/null 2>&1 && python3 -c 'import venv, ensurepip' 2>/dev/null; then
    local kept=()
    for name in ${missing[@]+"${missing[@]}"}; do case $name in python3-*) ;; *) kept+=("$name") ;; esac; done
    missing=(${kept[@]+"${kept[@]}"})
  fi
  [ ${#missing[@]} -gt 0 ] || return 0
  step "installing ${#missing[@]} Debian packages (about a minute): ${missing[*]}"
  local sudo=
  [ "$(id -u)" = 0 ] || { command -v sudo >/dev/null || die "not root and no sudo: install ${missing[*]} first"; sudo=sudo; }
  $sudo apt-get update -qq >&2
  # --no-remove: libboost1.81-dev conflicts with the default 1.74; replacing it is not ours to decide.
  DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends --no-remove \
    "${missing[@]}" >&2 </dev/null ||
    die "apt-get failed. If it named libboost-dev 1.74: 'apt-get remove libboost1.74-dev', then run this again"
}

case $(uname -s) in
  Linux)
    command -v apt-get >/dev/null || die "expected Debian (apt-get); elsewhere install what docs/building.md lists"
    install_debian ;;
  Darwin)
    command -v brew >/dev/null || die "expected Homebrew on macOS"
    for name in "${brew_packages[@]}"; do brew list --versions "$name" >/dev/null || brew install "$name" >&2; done ;;
  *) die "$(uname -s): expected Linux or macOS" ;;
esac

command -v cargo >/dev/null || die "cargo not found: the tokenizers and chat templates are Rust crates; install Rust 1.82 or later"
"$root/scripts/fetch_mlx.sh" "$backend"
