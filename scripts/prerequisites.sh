#!/bin/bash
# Sees to it that the PostgreSQL of PG_CONFIG is there with its headers, and what the build needs
# besides: Rust, a C compiler, libclang; and curl, for the HTTP server's demo and documents; with
# argument `python`, as for the tests, a python3 that can make virtual environments. On Debian, what is
# missing of PostgreSQL, curl and python3 is installed with apt; no server is started. Says nothing
# when there is nothing to do.
set -euo pipefail

pg_config=${PG_CONFIG:-/usr/lib/postgresql/15/bin/pg_config}

has_postgres() {
    [ -x "$pg_config" ] &&
        [ -e "$("$pg_config" --includedir-server)/postgres.h" ] &&
        [ -x "$("$pg_config" --bindir)/initdb" ] &&
        [ -x "$("$pg_config" --bindir)/psql" ]
}

for program in cargo cc make; do
    command -v "$program" >/dev/null || {
        echo "$program is missing: install Rust (https://rustup.rs) and gcc and make first" >&2
        exit 1
    }
done

packages=()
if ! command -v curl >/dev/null; then packages+=(curl); fi
if [ "${1:-}" = python ] && ! python3 -c 'import ensurepip, venv' 2>/dev/null; then packages+=(python3-venv); fi
if ! has_postgres; then
    case $pg_config in
    /usr/lib/postgresql/*/bin/pg_config) ;;
    *)
        echo "$pg_config is not a PostgreSQL with server headers, initdb and psql" >&2
        exit 1
        ;;
    esac
    major=${pg_config#/usr/lib/postgresql/}
    major=${major%%/*}
    packages+=("postgresql-$major" "postgresql-server-dev-$major")
fi
if [ ${#packages[@]} = 0 ]; then exit 0; fi

command -v apt-get >/dev/null || {
    echo "${packages[*]} are missing, and there is no apt-get to install them (PG_CONFIG chooses another PostgreSQL)" >&2
    exit 1
}

as_root=()
if [ "$(id -u)" != 0 ]; then as_root=(sudo); fi

# The package makes a cluster of its own and starts it, on the usual port. We want neither: for as
# long as we install, services are denied their start.
policy=/usr/sbin/policy-rc.d
denied=no
log=$(mktemp)
cleanup() {
    rm -f "$log"
    if [ "$denied" = yes ]; then "${as_root[@]}" rm -f "$policy"; fi
}
trap cleanup EXIT
if [ ! -e "$policy" ]; then
    denied=yes
    printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee "$policy" >/dev/null
    "${as_root[@]}" chmod 755 "$policy"
fi

echo "installing ${packages[*]} with apt-get, without starting a server" >&2
as_root+=(env DEBIAN_FRONTEND=noninteractive)
for step in "update" "install -y --no-install-recommends ${packages[*]}"; do
    # shellcheck disable=SC2086 # words of a command
    "${as_root[@]}" apt-get -qq $step >"$log" 2>&1 || {
        cat "$log" >&2
        exit 1
    }
done

has_postgres || {
    echo "$pg_config is still not a PostgreSQL with server headers" >&2
    exit 1
}
