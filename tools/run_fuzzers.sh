#!/usr/bin/env bash
# Fuzzes for about SECONDS in all, split evenly over the targets; fails on the first finding.
#
#   cmake --preset fuzz && cmake --build --preset fuzz
#   tools/run_fuzzers.sh 60 [BUILD_FOLDER]
#
# The seeds in tests/fuzz/corpus are only read; what the fuzzer adds goes to a temporary folder.
# The input of a finding is kept, and its path printed.
set -euo pipefail

if [[ $# -lt 1 || $# -gt 2 || ! $1 =~ ^[0-9]+$ ]]; then
  echo "usage: tools/run_fuzzers.sh SECONDS [BUILD_FOLDER]" >&2
  exit 2
fi
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
build="${2:-$root/build/fuzz}"
shopt -s nullglob
targets=("$root"/tests/fuzz/*_fuzzer.cpp)
# libFuzzer takes 0 for "without end".
seconds_each=$(($1 / ${#targets[@]}))
if ((seconds_each < 1)); then seconds_each=1; fi

scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT
for source in "${targets[@]}"; do
  name="$(basename "$source" .cpp)"
  program="$build/tests/fuzz/$name"
  if [[ ! -x $program ]]; then
    echo "no program $program; build it with: cmake --preset fuzz && cmake --build --preset fuzz" >&2
    exit 2
  fi
  echo "$name: $seconds_each s"
  mkdir "$scratch/$name"
  findings="$(mktemp -d -t "penstock-$name-XXXXXX")"
  if ! "$program" -max_total_time="$seconds_each" -timeout=10 -rss_limit_mb=2048 -verbosity=0 \
      -print_final_stats=1 -dict="$root/tests/fuzz/schedule.dict" \
      -artifact_prefix="$findings/" "$scratch/$name" "$root/tests/fuzz/corpus/$name" \
      >"$scratch/$name.log" 2>&1; then
    cat "$scratch/$name.log" >&2
    echo "$name: finding kept in $findings" >&2
    exit 1
  fi
  rmdir "$findings"
  grep 'number_of_executed_units' "$scratch/$name.log"
done
