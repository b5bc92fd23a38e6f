#!/usr/bin/env bash
# Build the two servers that the configurations here are tested with: Jaeger and a small OpenTelemetry Collector.
#
#   build.sh           build what is missing, then print jaeger=PATH and collector=PATH
#   build.sh --check   print the paths if both are built; otherwise say what is missing and exit 1
#
# Needs Go and a Go module proxy, nothing else: no container registry, no release page, no C compiler. What is built is
# pinned by the go.mod and go.sum beside each program. The first build takes about ten minutes on two cores and adds
# some 4 GB to Go's caches; later calls only look.
set -euo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
bin="${XDG_CACHE_HOME:-$HOME/.cache}/tracefirst/bin"
tmp=""
trap 'rm -f "$tmp"' EXIT

sha256() {
  if command -v sha256sum >/dev/null; then sha256sum; else shasum -a 256; fi
}

# The name carries a digest of everything that decides what is built, so an edited go.mod is a new file and two
# checkouts with different pins live side by side.
path_of() { # NAME
  local digest
  digest="$(cat "$here/$1/go.mod" "$here/$1/go.sum" "$here/$1"/*.go | sha256 | cut -c1-16)"
  printf '%s/%s-%s\n' "$bin" "$1" "$digest"
}

build() { # NAME PACKAGE
  local out
  out="$(path_of "$1")"
  [[ -x $out ]] && return
  if ! command -v go >/dev/null; then
    echo "build.sh: cannot build $1: no 'go' on PATH." >&2
    echo "Install Go 1.26 or newer (https://go.dev/dl), or use docker-compose.yaml, which needs no build." >&2
    exit 1
  fi
  echo "build.sh: building $1 (minutes the first time) ..." >&2
  # Built beside its final place and renamed: a reader sees the whole program or none, also after Ctrl-C.
  tmp="$(mktemp "$bin/.$1.XXXXXX")"
  # readonly: a build may never change the pins. GOWORK off: a workspace around the checkout may not either. No VCS
  # stamp: it would tie the program to the state of this checkout, and fail where git is missing.
  if ! (cd "$here/$1" && CGO_ENABLED=0 GOWORK=off go build -mod=readonly -buildvcs=false -trimpath -ldflags "-s -w" -o "$tmp" "$2"); then
    echo "build.sh: building $1 failed; the lines above are Go's. Is a module proxy reachable (go env GOPROXY)?" >&2
    exit 1
  fi
  chmod 755 "$tmp"
  mv -f "$tmp" "$out"
}

check() {
  local missing=0 name
  for name in jaeger collector; do
    if [[ ! -x "$(path_of "$name")" ]]; then
      echo "build.sh: $name is not built; run ${BASH_SOURCE[0]}" >&2
      missing=1
    fi
  done
  return "$missing"
}

print_paths() {
  echo "jaeger=$(path_of jaeger)"
  echo "collector=$(path_of collector)"
}

case "${1-}" in
  --check)
    check
    print_paths
    ;;
  "")
    mkdir -p "$bin"
    # One build at a time: the second caller waits and then finds the work done. Where flock is missing both build,
    # which costs time but is as safe, because of the rename.
    if command -v flock >/dev/null; then
      exec 9>"$bin/.lock"
      flock 9
    fi
    build collector .
    build jaeger github.com/jaegertracing/jaeger/cmd/jaeger
    print_paths
    ;;
  *)
    echo "usage: build.sh [--check]" >&2
    exit 2
    ;;
esac
