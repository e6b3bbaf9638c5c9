#!/bin/bash
# A newcomer's path from the package, in a clean Debian: pack the build, install, ask, serve, curl; then the tarball
# moved to another place, purge, and the Dockerfile's last stage by hand. Needs root, debootstrap and a mirror.
#   packaging/test_clean_root.sh BUILD [ROOT]     ROOT: an earlier run's folder; it is made where it is not there
set -euo pipefail
build=$(realpath "${1:?usage: test_clean_root.sh BUILD [ROOT]}")
root=${2:-$(mktemp -d)/root}
model=${MLXCEL_MODELS_DIR:-$HOME/.cache/mlxcel/models}/HuggingFaceTB/SmolLM2-135M-Instruct
packages=$(mktemp -d)
say() { printf '%s  %s\n' "$(date +%T)" "$*"; }
fail() { say "FAILED: $*"; exit 1; }

for kind in DEB TGZ; do (cd "$build" && cpack --config CPackConfig.cmake -G $kind -B "$packages" >/dev/null); done
deb=$(echo "$packages"/*.deb) tarball=$(echo "$packages"/*.tar.gz)
say "packed: $(du -h "$deb" | cut -f1) package, $(du -h "$tarball" | cut -f1) tarball"
dpkg-deb --info "$deb" | grep -E '^ (Depends|Recommends|Installed-Size)'

[ -x "$root/usr/bin/apt-get" ] || debootstrap --variant=minbase bookworm "$root" >/dev/null
mount --bind /proc "$root/proc"
trap 'kill "${server:-}" 2>/dev/null || true; umount -l "$root/proc"; rm -rf "$packages"' EXIT
cp /etc/resolv.conf "$root/etc/resolv.conf"
clean=(chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8)
inside() { "${clean[@]}" "$@"; }
inside dpkg --purge mlxcel >/dev/null 2>&1 || true
say "clean root: $root"

begun=$SECONDS
cp "$deb" "$root/tmp/mlxcel.deb"
inside sh -c 'apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends /tmp/mlxcel.deb' >"$packages/apt" 2>&1 ||
  { cat "$packages/apt"; fail "apt-get install"; }
say "installed after $((SECONDS - begun)) s"
inside mlxcel --version
inside mlxcel-server --version
# The default model as scripts/fetch_model.sh leaves it.
mkdir -p "$root/root/.cache/mlxcel/models/HuggingFaceTB"
cp -r "$model" "$root/root/.cache/mlxcel/models/HuggingFaceTB/"
answer=$(inside mlxcel run -p "What is the capital of France?" -n 24 2>"$packages/run")
say "run: $answer ($(tail -1 "$packages/run"))"
[[ $answer == *Paris* ]] || fail "run: no Paris in: $answer"
(exec "${clean[@]}" mlxcel serve -m SmolLM2-135M-Instruct --port 18080) >"$packages/serve" 2>&1 &
server=$!
for _ in $(seq 100); do curl -sf http://127.0.0.1:18080/health >/dev/null && break; sleep 0.1; done
answer=$(curl -sf http://127.0.0.1:18080/v1/chat/completions -H 'Content-Type: application/json' \
  -d '{"messages": [{"role": "user", "content": "What is the capital of France?"}], "max_tokens": 24, "temperature": 0}') || { cat "$packages/serve"; fail serve; }
[[ $answer == *Paris* ]] || fail "serve: no Paris in: $answer"
say "served and asked after $((SECONDS - begun)) s from the start of the installation"
kill -TERM "$server"
wait "$server" || fail "the server that was told to stop ended with $?"
server=

# What belongs to a package besides: pages, completions, unit, no lint that matters.
for file in /usr/share/man/man1/mlxcel.1 /usr/share/man/man1/mlxcel-run.1 /usr/share/bash-completion/completions/mlxcel \
  /usr/share/zsh/vendor-completions/_mlxcel /usr/share/fish/vendor_completions.d/mlxcel.fish /etc/default/mlxcel \
  /usr/share/doc/mlxcel/LICENSE; do
  [ -e "$root$file" ] || [ -e "$root$file.gz" ] || fail "$file is not installed"
done
if command -v systemd-analyze >/dev/null; then
  # A root without systemd has no sysinit.target, and no man to look the page up with.
  found=$(systemd-analyze verify --root="$root" mlxcel.service 2>&1 | grep -i mlxcel | grep -v "sysinit.target not found\|Command 'man" || true)
  [ -z "$found" ] || fail "$found"
  say "unit: systemd-analyze finds nothing"
fi

# The tarball runs wherever it lies, without the package.
inside dpkg --purge mlxcel >/dev/null
if [ -e "$root/usr/bin/mlxcel" ] || [ -e "$root/etc/default/mlxcel" ]; then fail "purge leaves files"; fi
mkdir -p "$root/opt/some where"
tar -xzf "$tarball" -C "$root/opt/some where" --strip-components=1
program=$(cd "$root" && find "opt/some where" -name mlxcel -path '*bin/mlxcel' -type f)
answer=$(inside "/$program" run -p "What is the capital of France?" -n 24 --quiet)
[[ $answer == *Paris* ]] || fail "tarball: $answer"
say "tarball in /$program: $answer"

# The Dockerfile's last stage: its RUN lines, as far as they are not about the package's own way in.
inside sh -c 'DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends ca-certificates /tmp/mlxcel.deb' >/dev/null 2>&1
inside sh -c 'id mlxcel >/dev/null 2>&1 || useradd --system --home-dir /var/lib/mlxcel --create-home mlxcel'
mkdir -p "$root/var/lib/mlxcel/models/HuggingFaceTB"
cp -r "$model" "$root/var/lib/mlxcel/models/HuggingFaceTB/" && inside chown -R mlxcel /var/lib/mlxcel
answer=$(inside setpriv --reuid=mlxcel --regid=mlxcel --clear-groups env HOME=/var/lib/mlxcel MLXCEL_CACHE_DIR=/var/lib/mlxcel \
  mlxcel run -p "What is the capital of France?" -n 24 --quiet)
[[ $answer == *Paris* ]] || fail "as the image's user: $answer"
inside dpkg --purge mlxcel >/dev/null
rm -rf "$root/opt/some where" "$root/var/lib/mlxcel"
say "the image's user has its answer; all of it took $SECONDS s"
