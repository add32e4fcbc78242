# The front door. `make demo` and `make test` install what they need; everything else is for daily work.
SHELL := /bin/bash
export PATH := $(HOME)/.cargo/bin:$(PATH)
SEEDS ?= 20000

.PHONY: help demo test bench soak build console fmt clippy tidy bare-metal setup-% clean

help:
	@echo "make demo    builds hearth and shows it in front of a modelled slow disk (under five minutes)"
	@echo "make test    everything CI runs"
	@echo "make bench   speed, beside peers; writes bench/results.json"
	@echo "make soak SEEDS=200000   the simulator, on all cores"

setup-%:
	@scripts/setup $*

# The web console: its files end in console/dist, and the next build embeds them.
console: setup-console
	cd console && npm ci --no-audit --no-fund && npm run check && npm run build

build: setup-build
	cargo build --release --locked -p hearth

demo: setup-demo
	cargo build --release --locked -p hearth
	scripts/demo

test: setup-test
	scripts/test

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
