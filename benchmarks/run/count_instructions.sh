#!/usr/bin/env bash
# Counts the instructions that the executor adds to each action, under valgrind: the same on a busy
# machine as on a quiet one.
#
#   benchmarks/run/count_instructions.sh [EXECUTOR_BENCHMARK]
set -euo pipefail

program="${1:-build/release/benchmarks/run/executor_benchmark}"
if [[ ! -x $program ]]; then
  echo "no program $program; build it: cmake --preset release && cmake --build --preset release" >&2
  exit 2
fi

few=5
many=15
scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT

# instructions WAY STEPS: of a whole run of the program
instructions() {
  valgrind --tool=cachegrind --cache-sim=no --cachegrind-out-file=/dev/null \
    "$program" "$1" "$2" >"$scratch/actions" 2>"$scratch/log"
  sed -n 's/^.*I *refs: *//p' "$scratch/log" | tr -d ,
}

# What a step takes once buffers have their size: the difference between long and short runs.
per_action() {
  local short long
  short="$(instructions "$1" "$few")"
  long="$(instructions "$1" "$many")"
  echo $(((long - short) / (many - few) / $(cat "$scratch/actions")))
}

bare="$(per_action bare)"
executor="$(per_action executor)"
echo "instructions per action: $bare in bare calls, $executor through the executor," \
  "$((executor - bare)) more"
