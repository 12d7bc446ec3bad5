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

# Whether any of `sources` is below one of the folders named.
is_wanted() {
  local source prefix
  for source in "${sources[@]}"; do
    for prefix in "$@"; do if [[ $source == "$prefix"* ]]; then return 0; fi; done
  done
  return 1
}

# What the compiler is given: sources, and files of a unity build that include some.
num_sources=0
units=()
while read -r unit; do
  if [[ ! -f $unit ]]; then continue; fi  # to be written by the build
  mapfile -t sources < <(sed -n "s|^#include \"$PWD/\(.*\.cpp\)\"|\1|p" "$unit")
  if ((${#sources[@]} == 0)); then sources=("${unit#"$PWD/"}"); fi
  if (($# > 0)) && ! is_wanted "$@"; then continue; fi
  if [[ ${sources[0]} == "$build"/* ]]; then continue; fi  # written by the build
  num_sources=$((num_sources + ${#sources[@]}))
  units+=("$unit")
done < <(sed -n 's|^ *"file": "\(.*\)",\{0,1\}$|\1|p' "$build/compile_commands.json" | sort -u)

if ((${#units[@]} == 0)); then
  echo "clang-tidy: $build compiles nothing below ${*:-.}; expected paths like src/penstock/run/threads" >&2
  exit 2
fi

# The count of findings in system headers goes to stderr, one line per file; it is of no interest.
if printf '%s\n' "${units[@]}" | xargs -r -d '\n' -n 1 -P "$(nproc)" clang-tidy -p "$build" --quiet 2>/dev/null; then
  echo "clang-tidy: $num_sources files are clean"
else
  echo "clang-tidy: see the findings above; a folder again: tools/run_clang_tidy.sh $build FOLDER" >&2
  exit 1
fi
