#!/bin/bash
# The published SDKs of Queen MQ, unmodified and from their registries, with the tests they carry, against this server.
#
#   tests/sdk/run.sh [SUITE...]        SUITE: python-1.3.0 python-2.6.0 rust-1.3.0; all when none is named
#
# Needs network (PyPI, crates.io), python3 with venv, curl, and an installed extension. PG_CONFIG says which PostgreSQL,
# QUEEN_PROGRAM which server (target/release/queen). All that it fetches, builds and writes is below target/sdk; the
# cluster is a private one, gone afterwards. Fails when a test fails that is not in expected/SUITE.txt, and when one of
# those passes: the lists are what is left out, and stay true.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/../../scripts/cluster.sh"
source "$here/fetch.sh"

program=${QUEEN_PROGRAM:-$root/target/release/queen}
work=$root/target/sdk
suites=("$@")
if [ ${#suites[@]} = 0 ]; then suites=(python-1.3.0 python-2.6.0 rust-1.3.0); fi
for suite in "${suites[@]}"; do
    if [ ! -e "$here/expected/$suite.txt" ]; then
        echo "no suite $suite: there is $(cd "$here/expected" && echo *.txt)" >&2
        exit 2
    fi
done
if [ ! -x "$program" ]; then
    echo "$program is missing: cargo build --release -p queen-sidecar" >&2
    exit 2
fi
mkdir -p "$work/results"

# Suites run beside each other, mostly asleep: each is a job with a server of its own, and a process group, so that it
# ends with us.
set -m
runs=()
folder=$(server mktemp -d /tmp/queen-sdk-XXXXXX)
goodbye() {
    local run
    # Not TERM: the Python SDK takes that for a wish to flush and goes on.
    for run in "${runs[@]}"; do kill -KILL -- "-$run" 2>/dev/null || true; done
    if is_up "$folder"; then stop_cluster "$folder" immediate; fi
    server rm -rf "$folder"
}
trap goodbye EXIT
trap 'exit 130' INT TERM

# A cluster with a key, since the suites push to an encrypted queue.
new_cluster "$folder" "$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')"
server sh -c 'umask 077 && printf "sdk:%s\n" "$2" > "$1/keys"' sh "$folder" "$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')"
start_cluster "$folder" listen_addresses= port=6432 "queen.encryption_key_file=$folder/keys"
sql() { "$bin/psql" -Xq -h "$folder" -p 6432 -U postgres -v ON_ERROR_STOP=1 "$@"; }
sql -d postgres -c "CREATE ROLE suites_login LOGIN"

# serve NAME DATABASE [SETTING=VALUE...]: starts a server as users run it, sets $url and $pid
serve() {
    local name=$1 database=$2 log=$work/results/$1.server.log address=
    shift 2
    # There before it is looked into.
    : >"$log"
    env -i "DATABASE_URL=host=$folder port=6432 user=suites_login dbname=$database" \
        QUEEN_BIND_ADDR=127.0.0.1 PORT=0 DEFAULT_SUBSCRIPTION_MODE=new QUEEN_LOG=debug \
        "FILE_BUFFER_DIR=$work/results/$name.buffer" "$@" "$program" serve 2>"$log" &
    pid=$!
    for _ in $(seq 300); do
        address=$(sed -n 's/.*"listening","address":"\([^"]*\)".*/\1/p' "$log")
        if [ -n "$address" ]; then break; fi
        if ! kill -0 "$pid" 2>/dev/null; then break; fi
        sleep 0.1
    done
    if [ -z "$address" ]; then
        echo "the server does not start:" >&2
        cat "$log" >&2
        return 1
    fi
    url=http://$address
}

# with_server NAME DATABASE [SETTING=VALUE...] -- COMMAND...: COMMAND with $url set
with_server() {
    local name=$1 database=$2 settings=()
    shift 2
    while [ "$1" != -- ]; do settings+=("$1"); shift; done
    shift
    serve "$name" "$database" "${settings[@]}"
    # What failed is in the results; the verdict counts them.
    "$@" || true
    kill "$pid"
    wait "$pid" || true
}

# pytest_of VERSION NAME [ARGUMENT...]: the tests of the sdist against the installed package
pytest_of() {
    local version=$1 name=$2
    shift 2
    (cd "$work/python-$version" && env QUEEN_SERVER_URL="$url" QUEEN_URL="$url" SDK_RESULTS="$work/results/$name.txt" \
        PYTHONPATH="$here/python" PYTHONDONTWRITEBYTECODE=1 timeout --foreground 1500 venv/bin/pytest \
        -c "$here/python/pytest.ini" --rootdir . -q --tb=short "$@") >"$work/results/$name.log" 2>&1
}

# cargo_tests NAME: one test after the other; maintenance, for one, is the whole server's. One of them wants to see a
# queue in the listing, and would else depend on what another has just made.
cargo_tests() {
    curl -fsS "$url/api/v1/configure" -d '{"queue": "not-a-tests-own"}' >/dev/null
    (cd "$work/rust" && QUEEN_TEST_URL=$url QUEEN_TEST_STRICT=1 timeout --foreground 2400 \
        "${CARGO:-cargo}" test --locked --no-fail-fast -p queen-mq "${rust_tests[@]}" -- --test-threads=1) \
        >"$work/results/$1.log" 2>&1
}

# Its output as the lines `passed|failed|skipped NAME` that the verdict reads
cargo_results() {
    awk '
        $1 == "Running" { binary = $2; sub(/^tests\//, "", binary); sub(/\.rs$/, "", binary) }
        /^test .* \.\.\. / { name = $2; open = 1 }
        # a test that prints does so between its name and its outcome
        open && match($0, /(ok|FAILED|ignored)( *,.*)?$/) {
            outcome = substr($0, RSTART)
            print (outcome ~ /^ok/ ? "passed" : outcome ~ /^FAILED/ ? "failed" : "skipped"), binary "::" name
            open = 0
        }
        /^error: could not compile/ { print "failed build" }
        END { if (open) print "failed", binary "::" name }
    ' "$work/results/$1.log" >"$work/results/$1.txt"
}

run_suite() {
    local suite=$1 database=${1//[-.]/_} version=${1#*-} secret=only-for-this-run-0123456789abcdef
    sql -d postgres -c "CREATE DATABASE $database"
    sql -d "$database" -c "SET client_min_messages = warning; CREATE EXTENSION queen; GRANT queen_sidecar TO suites_login"
    rm -rf "$work/results/$suite".*
    case $suite in
    python-*)
        with_server "$suite" "$database" -- pytest_of "$version" "$suite" tests
        # The same server with tokens, for the tests that are skipped without.
        rm -rf "$work/results/$suite-tokens".*
        with_server "$suite-tokens" "$database" JWT_ENABLED=true "JWT_SECRET=$secret" -- \
            env_of "JWT_SECRET=$secret" pytest_of "$version" "$suite-tokens" tests/test_auth.py
        cat "$work/results/$suite-tokens.txt" >>"$work/results/$suite.txt"
        ;;
    rust-*)
        with_server "$suite" "$database" -- cargo_tests "$suite"
        cargo_results "$suite"
        ;;
    esac
}

# env_of NAME=VALUE COMMAND...: as env(1), for a function
env_of() {
    local "${1?}"
    export "${1%%=*}"
    shift
    "$@"
}

for suite in "${suites[@]}"; do "fetch_${suite%%-*}" "${suite#*-}"; done
for suite in "${suites[@]}"; do
    echo "running $suite: $work/results/$suite.log"
    run_suite "$suite" &
    runs+=($!)
done
for run in "${runs[@]}"; do wait "$run" || echo "a suite did not run to its end" >&2; done
runs=()
python3 "$here/verdict.py" "$here/expected" "$work/results" "${suites[@]}"
