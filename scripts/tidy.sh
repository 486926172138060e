#!/usr/bin/env bash
# Usage: scripts/tidy.sh [--since COMMIT] [--seconds N]
# Runs clang-tidy over the layers that changed since COMMIT (default: since this branch left origin/main;
# where that tells nothing, as on main itself, over all). The layer is the folder: a change in one file
# may break the others. A changed public header means all layers.
#
# With --seconds it stops in time, having checked the files changed last first, and says what it left out.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

since="" seconds=0
while (($#)); do
  case $1 in
    --since) since=$2 ;;
    --seconds) seconds=$2 ;;
    *)
      sed -n '2s/^# //p' "$0" >&2
      exit 2
      ;;
  esac
  shift 2
done

if [[ -z $since ]]; then
  since=$(git merge-base HEAD origin/main 2>/dev/null || true)
  # On main, or in a clone of it, HEAD is the merge base.
  [[ $since == "$(git rev-parse HEAD)" ]] && since=""
fi

folders=.
if [[ -n $since ]]; then
  changed=$(git diff --name-only "$since" -- '*.h' '*.cc' .clang-tidy)
  if ! grep -qE '^(include/|\.clang-tidy)' <<<"$changed"; then
    folders=$(sed -n 's|/[^/]*$||p' <<<"$changed" | sort -u)
  fi
fi
if [[ -z $folders ]]; then
  echo "clang-tidy: nothing changed since $since"
  exit 0
fi

cmake --preset tidy >/dev/null
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
touch "$work/done" "$work/failed"

# Files of those folders that the build compiles, those changed last first.
compiled=$(python3 -c 'import json; print("\n".join(e["file"] for e in json.load(open("build/tidy/compile_commands.json"))))')
# shellcheck disable=SC2086
while read -r file; do
  if grep -qxF "$PWD/$file" <<<"$compiled"; then
    echo "$(git log -1 --format=%ct -- "$file") $file"
  fi
done < <(git ls-files $folders | grep '\.cc$') | sort -rn | cut -d' ' -f2 >"$work/files"

export work
check_one() {
  if output=$(clang-tidy-14 -p build/tidy --quiet "$1" 2>&1); then
    echo "$1" >>"$work/done"
  else
    grep -vE '^[0-9]+ warnings? generated' <<<"$output"
    echo "clang-tidy: $1 failed"
    echo "$1" >>"$work/failed"
  fi
}
export -f check_one
timeout "$seconds" xargs -a "$work/files" -P "$(nproc)" -I{} bash -c 'check_one {}' || (($? == 124))

total=$(wc -l <"$work/files") clean=$(wc -l <"$work/done") failed=$(wc -l <"$work/failed")
echo "clang-tidy: $total files, $clean clean, $failed with faults, $((total - clean - failed)) left out for time"
((failed == 0 && (clean > 0 || total == 0)))
