#!/usr/bin/env bash
# Builds one program that runs the sweeps and benches of every GPU kernel, and runs it on this machine's device.
#
# usage: kernels/device_check.sh [--build-only] [--jobs N] [--arch sm_XX,...] [--out FOLDER] [--] [--json] [--no-bench]
# Needs nvcc and g++ only: no CMake, no network, no file outside this tree. The program (FOLDER/device_check, default
# build/device_check) has the CUDA runtime and the C++ library in it; it needs the driver and glibc, and runs for under
# five minutes. Exit: 0 all right, 1 a kernel is wrong, 2 usage, 77 no device.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."

usage() {
  sed -n '2,7s/^# \{0,1\}//p' "$0"
  exit "$1"
}

build_only=
jobs=$(nproc)
archs=sm_80,sm_90
out=build/device_check
arguments=()
while [ $# -gt 0 ]; do
  case "$1" in
    --build-only) build_only=1 ;;
    --jobs | --arch | --out)
      [ $# -ge 2 ] || usage 2 >&2
      case "$1" in
        --jobs) jobs=$2 ;;
        --arch) archs=$2 ;;
        --out) out=$2 ;;
      esac
      shift
      ;;
    --json | --no-bench) arguments+=("$1") ;;
    --) ;;
    -h | --help) usage 0 ;;
    *) echo "device_check.sh: unknown argument '$1'" >&2 && usage 2 >&2 ;;
  esac
  shift
done

nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
[ -x "$nvcc" ] || {
  echo "device_check.sh: nvcc is not here: install the CUDA toolkit, or run a program built elsewhere" >&2
  exit 1
}

generate=()
for arch in ${archs//,/ }; do generate+=(-gencode "arch=compute_${arch#sm_},code=$arch"); done
# For devices newer than these, the driver compiles the last one's PTX.
generate+=(-gencode "arch=compute_${arch#sm_},code=compute_${arch#sm_}")

ops=(kv_write rms_norm row_copy row_selection sampling segment_attention swiglu value_distance)
device=(kernels/simt/device_memory_cuda.cu kernels/device_check/device.cu)
host=(kernels/device_check/main.cc kernels/device_check/benches.cc kernels/rope/rope.cc kernels/api/thread_pool.cc
  kernels/segment_attention/segment_attention_cuda_fixture.cc kernels/segment_attention/segment_attention_plan.cc
  kernels/segment_attention/segment_attention_ref.cc kernels/kv_write/kv_write_ref.cc kernels/rms_norm/rms_norm_ref.cc
  kernels/swiglu/swiglu_ref.cc kernels/value_distance/value_distance_ref.cc kernels/row_selection/row_selection.cc)
for op in "${ops[@]}"; do
  device+=("kernels/$op/${op}_cuda.cu")
  host+=("kernels/$op/${op}_cuda_sweep.cc")
done

ccache=$(command -v ccache || true)
warnings="-Wall -Wextra -Wno-unused-parameter -Wno-missing-field-initializers"
mkdir -p "$out"
commands=()
objects=()
for source in "${device[@]}" "${host[@]}"; do
  object=$out/$(echo "$source" | tr / _).o
  objects+=("$object")
  case "$source" in
    *.cu) commands+=("$ccache '$nvcc' -std=c++20 -O3 -I. ${generate[*]} -c '$source' -o '$object'") ;;
    *) commands+=("$ccache g++ -std=c++20 -O2 $warnings -I. -c '$source' -o '$object'") ;;
  esac
done
printf '%s\0' "${commands[@]}" | xargs -0 -P "$jobs" -I '{}' bash -c '{} || exit 255'
"$nvcc" "${generate[@]}" -cudart static -Xcompiler -static-libstdc++,-static-libgcc -o "$out/device_check" "${objects[@]}"
[ -z "$build_only" ] || exit 0
exec "$out/device_check" "${arguments[@]}"
