#!/usr/bin/env bash
# Builds the library that runs schedules, and its tests, against libtorch 2.x, and runs them.
#
#   tools/check_libtorch2.sh [PROGRAM...]
#       on this system, whose libtorch is 2.x: a newer Debian, or a container of one
#   tools/check_libtorch2.sh --chroot FOLDER [--suite NAME] [PROGRAM...]
#       as root, in the Debian in FOLDER; if there is none, debootstrap makes it (suite: forky)
#
# PROGRAM is a test program of tests/run, for example autograd_tests; all of them if none is named.
# Everything that is built lands in build/libtorch2. JOBS=1 limits the compilers that run at once.
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
build=build/libtorch2
chroot=""
suite=forky

fail() {
  echo "check_libtorch2.sh: $*" >&2
  exit 2
}

while (($# > 0)); do
  case "$1" in
    --chroot) chroot="${2:?--chroot needs a folder}" && shift 2 ;;
    --suite) suite="${2:?--suite needs the name of a Debian suite}" && shift 2 ;;
    -*) fail "unknown option \"$1\"; expected --chroot or --suite" ;;
    *) break ;;
  esac
done
for program in "$@"; do
  [[ $program == *_tests ]] || fail "unknown program \"$program\"; expected a name like autograd_tests"
done

make_chroot() {
  command -v debootstrap >/dev/null || fail "making $chroot needs the Debian package debootstrap"
  # A debootstrap older than the suite has no script for it; that of sid sets up every recent one.
  local script=$suite
  if [[ ! -e /usr/share/debootstrap/scripts/$suite ]]; then script=sid; fi
  echo "Making a Debian $suite in $chroot"
  debootstrap --variant=minbase "$suite" "$chroot" "" "$script" >"$chroot.log" 2>&1 ||
    fail "debootstrap could not make $chroot; $chroot.log says why"
}

# The sources appear as /penstock in a mount namespace of its own, so nothing stays mounted.
check_in_chroot() {
  ((EUID == 0)) || fail "--chroot needs root"
  if [[ ! -d $chroot/usr ]]; then make_chroot; fi
  mkdir -p "$chroot/penstock"
  exec unshare --mount bash -ec '
    root="$1" chroot="$2"
    shift 2
    mount --bind "$root" "$chroot/penstock"
    mount -t proc proc "$chroot/proc"
    mount -t tmpfs tmpfs "$chroot/dev/shm"
    exec chroot "$chroot" /penstock/tools/check_libtorch2.sh "$@"' bash "$root" "$chroot" "$@"
}

check_here() {
  cd "$root"
  tools/install_packages.sh build run run-test
  mkdir -p "$build"
  cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG=-O1 -DPENSTOCK_QUICK_FLAGS=-O0 \
    -DPENSTOCK_BUILD_APPS=OFF -DPENSTOCK_BUILD_BENCHMARKS=OFF -DPENSTOCK_UNITY_BUILD=ON \
    -DPENSTOCK_WARNINGS_AS_ERRORS=OFF >"$build/configure.log" 2>&1 ||
    { cat "$build/configure.log" >&2 && exit 1; }
  local torch
  torch="$(sed -n 's/^Torch_DIR:PATH=//p' "$build/CMakeCache.txt")"
  torch="$(sed -n 's/.*PACKAGE_VERSION "\(.*\)".*/\1/p' "$torch/TorchConfigVersion.cmake" | head -n 1)"
  [[ $torch == 2.* ]] || fail "this system has libtorch $torch; use --chroot, or a newer Debian"
  echo "libtorch $torch, $(c++ --version | head -n 1)"

  local targets=(penstock_run tests/run/all) programs=("$@")
  if ((${#programs[@]} > 0)); then targets=(penstock_run "${programs[@]}"); fi
  cmake --build "$build" --parallel "${JOBS:-$(nproc)}" --target "${targets[@]}" -- --quiet
  if ((${#programs[@]} == 0)); then
    mapfile -t programs < <(cd "$build/tests/run" && find . -maxdepth 1 -name '*_tests' -printf '%f\n' | sort)
  fi
  local failed=()
  for program in "${programs[@]}"; do
    echo "$program"
    "$build/tests/run/$program" --gtest_brief=1 || failed+=("$program")
  done
  if ((${#failed[@]} > 0)); then
    echo "libtorch $torch: failed: ${failed[*]}" >&2
    exit 1
  fi
  echo "libtorch $torch: ${#programs[@]} test programs passed"
}

if [[ -n $chroot ]]; then check_in_chroot "$@"; else check_here "$@"; fi
