#!/bin/bash
# Builds and installs the extension, and runs a private cluster with it in the background.
# QUEEN_PGPORT (6542) on 127.0.0.1; QUEEN_DATA is its folder. Run again, it does what is missing:
# a new build restarts the server, since a preloaded library is never loaded again.
set -euo pipefail
source "$(dirname "$0")/cluster.sh"
source "$(dirname "$0")/up-folder.sh"

port=${QUEEN_PGPORT:-6542}

"${CARGO:-cargo}" xtask install "$PG_CONFIG" release
build=$(sha256sum <"$("$PG_CONFIG" --pkglibdir)/queen.so")

private_folder "$folder"
if ! server test -e "$folder/data/PG_VERSION"; then
    new_cluster "$folder" "$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')"
fi
{ mkdir -p "$root/target" && ln -sfn "$folder" "$root/target/cluster"; } 2>/dev/null || true

if is_up "$folder" && [ "$(server cat "$folder/started")" != "$port $build" ]; then
    echo "restarting: the port or the library is another one"
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

echo "up: $folder (log: $folder/log); 'make down' stops it"
echo "DATABASE_URL=postgresql://postgres:$(server cat "$folder/password")@127.0.0.1:$port/queen"
