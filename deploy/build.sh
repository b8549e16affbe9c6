#!/usr/bin/env bash
# Configures a preset and builds targets of it (all when none is named).
# usage: build.sh [--jobs N] PRESET [TARGET...]     jobs: cores, fewer when memory is short
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."

jobs=
if [ "${1:-}" = --jobs ]; then
  jobs=$2
  shift 2
fi
preset=${1:?build.sh: name a preset, such as release}
shift

if [ -z "$jobs" ]; then
  # A compile takes up to about 1.5 GiB.
  by_memory=$(awk '/^MemAvailable:/ {print int($2 / 1572864)}' /proc/meminfo)
  jobs=$(nproc)
  [ "$by_memory" -ge "$jobs" ] || jobs=$((by_memory > 0 ? by_memory : 1))
fi

# Two checkouts of the same sources share ccache's results, wherever they lie.
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1

mkdir -p build
log=build/configure-$preset.log
cmake --preset "$preset" >"$log" 2>&1 || {
  tail -n 30 "$log" >&2
  echo "build: cmake --preset $preset failed (all of it: $log). Are the packages there? deploy/install_packages.sh" >&2
  exit 1
}
ninja -C "build/$preset" -j "$jobs" "$@" || {
  echo "build: failed. If a compiler was killed, memory was short: try again with deploy/build.sh --jobs 1 $preset $*" >&2
  exit 1
}
