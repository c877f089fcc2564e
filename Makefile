# What people and CI run. `make` alone lists the targets.

# The PostgreSQL to build for and to run.
PG_CONFIG ?= /usr/lib/postgresql/15/bin/pg_config
# The build that the tests install: their cost ratios want `release`.
QUEEN_TEST_PROFILE ?= release

export PG_CONFIG
export PGRX_PG_CONFIG_PATH := $(PG_CONFIG)

PG_MAJOR = $(shell $(PG_CONFIG) --version 2>/dev/null | sed 's/[^0-9]*\([0-9]*\).*/\1/')
PG_FEATURES = --no-default-features --features queen/pg$(PG_MAJOR)
CARGO ?= cargo

.DEFAULT_GOAL := help
.PHONY: help demo test test-sdk up down bench lint fmt install package prerequisites

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo "PG_CONFIG=$(PG_CONFIG) chooses the PostgreSQL."

demo: prerequisites ## a tour of the broker, in SQL and over HTTP, in a cluster of its own
	demo/run.sh

test: prerequisites ## all tests, each layer of tests/README.md
	@scripts/prerequisites.sh python
	$(CARGO) xtask install $(PG_CONFIG) $(QUEEN_TEST_PROFILE)
	$(CARGO) build -p queen-sidecar
	$(CARGO) test --no-fail-fast --workspace --exclude queen --exclude queen-tests --exclude queen-benches
	$(CARGO) test --no-fail-fast -p queen-tests --lib --test sql --test semantics --test dead_letters --test docs --test races --test model --test durability --test security
	$(CARGO) test --no-fail-fast -p queen-tests --test http
	$(CARGO) test -p queen-tests --test performance -- --test-threads=1

test-sdk: install ## the published SDKs' own tests against the HTTP server; needs network (PyPI, crates.io)
	@scripts/prerequisites.sh python
	$(CARGO) build --release -p queen-sidecar
	tests/sdk/run.sh

up: prerequisites ## start a cluster and the HTTP server in the background; prints QUEEN_URL and DATABASE_URL
	scripts/up.sh

down: ## stop what `make up` started; its data stays
	scripts/down.sh

bench: install ## the codec alone, then side by side with other queues in Postgres where their harness is at hand
	$(CARGO) bench -p queen-benches
	benches/sidebyside/run.sh

lint: prerequisites ## formatting, clippy without warnings, the schema kept in the tree, the scripts
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets $(PG_FEATURES) --locked -- -D warnings
	$(CARGO) xtask schema --check
	@for script in .ci/run scripts/*.sh demo/*.sh tests/sdk/*.sh; do bash -n $$script || exit 1; done

fmt: ## format the Rust code, and write the schema that is kept in the tree
	$(CARGO) fmt --all
	$(CARGO) xtask schema --write

install: prerequisites ## release build of the extension into the PostgreSQL of PG_CONFIG (honours DESTDIR)
	$(CARGO) xtask install $(PG_CONFIG) release
	@echo "The HTTP server is a program apart: cargo build --release -p queen-sidecar makes target/release/queen."

package: prerequisites ## release build of extension and HTTP server as .tar.gz and .deb in target/package/
	$(CARGO) xtask package $(PG_CONFIG)

prerequisites:
	@scripts/prerequisites.sh
