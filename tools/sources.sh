#!/usr/bin/env bash
# Lists our C++ files with the named extensions, one per line: tools/sources.sh cpp h
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
for extension in "$@"; do
  find src apps tests benchmarks examples -name "*.$extension" -type f 2>/dev/null || true
done | sort
