#!/usr/bin/env bash
# Usage: scripts/test_python.sh [PYTEST ARGUMENT...]
# Installs the Python package into a virtual environment of its own, build/python/venv, and runs its tests.
# What is there from the last run is used again; PYTHON names another interpreter than python3.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

scripts/install_deps.sh --python
# pip must not be slowed down, nor this script's output filled, by what it could tell.
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_QUIET=2

venv=build/python/venv
[[ -x $venv/bin/pip ]] || "${PYTHON:-python3}" -m venv --clear "$venv"
# The build requirements and the extra `test` of pyproject.toml. Without isolation the build folder can serve
# again: an isolated build would see its tools at another path each time.
requirements=$("$venv/bin/python" - <<'EOF'
import sys
if sys.version_info >= (3, 11):
    import tomllib
else:
    from pip._vendor import tomli as tomllib
project = tomllib.load(open("pyproject.toml", "rb"))
print("\n".join(project["build-system"]["requires"] + project["project"]["dependencies"]
                + project["project"]["optional-dependencies"]["test"]))
EOF
)
if ! cmp -s - <<<"$requirements" "$venv/requirements.txt"; then
  "$venv/bin/pip" install -r /dev/stdin <<<"$requirements"
  cat >"$venv/requirements.txt" <<<"$requirements"
fi
"$venv/bin/pip" install --no-build-isolation --no-deps -C build-dir=build/python/cmake .
# From another folder than the sources, so that the installed package is what is tested.
"$venv/bin/python" -m pytest -c pyproject.toml -q "${@:-python/tests}"
