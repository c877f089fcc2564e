# To be sourced: how the demo shows itself. Expects a function `sql` that is psql.

if [ -t 1 ] && [ -z "${NO_COLOR:-}" ]; then
    bold=$'\e[1m' dim=$'\e[2m' green=$'\e[32m' red=$'\e[31m' plain=$'\e[0m'
else
    bold='' dim='' green='' red='' plain=''
fi
steps=0 checks=0 took=''

heading() {
    steps=$((steps + 1))
    printf '\n%s%d. %s%s\n' "$bold" "$steps" "$1" "$plain"
}

say() { printf '   %s\n' "$1"; }

# run [quiet]: shows the SQL on stdin and, unless quiet, its result; how long the server took for all
# since the last check stands with the next one
run() {
    local text output
    text=$(cat)
    printf '%s%s%s\n' "$dim" "$(sed 's/^/   /' <<<"$text")" "$plain"
    output=$(sql -P footer=off -P null=- <<<"\\timing on
$text" 2>&1) || failed "$output"
    took=$(awk -v ms="${took:-0}" '/^Time: / { ms += $2 } END { printf "%.1f", ms }' <<<"$output")
    [ "${1:-}" = quiet ] || rows <<<"$(grep -v '^Time: ' <<<"$output" || true)"
}

# again SQL: the same once more, only its rows
again() {
    local output
    output=$(sql -t -P null=- -c "$1" 2>&1) || failed "$output"
    rows <<<"$output"
}

# rows: tables without their rules
rows() { sed -E '/^[-+]*$/d; s/^/     /' | sed 's/ *$//'; }

# check WHAT EXPECTED SQL
check() {
    local got
    got=$(sql -At -c "$3" 2>&1) || failed "$got"
    [ "$got" = "$2" ] || failed "$1: expected '$2', got '$got'"
    passed "$1"
}

# await WHAT EXPECTED SQL: as check, within ten seconds
await() {
    local got='' began=$SECONDS
    until got=$(sql -At -c "$3" 2>&1) && [ "$got" = "$2" ]; do
        [ $((SECONDS - began)) -lt 10 ] || failed "$1: expected '$2', got '$got'"
        sleep 0.2
    done
    passed "$1"
}

passed() {
    checks=$((checks + 1))
    printf '   %s✓ %s%s' "$green" "$1" "$plain"
    if [ -n "$took" ]; then printf '%s (%s ms)%s' "$dim" "$took" "$plain"; fi
    printf '\n'
    took=''
}

failed() {
    printf '   %s✗ %s%s\n' "$red" "$1" "$plain" >&2
    exit 1
}

summary() { printf '\n%s%d checks passed.%s\n' "$bold" "$checks" "$plain"; }
