#!/usr/bin/env bash
# Usage: run.sh CMAKE BUILD_DIR VERSION CXX PKG_CONFIG
# Installs BUILD_DIR into an empty prefix, moves the prefix away, and builds and runs the program of a
# user against it: once with find_package, once with pkg-config.
set -euo pipefail

cmake=$1 build=$2 version=$3 cxx=$4 pkg_config=$5
here=$(cd "$(dirname "$0")" && pwd)
source_dir=$(cd "$here/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
  echo "install test: $*" >&2
  exit 1
}

"$cmake" --install "$build" --prefix "$work/first" >"$work/install.log" || fail "$(cat "$work/install.log")"
prefix=$work/moved
mv "$work/first" "$prefix"
library_dir=$(dirname "$(find "$prefix" -name 'libkvring.*' -print -quit)")

# Nothing but public headers, and no trace of where it was built.
installed=$(cd "$prefix/include" && find . -type f | sort)
public=$(cd "$source_dir/include" && find . -type f -name '*.h' | sort)
[[ -f $library_dir/cmake/kvring/kvringMpiTargets.cmake ]] || public=$(grep -v '/mpi\.h$' <<<"$public")
[[ $installed == "$public" ]] || fail "headers installed: $installed; public: $public"
if grep -rIlF -e "$source_dir" -e "$build" -e "$work/first" "$library_dir"/{cmake,pkgconfig}; then
  fail "the files above name the build tree"
fi

export LD_LIBRARY_PATH=$library_dir${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
expect_version() {
  local printed
  printed=$("$1") || fail "$1 failed"
  [[ $printed == "$version" ]] || fail "$1 printed '$printed', not the version $version"
}

consume() {
  "$cmake" -S "$here/project" -B "$1" -G Ninja -DCMAKE_CXX_COMPILER="$cxx" -DCMAKE_PREFIX_PATH="$prefix" \
    "${@:2}" >"$work/log" 2>&1 && "$cmake" --build "$1" >>"$work/log" 2>&1 || fail "$(cat "$work/log")"
  expect_version "$1/consumer"
}
consume "$work/plain"
if [[ -f $library_dir/cmake/kvring/kvringMpiTargets.cmake ]]; then
  mpicxx=$(sed -n 's/^MPI_CXX_COMPILER:[^=]*=//p' "$build/CMakeCache.txt")
  consume "$work/mpi" -DCONSUMER_MPI=ON -DMPI_CXX_COMPILER="$mpicxx"
  "$work/mpi/mpi_consumer" || fail "mpi_consumer failed"
fi

export PKG_CONFIG_PATH=$library_dir/pkgconfig
[[ $("$pkg_config" --modversion kvring) == "$version" ]] || fail "kvring.pc does not say version $version"
read -ra flags <<<"$("$pkg_config" --cflags --libs kvring)"
"$cxx" -std=c++20 "$here/project/consumer.cc" "${flags[@]}" -o "$work/by_pkg_config"
expect_version "$work/by_pkg_config"
