#!/bin/sh
# Copies queen into a PostgreSQL @MAJOR@: ./install.sh [PG_CONFIG]   (honours DESTDIR)
set -eu

pg_config=${1:-pg_config}
here=$(cd "$(dirname "$0")" && pwd)

case $("$pg_config" --version) in
"PostgreSQL @MAJOR@"[!0-9]*) ;;
*)
    echo "this build is for PostgreSQL @MAJOR@, and $pg_config is of $("$pg_config" --version)" >&2
    exit 1
    ;;
esac

lib=${DESTDIR:-}$("$pg_config" --pkglibdir)
extension=${DESTDIR:-}$("$pg_config" --sharedir)/extension

mkdir -p "$lib" "$extension"
# A new inode: a running server may have the old library mapped.
rm -f "$lib/queen.so"
install -m 644 "$here/lib/queen.so" "$lib/"
install -m 644 "$here"/extension/* "$extension/"

echo "installed in $lib and $extension"
echo "the HTTP server is $here/bin/queen, with an example of a systemd unit"
echo "next: shared_preload_libraries = 'queen', restart, CREATE EXTENSION queen"
