#!/usr/bin/env bash
# Usage: scripts/test_aarch64.sh
# Cross-builds the unit tests for AArch64 and runs them under qemu's user emulation. For Debian: it adds
# the foreign architecture arm64 (`dpkg --add-architecture`) and installs that architecture's libraries.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

scripts/install_deps.sh
packages=(
  g++-aarch64-linux-gnu qemu-user-static
  {libc6,libfmt,libhwy,libxxhash,libgtest,libgmock,librapidcheck}-dev:arm64
)
if ! dpkg-query -W "${packages[@]}" >/dev/null 2>&1; then
  as_root=()
  (($(id -u) == 0)) || as_root=(sudo)
  "${as_root[@]}" dpkg --add-architecture arm64
  "${as_root[@]}" apt-get -q update </dev/null
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get -q -y install --no-install-recommends "${packages[@]}" </dev/null
fi

cmake --preset aarch64
cmake --build --preset aarch64 --parallel "$(nproc)"
ctest --preset aarch64 --parallel "$(nproc)"
