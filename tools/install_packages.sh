#!/usr/bin/env bash
# Installs the Debian packages of the named groups that are not there yet; silent if all are.
#
#   tools/install_packages.sh build test
set -euo pipefail

packages_of() {
  case "$1" in
    build) echo cmake ninja-build g++ libfmt-dev libcli11-dev nlohmann-json3-dev ;;
    run) echo libtorch-dev libgloo-dev libopenblas0-pthread libssl-dev ;;
    bench) echo libbenchmark-dev ;;
    run-test) echo libgtest-dev libgmock-dev librapidcheck-dev libssl-dev python3 iproute2 bsdutils "$(packages_of package)" ;;
    test) echo "$(packages_of run-test)" chromium fonts-dejavu-core ;;
    package) echo dpkg-dev file ;;
    lint) echo clang-format clang-tidy python3 ;;
    clang) echo clang ;;
    sanitize) echo clang libclang-rt-14-dev ;;
    *)
      echo "install_packages.sh: unknown group \"$1\"; expected build, run, bench, run-test, test, package, lint, clang or sanitize" >&2
      exit 2
      ;;
  esac
}

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  echo "install_packages.sh: packages are installed with apt-get, which this system lacks; install" \
    "by other means what this script lists, then use the CMake presets directly" >&2
  exit 1
fi

missing=()
for group in "$@"; do
  # Apart from the loop, so that an unknown group ends the script.
  packages="$(packages_of "$group")"
  for package in $packages; do
    status="$(dpkg-query -W -f='${db:Status-Status} ' "$package" 2>/dev/null || true)"
    if [[ $status != *installed* || $status == *not-installed* ]]; then missing+=("$package"); fi
  done
done
if ((${#missing[@]} == 0)); then exit 0; fi

as_root=()
if ((EUID != 0)); then
  if ! command -v sudo >/dev/null; then
    echo "install_packages.sh: installing ${missing[*]} needs root or sudo" >&2
    exit 1
  fi
  as_root=(sudo)
fi
echo "Installing Debian packages: ${missing[*]}"
log="$(mktemp)"
trap 'rm -f "$log"' EXIT
install() {
  "${as_root[@]}" apt-get -qq update &&
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
      apt-get -qq install --yes --no-install-recommends "${missing[@]}"
}
if ! install >"$log" 2>&1; then
  cat "$log" >&2
  echo "install_packages.sh: apt-get could not install ${missing[*]}" >&2
  exit 1
fi
