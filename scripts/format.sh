#!/usr/bin/env bash
# Usage: scripts/format.sh [--check]
# Formats every tracked C++ file; with --check only says what would change, and fails if anything would.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

mode=(-i)
[[ ${1:-} == --check ]] && mode=(--dry-run --Werror)
git ls-files -z '*.h' '*.cc' | xargs -0 clang-format-14 --style=file "${mode[@]}"
