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
check() { xargs -r -d '\n' -n 1 -P "$(nproc)" clang-tidy -p "$build" --quiet \
    --extra-arg=-Wno-unknown-warning-option "$@" 2>/dev/null; }
uses_libtorch='#include [<"](penstock/run|torch|ATen|c10)/'
failed=0
{ grep -LE "$uses_libtorch" "${files[@]}" || true; } | check || failed=1
# clang 14 takes libtorch's headers as C++20 only if this one comes first.
{ grep -lE "$uses_libtorch" "${files[@]}" || true; } |
  check --extra-arg-before=-include --extra-arg-before=ATen/core/ivalue.h || failed=1
if ((failed == 0)); then
  echo "clang-tidy: ${#files[@]} files are clean"
else
  echo "clang-tidy: see the findings above; a folder again: tools/run_clang_tidy.sh $build FOLDER" >&2
  exit 1
fi
