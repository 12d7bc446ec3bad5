#!/usr/bin/env bash
# Fails, with the lines, if clang-format would change a file. With --fix it changes them.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
mapfile -t files < <(tools/sources.sh cpp h)
if [[ ${1:-} == --fix ]]; then
  clang-format -i "${files[@]}"
elif ! clang-format --dry-run --Werror "${files[@]}"; then
  echo "format: run tools/check_format.sh --fix" >&2
  exit 1
else
  echo "format: ${#files[@]} files are clean"
fi
