#!/usr/bin/env bash
# From a bare Debian 12 to answers about real documents: installs packages, builds, fetches a small model, starts
# `epic serve` on loopback, compiles documents, asks about them with every row computed and once linked.
#
# usage: quickstart.sh [--serve] [FILE...]
#   --serve   leaves the server running and says how to talk to it and how to stop it
#   FILE      texts to ask about (default: the licence texts that every Debian has)
# It can be run again at any time; a second run takes seconds. What it makes is in build/.
set -euo pipefail

start_dir=$PWD
cd "$(dirname "$(readlink -f "$0")")/.."
top=$PWD
binary=$top/build/release/bin/epic
state=$top/build/quickstart # data/, server.log, server.pid, server.http, server.admin

HEALTH_SECONDS=180
DEMO_SECONDS=900
STOP_SECONDS=40

serve=false
keep=false # whether the server goes on when this script ends
files=()
for argument in "$@"; do
  case "$argument" in
    --serve) serve=true ;;
    -h | --help)
      sed -n '2,8s/^# \{0,1\}//p' "$0"
      exit 0
      ;;
    -*) echo "quickstart: unknown option '$argument'; see --help" >&2 && exit 2 ;;
    *)
      file=$(cd "$start_dir" && readlink -f -- "$argument" || true)
      [ -f "$file" ] && [ -r "$file" ] || { echo "quickstart: cannot read the file '$argument'" >&2 && exit 2; }
      files+=("$file")
      ;;
  esac
done

step() { printf '\n== %s (%d s)\n' "$*" "$SECONDS"; }

fail() {
  keep=false
  echo "quickstart: $*" >&2
  if [ -s "$state/server.log" ]; then
    echo "The end of $state/server.log:" >&2
    tail -n 20 "$state/server.log" | sed 's/^/  /' >&2
  fi
  exit 1
}

# The process id of a server that an earlier run left, if it still runs and is ours.
running_server() {
  local pid
  pid=$(cat "$state/server.pid" 2>/dev/null) && [ -n "$pid" ] || return 1
  case "$(readlink "/proc/$pid/exe" 2>/dev/null)" in
    "$binary" | "$binary (deleted)") echo "$pid" ;;
    *) return 1 ;;
  esac
}

stop_server() {
  local pid
  pid=$(running_server) || return 0
  kill -TERM "$pid" 2>/dev/null || true
  for ((i = 0; i < STOP_SECONDS * 10; i++)); do
    running_server >/dev/null || break
    sleep 0.1
  done
  if running_server >/dev/null; then
    echo "quickstart: the server did not stop within $STOP_SECONDS s; killing it" >&2
    kill -KILL "$pid" 2>/dev/null || true
  fi
  rm -f "$state/server.pid" "$state/server.http" "$state/server.admin"
}

# Four loopback addresses: 8080 to 8083 where they are free, else any free port.
free_addresses() {
  python3 - <<'PYTHON'
import socket

held = []
for port in range(8080, 8084):
    for candidate in (port, 0):
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", candidate))
        except OSError:
            listener.close()
            continue
        held.append(listener)
        break
print(*("127.0.0.1:%d" % listener.getsockname()[1] for listener in held))
PYTHON
}

is_healthy() { curl -fsS --max-time 5 -o /dev/null "http://$1/health" 2>/dev/null; }

start_server() {
  local http grpc admin admin_grpc pid
  read -r http grpc admin admin_grpc < <(free_addresses)
  mkdir -p "$state"
  setsid "$binary" serve --model "$model" --data-dir "$state/data" --http "$http" --grpc "$grpc" \
    --admin "$admin" --admin-grpc "$admin_grpc" </dev/null >"$state/server.log" 2>&1 &
  pid=$!
  disown
  echo "$pid" >"$state/server.pid"
  echo "$http" >"$state/server.http"
  echo "$admin" >"$state/server.admin"
  for ((i = 0; i < HEALTH_SECONDS * 2; i++)); do
    is_healthy "$http" && return 0
    # The process is ours before exec too, so look for the process itself and not for its file.
    kill -0 "$pid" 2>/dev/null || fail "the server ended while it was starting"
    [ $((i % 20)) -ne 19 ] || echo "still loading the model ($((i / 2)) s)"
    sleep 0.5
  done
  fail "the server at $http was not ready within $HEALTH_SECONDS s"
}

step "packages"
deploy/install_packages.sh
step "build"
deploy/build.sh release epic_binary
step "model"
model=$(deploy/fetch_model.sh)

step "server"
mkdir -p "$state"
exec 8>"$state/.lock"
flock -n 8 || fail "another quickstart.sh is running here"
if pid=$(running_server) && [ "$(readlink "/proc/$pid/exe")" = "$binary" ] && [ -s "$state/server.admin" ] &&
  is_healthy "$(cat "$state/server.http")"; then
  echo "the server of an earlier run is up (process $pid)"
  serve=true
else
  stop_server
  trap '[ "$keep" = true ] || stop_server' EXIT
  trap 'keep=false; exit 130' INT TERM
  start_server 8>&-
fi
keep=$serve
http=$(cat "$state/server.http")
echo "HTTP at $http, log in $state/server.log"

step "compile documents and ask"
timeout "$DEMO_SECONDS" "$binary" demo --http "$http" --admin "$(cat "$state/server.admin")" "${files[@]}" ||
  fail "\`epic demo\` did not succeed within $DEMO_SECONDS s (see above)"

step "done"
if [ "$keep" = true ]; then
  echo "The server runs (process $(cat "$state/server.pid")); stop it with: kill $(cat "$state/server.pid")"
else
  echo "The server is stopped now. For the curl lines start it again: deploy/quickstart.sh --serve leaves it running."
fi
