#!/usr/bin/env bash
# Usage: scripts/install_deps.sh [--python | --checks]
# Installs what building and testing kvring needs on Debian 12, Ubuntu 24.04 or later; with --python also
# what the Python package needs, with --checks all that .ci/run needs (that, clang tools, the second MPI,
# ccache). Does nothing, quickly, when everything is there.
set -euo pipefail

packages=(
  g++ cmake ninja-build pkgconf python3
  libfmt-dev libhwy-dev libxxhash-dev nlohmann-json3-dev libcli11-dev
  libgtest-dev libgmock-dev librapidcheck-dev libbenchmark-dev
  openmpi-bin libopenmpi-dev
)
python=(python3-dev python3-venv)
case ${1:-} in
  "") ;;
  --python) packages+=("${python[@]}") ;;
  --checks)
    packages+=("${python[@]}" git ccache clang-14 libclang-rt-14-dev clang-format-14 clang-tidy-14 mpich libmpich-dev)
    ;;
  *)
    echo "usage: $0 [--python | --checks]" >&2
    exit 2
    ;;
esac

if ! command -v apt-get >/dev/null; then
  echo "$0: no apt-get here; install what Debian calls: ${packages[*]}" >&2
  exit 1
fi

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query -W -f='${db:Status-Status}\n' "$package" 2>/dev/null || true)
  # A package of several architectures has a line for each.
  grep -qx installed <<<"$status" || missing+=("$package")
done
if ((${#missing[@]} == 0)); then
  exit 0
fi

as_root=(env DEBIAN_FRONTEND=noninteractive)
if (($(id -u) != 0)); then
  if ! command -v sudo >/dev/null; then
    echo "$0: not root and no sudo; as root, run: apt-get install ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo "${as_root[@]}")
  echo "Using sudo to install packages." >&2
fi
echo "Installing: ${missing[*]}" >&2

apt=(apt-get -q -y -o DPkg::Lock::Timeout=300)
# One unreachable third-party source must not stop us; a missing package will, below.
"${as_root[@]}" "${apt[@]}" update </dev/null >&2 || echo "$0: apt-get update had errors; going on" >&2
"${as_root[@]}" "${apt[@]}" install --no-install-recommends "${missing[@]}" </dev/null >&2 || {
  echo "$0: could not install: ${missing[*]} (on Ubuntu they need the 'universe' component)" >&2
  exit 1
}
