# To be sourced after cluster.sh: the HTTP server beside a private cluster, as the same user, through
# the cluster's socket, as a login that has queen_sidecar and nothing else.

# sidecar_program: where `cargo build --release` leaves it
sidecar_program() { printf '%s\n' "${CARGO_TARGET_DIR:-$root/target}/release/queen"; }

# sidecar_pid FOLDER: of the running server; nothing when there is none
sidecar_pid() {
    local pid
    pid=$(server cat "$1/queen.pid" 2>/dev/null) || return 0
    # a number may long belong to another process: it has to be this folder's program
    case $(tr '\0' ' ' 2>/dev/null <"/proc/$pid/cmdline" || true) in
    "$1/queen serve"*) printf '%s\n' "$pid" ;;
    esac
}

# start_sidecar FOLDER PGPORT DATABASE PORT: port 0 takes a free one; answers the URL
start_sidecar() {
    local folder=$1 pgport=$2 database=$3 port=$4 began=$SECONDS address
    # a copy: the user may not be able to enter the checkout, and the build may replace it
    server sh -c 'cat > "$1/queen.new" && chmod 755 "$1/queen.new" && mv "$1/queen.new" "$1/queen"' sh "$folder" \
        <"$(sidecar_program)"
    "$bin/psql" -Xq -h "$folder" -p "$pgport" -U postgres -d "$database" -v ON_ERROR_STOP=1 >/dev/null <<'SQL'
SELECT 'CREATE ROLE queen_http LOGIN' WHERE to_regrole('queen_http') IS NULL \gexec
SET client_min_messages = warning;
GRANT queen_sidecar TO queen_http;
SQL
    server sh -c 'cd "$1" && { [ ! -e queen.log ] || mv queen.log queen.log.1; }; mkdir -p buffer; : > queen.log' \
        sh "$folder"
    server env DATABASE_URL="host='$folder' port=$pgport user=queen_http dbname=$database" \
        QUEEN_BIND_ADDR=127.0.0.1 PORT="$port" FILE_BUFFER_DIR="$folder/buffer" QUEEN_LOG_FORMAT=json \
        setsid -f sh -c 'echo $$ > "$1/queen.pid"; exec "$1/queen" serve </dev/null >/dev/null 2>>"$1/queen.log"' \
        sh "$folder" </dev/null >/dev/null 2>&1
    until address=$(server sed -n 's/.*"message":"listening","address":"\([^"]*\)".*/\1/p' "$folder/queen.log") &&
        [ -n "$address" ] && curl -fsS --noproxy '*' -o /dev/null "http://$address/health" 2>/dev/null; do
        if [ $((SECONDS - began)) -ge 2 ] && [ -z "$(sidecar_pid "$folder")" ] || [ $((SECONDS - began)) -ge 30 ]; then
            echo "the HTTP server does not start:" >&2
            server tail -n 20 "$folder/queen.log" >&2
            return 1
        fi
        sleep 0.1
    done
    printf 'http://%s\n' "$address"
}

# stop_sidecar FOLDER: by its own pid file; requests under way are answered first
stop_sidecar() {
    local pid began=$SECONDS
    pid=$(sidecar_pid "$1")
    [ -n "$pid" ] || return 0
    server kill -TERM "$pid"
    while [ -n "$(sidecar_pid "$1")" ]; do
        if [ $((SECONDS - began)) -ge 40 ]; then
            echo "the HTTP server (pid $pid) does not end" >&2
            return 1
        fi
        sleep 0.1
    done
    server rm -f "$1/queen.pid"
}
