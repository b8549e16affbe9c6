#!/usr/bin/env bash
# Installs what the tests need, fetches the default model, builds, and runs the tests.
#
# usage: tests/run.sh [--preset NAME] [--all] [--label REGEX] [--match REGEX] [--exclude REGEX] [--jobs N]
#   --preset    release (default), debug, asan-ubsan, tsan
#   --all       also the tests labelled slow and bench
#   --label, --match, --exclude   only tests with that label, with that name, without that name; then only those
#               are built
#   --jobs      compile jobs (default: cores, fewer when memory is short)
# It can be run again at any time, and needs no network once everything is there.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."

usage() {
  sed -n '2,11s/^# \{0,1\}//p' "$0"
  exit "$1"
}

preset=release
jobs=
select=()
leave_out=(-LE 'slow|bench')
while [ $# -gt 0 ]; do
  case "$1" in
    --all) leave_out=() && shift && continue ;;
    -h | --help) usage 0 ;;
    --preset | --label | --match | --exclude | --jobs) [ $# -ge 2 ] || usage 2 >&2 ;;
    *) echo "run.sh: unknown argument '$1'" >&2 && usage 2 >&2 ;;
  esac
  case "$1" in
    --preset) preset=$2 ;;
    --label) select+=(-L "$2") ;;
    --match) select+=(-R "$2") ;;
    --exclude) select+=(-E "$2") ;;
    --jobs) jobs=$2 ;;
  esac
  shift 2
done

step() { printf '\n== %s (%d s)\n' "$*" "$SECONDS"; }

step "packages"
deploy/install_packages.sh
step "test clients"
stamp=build/venv/requirements.txt
if cmp -s tests/requirements.txt "$stamp"; then
  echo "build/venv has them"
elif python3 -m venv --clear build/venv &&
  build/venv/bin/python -m pip install -q --disable-pip-version-check -r tests/requirements.txt </dev/null; then
  cp tests/requirements.txt "$stamp"
else
  echo "run.sh: cannot install the Python packages of tests/requirements.txt; the tests that need them are skipped" >&2
fi
step "default model"
deploy/fetch_model.sh
if ! command -v nvcc >/dev/null && [ ! -x /usr/local/cuda/bin/nvcc ]; then
  echo "nvcc is not here: CUDA code is not compiled on this machine (this is not a failure)"
fi

build=build/$preset
targets=()
if [ ${#select[@]} -gt 0 ]; then
  cmake --preset "$preset" >/dev/null
  # A C++ test and its target have one name; scripts have no target.
  mapfile -t targets < <(comm -12 \
    <(ctest --test-dir "$build" -N "${leave_out[@]}" "${select[@]}" 2>/dev/null | sed -n 's/^ *Test *#[0-9]*: \([^ ]*\).*/\1/p' | sort -u) \
    <(ninja -C "$build" -t targets all | sed -n 's/^\([^/:]*\): .*/\1/p' | sort -u))
  [ ${#targets[@]} -gt 0 ] || {
    echo "run.sh: no test is selected by: ${select[*]}" >&2
    exit 1
  }
fi
step "build $preset: ${#targets[@]} chosen targets (0: all)"
deploy/build.sh ${jobs:+--jobs "$jobs"} "$preset" "${targets[@]}"

step "test $preset"
# Sanitizers: stop at the first report, and say where.
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=1:detect_stack_use_after_return=1}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1:halt_on_error=1}
export TSAN_OPTIONS=${TSAN_OPTIONS:-halt_on_error=1:second_deadlock_stack=1:suppressions=\"$PWD/tests/sanitizers/tsan.supp\"}
ctest --test-dir "$build" "${leave_out[@]}" "${select[@]}" -j "$(nproc)" --output-on-failure --no-tests=error
step "done"
