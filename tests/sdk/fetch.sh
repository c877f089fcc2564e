# To be sourced: gets a suite from its registry, once. Expects $work. Nothing of an SDK is edited.

# fetch_python VERSION: the package into a venv, its tests beside it
fetch_python() {
    local folder=$work/python-$1
    if [ -e "$folder/ready" ]; then return; fi
    echo "fetching queen-mq $1 from PyPI"
    rm -rf "$folder"
    mkdir -p "$folder"
    python3 -m venv "$folder/venv"
    # As the suites were run when they were published: later majors of pytest may judge differently.
    "$folder/venv/bin/pip" install -q --disable-pip-version-check "queen-mq==$1" 'pytest>=8,<10' 'pytest-asyncio>=1,<2'
    # The wheel has no tests, the sdist has.
    "$folder/venv/bin/pip" download -q --disable-pip-version-check --no-deps --no-binary :all: -d "$folder" "queen-mq==$1"
    # Only the tests: `import queen` must find the installed package.
    tar -xzf "$folder/queen_mq-$1.tar.gz" -C "$folder" --strip-components=1 "queen_mq-$1/tests"
    touch "$folder/ready"
}

# The tests that ask a server; the others are the client's own, against a fake one.
rust_tests=()
for test in admin core coverage docs kv_timers maintenance semantics streams; do rust_tests+=(--test "$test"); done

# fetch_rust VERSION: the published crate as the only member of a workspace, so that nothing of it has to change
fetch_rust() {
    local folder=$work/rust crate
    if [ ! -e "$folder/ready-$1" ]; then
        echo "fetching queen-mq $1 from crates.io"
        rm -rf "$folder/fetch" "$folder/queen-mq-$1"
        mkdir -p "$folder/fetch/src"
        touch "$folder/fetch/src/lib.rs"
        printf '[package]\nname = "fetch"\nversion = "0.0.0"\nedition = "2021"\n[dependencies]\nqueen-mq = "=%s"\n[workspace]\n' \
            "$1" >"$folder/fetch/Cargo.toml"
        # cargo verifies what it downloads
        crate=$(cd "$folder/fetch" && "${CARGO:-cargo}" metadata --format-version 1 |
            sed -n "s|.*\"manifest_path\":\"\([^\"]*/queen-mq-$1\)/Cargo.toml\".*|\1|p")
        cp -r "$crate" "$folder/queen-mq-$1"
        cp "$folder/queen-mq-$1/Cargo.lock" "$folder/Cargo.lock"
        printf '[workspace]\nmembers = ["queen-mq-%s"]\nresolver = "2"\n' "$1" >"$folder/Cargo.toml"
        touch "$folder/ready-$1"
    fi
    echo "building its tests"
    # A target folder given for this repository is not for it.
    unset CARGO_TARGET_DIR
    (cd "$folder" && "${CARGO:-cargo}" test -q --locked --no-run -p queen-mq "${rust_tests[@]}")
}
