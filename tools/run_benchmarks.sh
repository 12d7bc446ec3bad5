#!/usr/bin/env bash
# Runs every benchmark program of a build folder: tools/run_benchmarks.sh build/release
set -euo pipefail

build="${1:?usage: tools/run_benchmarks.sh BUILD_FOLDER}"
mapfile -t programs < <(find "$build/benchmarks" -type f -executable -name '*_benchmark' | sort)
if ((${#programs[@]} == 0)); then
  echo "no benchmark programs in $build/benchmarks" >&2
  exit 1
fi
for program in "${programs[@]}"; do
  echo "$(basename "$program")"
  "$program"
done
