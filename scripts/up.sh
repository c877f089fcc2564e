#!/bin/bash
# Builds and installs the extension, and runs a private cluster with it in the background, and the
# HTTP server in front of it. QUEEN_PGPORT (6542) and QUEEN_HTTP_PORT (6632), both on 127.0.0.1;
# QUEEN_DATA is its folder. Run again, it does what is missing: a new build restarts what it is of.
set -euo pipefail
source "$(dirname "$0")/cluster.sh"
source "$(dirname "$0")/sidecar.sh"
source "$(dirname "$0")/up-folder.sh"

port=${QUEEN_PGPORT:-6542}
http_port=${QUEEN_HTTP_PORT:-6632}

"${CARGO:-cargo}" xtask install "$PG_CONFIG" release
(cd "$root" && "${CARGO:-cargo}" build --release -p queen-sidecar)
build=$(sha256sum <"$("$PG_CONFIG" --pkglibdir)/queen.so")
http_build=$(sha256sum <"$(sidecar_program)")

private_folder "$folder"
if ! server test -e "$folder/data/PG_VERSION"; then
    new_cluster "$folder" "$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')"
fi
{ mkdir -p "$root/target" && ln -sfn "$folder" "$root/target/cluster"; } 2>/dev/null || true

# Whether a port that something of ours is not on already can be had: before that is stopped for it.
need_port() {
    (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null || return 0
    echo "port $1 is taken: $2=… chooses another. What runs was left as it is." >&2
    exit 1
}
running_port=$(is_up "$folder" && server cut -d ' ' -f 1 "$folder/started" || true)
if [ "$running_port" != "$port" ]; then need_port "$port" QUEEN_PGPORT; fi
running_http_port=$([ -z "$(sidecar_pid "$folder")" ] || server cut -d ' ' -f 1 "$folder/started-http" 2>/dev/null || true)
if [ "$running_http_port" != "$http_port" ]; then need_port "$http_port" QUEEN_HTTP_PORT; fi

if is_up "$folder" && [ "$(server cat "$folder/started")" != "$port $build" ]; then
    echo "restarting PostgreSQL: the port or the library is another one"
    stop_sidecar "$folder"
    stop_cluster "$folder"
fi
if ! is_up "$folder"; then
    start_cluster "$folder" "port=$port" "listen_addresses=127.0.0.1"
    server sh -c 'printf %s "$2" > "$1/started"' sh "$folder" "$port $build"
fi

psql=("$bin/psql" -XqAt -h "$folder" -p "$port" -U postgres -v ON_ERROR_STOP=1)
if [ -z "$("${psql[@]}" -d postgres -c "SELECT 1 FROM pg_database WHERE datname = 'queen'")" ]; then
    "${psql[@]}" -d postgres -c "CREATE DATABASE queen"
fi
"${psql[@]}" -d queen -c "SET client_min_messages = warning; CREATE EXTENSION IF NOT EXISTS queen"

wanted="$http_port $port $http_build"
if [ -n "$(sidecar_pid "$folder")" ] && [ "$(server cat "$folder/started-http" 2>/dev/null)" != "$wanted" ]; then
    echo "restarting the HTTP server: a port or the program is another one"
    stop_sidecar "$folder"
fi
if [ -z "$(sidecar_pid "$folder")" ]; then
    start_sidecar "$folder" "$port" queen "$http_port" >/dev/null
    server sh -c 'printf %s "$2" > "$1/started-http"' sh "$folder" "$wanted"
fi

echo "up: $folder (logs: log, queen.log); 'make down' stops it"
echo "QUEEN_URL=http://127.0.0.1:$http_port"
echo "DATABASE_URL=postgresql://postgres:$(server cat "$folder/password")@127.0.0.1:$port/queen"
