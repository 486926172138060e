#!/usr/bin/env bash
# Usage: scripts/test.sh
# From a clean clone to tested: installs what is missing, builds the release preset, runs all tests.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

scripts/install_deps.sh
cmake --preset release
cmake --build --preset release --parallel "$(nproc)"
ctest --preset release --parallel "$(nproc)"
