#!/usr/bin/env bash
# Usage: scripts/demo.sh
# From a clean clone to a proved result: installs what is missing, builds the tool, and attends the committed
# capture of a real language model (tests/data/capture) at several ring sizes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

scripts/install_deps.sh
mkdir -p build
echo "Building the tool (minutes the first time) ..." >&2
{ cmake --preset release && cmake --build --preset release --parallel "$(nproc)" --target kvring_cli; } \
  >build/demo-build.log 2>&1 || {
  tail -n 40 build/demo-build.log >&2
  echo "$0: the build failed; the whole log is build/demo-build.log" >&2
  exit 1
}
exec python3 scripts/demo.py build/release/bin/kvring tests/data/capture/smollm2-135m-layer7-kvh2.safetensors
