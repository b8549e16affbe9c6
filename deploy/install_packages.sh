#!/usr/bin/env bash
# Installs the Debian packages of deploy/packages.txt that are missing. Does nothing, and needs no network, when all
# are there. usage: install_packages.sh
set -euo pipefail

list="$(dirname "$(readlink -f "$0")")/packages.txt"

command -v dpkg-query >/dev/null || {
  echo "install_packages: this is no Debian system. Install what $list names by the means of your system." >&2
  exit 1
}

missing=()
while read -r package; do
  status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$status" = installed ] || missing+=("$package")
done < <(sed -e 's/#.*//' -e 's/[[:space:]]//g' -e '/^$/d' "$list")

if [ ${#missing[@]} -eq 0 ]; then
  echo "packages: all $(sed -e 's/#.*//' -e '/^[[:space:]]*$/d' "$list" | wc -l) are installed"
  exit 0
fi

echo "packages: installing ${#missing[@]}: ${missing[*]}"
as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || {
    echo "install_packages: run this as root: apt-get install -y --no-install-recommends ${missing[*]}" >&2
    exit 1
  }
  as_root=(sudo)
fi
apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=300)
"${apt[@]}" update </dev/null
"${apt[@]}" install -y --no-install-recommends "${missing[@]}" </dev/null || {
  echo "install_packages: apt-get failed (see above). A name that is unknown: is this Debian 12?" >&2
  exit 1
}
