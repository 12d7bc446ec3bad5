#!/usr/bin/env bash
# Runs clang-tidy over every source that the build folder compiles; any finding fails.
#
#   tools/run_clang_tidy.sh BUILD_FOLDER [PATH_PREFIX...]     for example build/dev src apps
set -euo pipefail

build="${1:?usage: tools/run_clang_tidy.sh BUILD_FOLDER [PATH_PREFIX...]}"
shift
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if [[ ! -f $build/compile_commands.json ]]; then
  echo "no $build/compile_commands.json; configure first: cmake --preset dev" >&2
  exit 2
fi

# A source that the build leaves out (a fuzzer, say) has no flags to parse it with.
mapfile -t files < <(tools/sources.sh cpp | while read -r file; do
  if ! grep -qF "\"file\": \"$PWD/$file\"" "$build/compile_commands.json"; then continue; fi
  if (($# == 0)); then echo "$file"; fi
  for prefix in "$@"; do if [[ $file == "$prefix"* ]]; then echo "$file"; fi; done
done)

# The count of findings in system headers goes to stderr, one line per file; it is of no interest.
if printf '%s\0' "${files[@]}" |
  xargs -0 -n 1 -P "$(nproc)" clang-tidy -p "$build" --quiet 2>/dev/null; then
  echo "clang-tidy: ${#files[@]} files are clean"
else
  echo "clang-tidy: see the findings above; one file again: clang-tidy -p $build FILE" >&2
  exit 1
fi
