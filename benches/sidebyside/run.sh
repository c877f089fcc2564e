#!/bin/bash
# Side-by-side benchmarks: builds the harness with our adapter, starts a lab cluster, runs cells interleaved and
# prints the report. See README.md here.
#   run.sh [--cells PATTERNS] [--systems NAMES] [--rounds N] [--secs S] [--out FILE] [--list]
# QUEEN_BENCH_HARNESS  the harness (default: ../shared/bench next to the checkout); absent = nothing is run
# QUEEN_BENCH_PEERS    0 = fetch no peers, measure queen and the hand-written baseline alone
# QUEEN_BENCH_KEEP     1 = leave the lab cluster running (and reuse it if it runs)
# BENCH_LAB            folder of the lab cluster (default /var/tmp/qbench); BENCH_DSN follows from it
# PGBIN                server programs (default /usr/lib/postgresql/15/bin)
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
harness=${QUEEN_BENCH_HARNESS:-$root/../shared/bench}
target=${CARGO_TARGET_DIR:-$root/target}
copy=$target/qbench
export BENCH_LAB=${BENCH_LAB:-/var/tmp/qbench} PGBIN=${PGBIN:-/usr/lib/postgresql/15/bin}
export BENCH_DSN=${BENCH_DSN:-"host=$BENCH_LAB/run port=55432 user=postgres"}
say() { echo "sidebyside: $*" >&2; }

if [[ ! -e $harness/src/adapters/mod.rs ]]; then
  say "no harness at $harness (QUEEN_BENCH_HARNESS names one); skipped"
  exit 0
fi
[[ $(id -u) == 0 ]] || { say "run as root: the lab cluster is started as user postgres"; exit 1; }

# A fresh copy each time, sources only; the driver's build products stay where they are.
rm -rf "$copy"
mkdir -p "$copy"
tar -C "$harness" --exclude=./target --exclude=./results --exclude=node_modules -c . | tar -C "$copy" -x --no-same-permissions
chmod -R u+w "$copy"
"$here/patch_harness.py" "$copy"
CARGO_TARGET_DIR=$copy-build cargo build --quiet --release --locked --manifest-path "$copy/Cargo.toml"
qbench=$copy-build/release/qbench

out='' systems='' list='' pass=()
while (($#)); do
  case $1 in
  --out) out=$2 && shift 2 ;;
  --systems) systems=$2 && shift 2 ;;
  --list) list=1 && shift ;;
  *) pass+=("$1") && shift ;;
  esac
done
# Without --out every invocation starts a new file; a named one is appended to (more rounds, another day).
if [[ -z $out ]]; then out=$target/sidebyside.jsonl && rm -f "$out"; fi
run=("$here/cells.py" --harness "$copy" --qbench "$qbench" --out "$out" "${pass[@]}")
if [[ -n $list ]]; then exec "${run[@]}" --list; fi

# The peers that are sought: those of the SQL kind. The harness's own fetch_peers.sh brings more.
peers() {
  local crates=$BENCH_LAB/cratefetch registry=${CARGO_HOME:-$HOME/.cargo}/registry/src dir
  local pgmq=${PGMQ_CRATE:-0.34.0-alpha.7} queen=${QUEEN_CRATE:-1.3.0} major
  major=$("$PGBIN/postgres" --version | sed 's/[^0-9]*\([0-9]*\).*/\1/')
  if [[ ! -e /usr/share/postgresql/$major/extension/pgq.control ]]; then
    apt-get install -y -q --no-install-recommends "postgresql-$major-pgq3" >&2 || say "pgq: apt could not install it, skipped"
  fi
  mkdir -p "$crates/src" && echo 'fn main() {}' >"$crates/src/main.rs"
  printf '[package]\nname = "cratefetch"\nversion = "0.1.0"\nedition = "2021"\n[workspace]\n[dependencies]\npgmq = { version = "=%s", default-features = false }\nqueen-engine = { version = "=%s", default-features = false }\n' \
    "$pgmq" "$queen" >"$crates/Cargo.toml"
  cargo fetch -q --manifest-path "$crates/Cargo.toml" >&2 || say "pgmq, queen1x: cargo could not fetch them, skipped"
  dir=$(echo "$registry"/*/pgmq-"$pgmq"/src/install/embedded)
  if [[ -e $dir/sql/pgmq.sql ]]; then
    export BENCH_PGMQ_SQL=$dir/sql/pgmq.sql BENCH_PGMQ_VERSION
    BENCH_PGMQ_VERSION=$(sed -n "s/^default_version = '\(.*\)'/\1/p" "$dir/pgmq.control")
  fi
  dir=$(echo "$registry"/*/queen-engine-"$queen"/sql)
  if [[ -e $dir/schema.sql ]]; then export BENCH_QUEEN1X_DIR=$dir BENCH_QUEEN1X_VERSION=$queen; fi
}
default=queen,skiplocked
if [[ ${QUEEN_BENCH_PEERS:-1} != 0 ]]; then
  peers
  default+=,pgmq,pgq,queen1x
fi
systems=${systems:-$default}

lab() { env -u RUST_BACKTRACE "$copy/lab.sh" "$1" >/dev/null </dev/null; }
running() { runuser -u postgres -- "$PGBIN/pg_ctl" -D "$BENCH_LAB/data" status >/dev/null 2>&1; }
[[ -e $BENCH_LAB/data/PG_VERSION ]] || lab init
conf=$BENCH_LAB/data/postgresql.conf
grep -q "^include_if_exists = 'queen.conf'" "$conf" || echo "include_if_exists = 'queen.conf'" >>"$conf"
if [[ -e $("${PG_CONFIG:-pg_config}" --pkglibdir)/queen.so ]]; then
  echo "shared_preload_libraries = 'queen'" >"$BENCH_LAB/data/queen.conf"
else
  say "queen.so is not installed (make install); its cells will be skipped"
  rm -f "$BENCH_LAB/data/queen.conf"
fi
# A cluster that is up has another queen.so mapped than the one just installed.
if running && [[ ${QUEEN_BENCH_KEEP:-0} != 1 ]]; then lab stop; fi
running || lab start
[[ ${QUEEN_BENCH_KEEP:-0} == 1 ]] || trap 'lab stop' EXIT

"$qbench" setup --adapters "$systems"
mkdir -p "$(dirname "$out")"
rc=0
"${run[@]}" --systems "$systems" || rc=$?
"$copy/report.py" "$out"
exit $rc
