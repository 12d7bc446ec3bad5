#!/usr/bin/env bash
# Runs clang-tidy over every source that the build folder compiles; any finding fails. A batch of
# sources that are compiled together is looked at together: the headers of libtorch take most of
# the time.
#
#   tools/run_clang_tidy.sh BUILD_FOLDER [PATH_PREFIX...]     for example build/tidy src apps
set -euo pipefail

build="${1:?usage: tools/run_clang_tidy.sh BUILD_FOLDER [PATH_PREFIX...]}"
shift
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if [[ ! -f $build/compile_commands.json ]]; then
  echo "no $build/compile_commands.json; configure first: cmake --preset tidy" >&2
  exit 2
fi

# What the compiler is given: sources, and files of a unity build that include some.
uses_libtorch='#include [<"](penstock/run|torch|ATen|c10)/'
num_sources=0
plain=()
with_libtorch=()
while read -r unit; do
  if [[ ! -f $unit ]]; then continue; fi  # to be written by the build
  mapfile -t sources < <(sed -n "s|^#include \"$PWD/\(.*\.cpp\)\"|\1|p" "$unit")
  if ((${#sources[@]} == 0)); then sources=("${unit#"$PWD/"}"); fi
  if (($# > 0)); then
    wanted=0
    for prefix in "$@"; do if [[ ${sources[0]} == "$prefix"* ]]; then wanted=1; fi; done
    if ((wanted == 0)); then continue; fi
  fi
  if [[ ${sources[0]} == "$build"/* ]]; then continue; fi  # written by the build
  num_sources=$((num_sources + ${#sources[@]}))
  if grep -qE "$uses_libtorch" "${sources[@]}"; then with_libtorch+=("$unit"); else plain+=("$unit"); fi
done < <(sed -n 's|^ *"file": "\(.*\)",\{0,1\}$|\1|p' "$build/compile_commands.json" | sort -u)

lines() { if (($# > 0)); then printf '%s\n' "$@"; fi; }
# The count of findings in system headers goes to stderr, one line per file; it is of no interest.
check() { xargs -r -d '\n' -n 1 -P "$(nproc)" clang-tidy -p "$build" --quiet \
    --extra-arg=-Wno-unknown-warning-option "$@" 2>/dev/null; }
failed=0
# clang 14 takes libtorch's headers as C++20 only if this one comes first.
lines "${with_libtorch[@]}" |
  check --extra-arg-before=-include --extra-arg-before=ATen/core/ivalue.h || failed=1
lines "${plain[@]}" | check || failed=1
if ((failed == 0)); then
  echo "clang-tidy: $num_sources files are clean"
else
  echo "clang-tidy: see the findings above; a folder again: tools/run_clang_tidy.sh $build FOLDER" >&2
  exit 1
fi
