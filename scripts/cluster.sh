# To be sourced: a private cluster in a folder of its own, for `make up`, `make down` and the demo.
# Expects PG_CONFIG. PostgreSQL refuses root: as root, server programs run as user postgres.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
bin=$("${PG_CONFIG:=/usr/lib/postgresql/15/bin/pg_config}" --bindir)

# server PROGRAM ARGUMENT...: as the user who owns the cluster
server() {
    local run=(env -u RUST_BACKTRACE LC_ALL=C.UTF-8 "$@") # a backtrace would get into errors' details
    if [ "$(id -u)" = 0 ]; then run=(runuser -u postgres -- "${run[@]}"); fi
    (cd / && "${run[@]}")
}

server_user() {
    if [ "$(id -u)" = 0 ]; then echo postgres; else id -un; fi
}

# A folder that only this user and root can enter, so the socket in it needs no password. It may be
# in a place where everybody can write: never take over somebody else's.
private_folder() {
    server mkdir -p -m 700 "$1" 2>/dev/null || true
    if [ ! -d "$1" ] || [ -L "$1" ] || [ "$(stat -c %U "$1")" != "$(server_user)" ]; then
        echo "$1 is not a folder of user $(server_user)" >&2
        return 1
    fi
}

# new_cluster FOLDER PASSWORD: socket connections are trusted, others need the password
new_cluster() {
    server sh -c 'umask 077 && printf "%s\n" "$2" > "$1/password"' sh "$1" "$2"
    server "$bin/initdb" -D "$1/data" -U postgres --pwfile="$1/password" \
        --auth-local=trust --auth-host=scram-sha-256 \
        -E UTF8 --locale=C.UTF-8 --no-instructions >/dev/null
}

is_up() {
    server "$bin/pg_ctl" -D "$1/data" status >/dev/null 2>&1
}

# start_cluster FOLDER OPTION...: options as `name=value`
start_cluster() {
    local folder=$1 options="-c unix_socket_directories='$1' -c shared_preload_libraries=queen" option
    shift
    for option in "$@"; do options+=" -c '$option'"; done
    # the server keeps its stdout: with a pipe there, its reader would wait for ever
    server "$bin/pg_ctl" -D "$folder/data" -l "$folder/log" -w -t 60 -o "$options" start >/dev/null 2>&1 || {
        echo "the server does not start:" >&2
        server tail -n 20 "$folder/log" >&2
        return 1
    }
}

# stop_cluster FOLDER [MODE]: this cluster's server, by its own pid file
stop_cluster() {
    server "$bin/pg_ctl" -D "$1/data" -w -t 60 -m "${2:-fast}" stop >/dev/null
}
