#!/usr/bin/env bash
# Configures and builds a preset quietly: output appears only when a step fails.
#
#   tools/build.sh PRESET [TARGET...]
set -euo pipefail

preset="${1:?usage: tools/build.sh PRESET [TARGET...]}"
shift
cd "$(dirname "${BASH_SOURCE[0]}")/.."
mkdir -p "build/$preset"
log="build/$preset/configure.log"
if ! cmake --preset "$preset" >"$log" 2>&1; then
  cat "$log" >&2
  exit 1
fi
targets=()
if (($# > 0)); then targets=(--target "$@"); fi
# One compiler per processor: each takes up to two gigabytes.
cmake --build --preset "$preset" --parallel "$(nproc)" "${targets[@]}" -- --quiet
