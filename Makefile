# The front door. `make demo` and `make test` install what they need; everything else is for daily work.
SHELL := /bin/bash
export PATH := $(HOME)/.cargo/bin:$(PATH)
SEEDS ?= 20000

.NOTPARALLEL:
.PHONY: help demo test test-long bench soak build evaluate console deb test-deb fmt clippy tidy clean

help:
	@echo "make demo      builds hearth and shows it in front of a modelled slow disk; KEEP=1 leaves it running, console included"
	@echo "make test      everything CI runs"
	@echo "make test-long the same with long versions of what only repeats"
	@echo "make build     target/release/hearth, the web console within"
	@echo "make evaluate  target/release/hearth-evaluate, which \`hearth evaluate\` runs"
	@echo "make console   the web console alone: console/dist, which the next build embeds"
	@echo "make deb       a Debian package, built with line tables: target/hearth_VERSION_ARCH.deb, and .debug beside it"
	@echo "make test-deb  tries that package: install, upgrade, remove, purge (needs root; this machine stays as it is)"
	@echo "make bench     speed, beside peers; writes bench/results.json"
	@echo "make soak SEEDS=200000   the simulator, on all cores"

setup-%:
	@scripts/setup $*

# The web console: its files end in console/dist, and the next build embeds them. Packages are fetched again when their list has changed.
CONSOLE_SOURCES := $(shell find console/src console/static console/scripts -type f) console/package.json console/tsconfig.json

console: console/dist/index.html

console/dist/index.html: console/node_modules/.package-lock.json $(CONSOLE_SOURCES)
	cd console && npm run check && npm run build

console/node_modules/.package-lock.json: console/package-lock.json | setup-console
	cd console && npm ci --no-audit --no-fund
	@touch $@

build: setup-build console
	cargo build --release --locked -p hearth

# A program of its own: the daemon links no load generator, and the demo does not build one.
evaluate: setup-build
	cargo build --release --locked -p evaluate

deb: setup-deb setup-build console
	cargo build --profile dist --locked -p hearth -p evaluate
	HEARTH_BINARY="$${CARGO_TARGET_DIR:-target}/dist/hearth" scripts/deb

test-deb: setup-deb build evaluate
	scripts/try-deb

demo: setup-demo build
	scripts/demo

test: setup-test
	scripts/test

test-long: setup-test
	scripts/test long

bench: setup-bench
	scripts/bench

soak: setup-build
	cargo run --release --locked -p simulator --bin soak -- --seeds $(SEEDS)

fmt:
	cargo fmt --all -- --check

clippy:
	cargo clippy --locked --workspace --all-targets -- -D warnings

tidy:
	cargo run -q --locked -p tidy

clean:
	cargo clean
