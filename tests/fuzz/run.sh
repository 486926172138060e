#!/bin/sh
# Builds the fuzzers with clang and runs them, side by side, from the committed corpora.
#   tests/fuzz/run.sh [seconds]    for each, at the same time, 30 by default
# Finds are kept in build/fuzz/<format>/ and fail the run. CXX names another clang.
set -eu
seconds=${1:-30}
here=$(cd "$(dirname "$0")" && pwd)
build=$here/../../build/fuzz
cmake -S "$here" -B "$build" -G Ninja -DCMAKE_CXX_COMPILER="${CXX:-clang++-14}" >/dev/null
cmake --build "$build" -j 2 >/dev/null

fuzz() {
  mkdir -p "$build/$1/found"
  # New inputs go to the first folder; the committed corpus is only read.
  "$build/fuzz_$1" "$build/$1/found" "$here/corpus/$1" -max_total_time="$seconds" -max_len=4096 \
    -timeout=5 -rss_limit_mb=1024 -artifact_prefix="$build/$1/" -print_final_stats=1 >"$build/$1/log" 2>&1 || {
    tail -n 60 "$build/$1/log"
    echo "fuzz_$1 found a fault; the input is in build/fuzz/$1/" >&2
    return 1
  }
  echo "fuzz_$1: $(grep number_of_executed_units "$build/$1/log" | tr -s ' ')"
}

fuzz npy &
npy=$!
fuzz safetensors || failed=1
wait "$npy" || failed=1
exit "${failed:-0}"
